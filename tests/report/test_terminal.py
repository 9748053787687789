"""The comparison on a terminal."""

import io
import os
from contextlib import suppress

import pytest

from posenc.analysis.comparison import compare
from posenc.report import tables, terminal, write
from tests.analysis.synthetic import pair, run, sweep


def test_in_80_columns_no_number_is_cut(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    paces = {"rope": 2.0, "learned": 1.3, "sinusoidal_vaswani": 1.0}
    runs = (run(scheme, seed, pace + seed / 9) for scheme, pace in paces.items() for seed in range(3))
    comparison = compare(sweep(*runs), "sinusoidal_vaswani")
    terminal.show(comparison)
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    assert "\u2026" not in shown
    (panel,) = comparison.panels
    for table in (tables.losses(panel), tables.thresholds(panel)):
        for row in table.rows:
            assert all(word in shown for cell in row[2:] for word in cell.split())


def test_a_closed_pipe_is_not_an_exit_of_rich(monkeypatch):
    reader, writer = os.pipe()
    os.close(reader)
    stdout = os.fdopen(writer, "w")
    monkeypatch.setattr("sys.stdout", stdout)
    with pytest.raises(BrokenPipeError):
        terminal.show(compare(pair()))
    with suppress(BrokenPipeError):
        stdout.close()


def test_a_pipe_that_closes_before_the_last_line_is_no_fault_of_the_folder(monkeypatch, tmp_path):
    class Closes(io.StringIO):
        def write(self, text: str) -> int:
            if "Report:" in text:
                raise BrokenPipeError
            return super().write(text)

    monkeypatch.setattr("posenc.report.write.read_folder", lambda _: pair())
    monkeypatch.setattr("posenc.report.write._write", lambda *_: None)
    monkeypatch.setattr("sys.stdout", Closes())
    with pytest.raises(BrokenPipeError):
        write.report(str(tmp_path))
