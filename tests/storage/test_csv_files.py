import os

import pytest

from posenc.errors import RunError, UserError
from posenc.storage.csv_files import MAX_BYTES, MAX_ROWS, MetricsFile, read_csv, to_csv


def test_what_is_written_is_read_back(tmp_path):
    rows = [{"scheme": 'a, "b"\nc', "loss": "-1.5", "seed": "0"}, {"scheme": "rope", "loss": "", "seed": "1"}]
    (tmp_path / "table.csv").write_text(to_csv(("scheme", "loss", "seed"), rows))
    assert read_csv(tmp_path / "table.csv") == rows


def test_a_name_is_no_formula_and_a_number_stays_a_number():
    row = {"name": "=1+1", "other": "@x", "tab": "\t=1+1", "text": "-1.5e-05", "number": -2.5}
    assert to_csv(list(row), [row]) == "name,other,tab,text,number\n'=1+1,'@x,'\t=1+1,-1.5e-05,-2.5\n"


def test_a_row_cut_short_is_left_out(tmp_path):
    (tmp_path / "metrics.csv").write_text("step,loss\n1,0.5\n2,0.")
    assert read_csv(tmp_path / "metrics.csv") == [{"step": "1", "loss": "0.5"}]


def test_a_table_that_would_fill_the_memory_is_not_read(tmp_path):
    (tmp_path / "rows.csv").write_text("step\n" + "1\n" * MAX_ROWS)
    (tmp_path / "bytes.csv").touch()
    os.truncate(tmp_path / "bytes.csv", MAX_BYTES + 1)
    for name, sentence in (
        ("rows", f"{MAX_ROWS + 1:,} lines, at most"),
        ("bytes", f"{MAX_BYTES + 1:,} bytes, at most"),
    ):
        with pytest.raises(UserError, match=f"{name}.csv cannot be read: {sentence}"):
            read_csv(tmp_path / f"{name}.csv")


def test_rows_past_the_checkpoint_are_dropped_and_new_ones_added(tmp_path):
    file = tmp_path / "metrics.csv"
    MetricsFile(file, ("step", "loss"), 0).append([{"step": 1, "loss": 0.1}, {"step": 2}])
    MetricsFile(file, ("step", "loss"), 1).append([{"step": 2, "loss": 1e-05}])
    assert file.read_text() == "step,loss\n1,0.1\n2,1e-05\n"


def test_rows_can_be_flushed_to_disk(tmp_path, monkeypatch):
    flushed: list[int] = []
    table = MetricsFile(tmp_path / "metrics.csv", ("step",), 0)
    monkeypatch.setattr(os, "fsync", lambda handle: flushed.append(os.fstat(handle).st_ino))
    table.sync()
    assert flushed == [table.file.stat().st_ino]


def test_a_table_removed_in_mid_run_ends_it_and_is_not_begun_without_a_header(tmp_path):
    table = MetricsFile(tmp_path / "metrics.csv", ("step",), 0)
    table.file.unlink()
    with pytest.raises(RunError, match="metrics.csv could not be written: No such file or directory"):
        table.append([{"step": 1}])
    assert not table.file.exists()
