"""The comparison on a terminal."""

from posenc.analysis.comparison import compare
from posenc.report import tables, terminal
from tests.analysis.synthetic import run, sweep


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
