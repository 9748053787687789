"""The table of validation's own error."""

import pytest

from posenc.analysis.results import BlockRow, Result, table
from posenc.errors import UserError
from posenc.report.claim_map.validation_error import validation_error
from posenc.storage.csv_files import read_rows
from tests.analysis.test_claim_map import UNIT, backbone


def row(run: Result, losses: list[float]) -> BlockRow:
    return BlockRow(*run.key, losses)


def written(*losses):
    """The paragraphs on runs of 4 and 8 units, from a row for each."""
    runs = sorted(backbone(seeds=1, budgets=[4, 8]), key=lambda run: (run.tokens, run.pos))
    rows = [row(run, of_run) for run, of_run in zip(runs, losses, strict=True)]
    return validation_error(runs, {}, rows)


def test_each_row_has_the_difference_its_error_and_whether_that_is_under_a_tenth():
    _, text, rows = written([1.5, 2.5], [1.58, 2.62], [1.5, 2.5], [1.5, 2.6])
    settings = "| sinusoidal | lr 0.003 | lr 0.003"
    assert rows.splitlines()[2:] == [
        f"{settings} | {4 * UNIT:,} | 0 | +0.1000 | 0.0200 | no | +0.1356 |",
        f"{settings} | {8 * UNIT:,} | 0 | +0.0500 | 0.0500 | no | +0.1356 |",
    ]
    assert "over 2 blocks" in text
    assert "in 0 of 2 rows" in text
    _, text, rows = written([1.5, 2.5], [1.599, 2.601], [1.5, 2.5], [1.5, 2.6])
    assert [line.split(" | ")[7] for line in rows.splitlines()[2:]] == ["yes", "no"]
    assert "in 1 of 2 rows" in text


def test_without_a_pair_there_is_no_table():
    assert validation_error(backbone(), {}, []) == []


@pytest.mark.parametrize("losses", ["[2.5]", "[2.5, NaN]", "2.5 2.6", ""])
def test_a_run_without_two_blocks_that_can_be_read_is_named_with_its_row(losses, tmp_path):
    file = tmp_path / "blocks.csv"
    file.write_text(table(BlockRow, [row(backbone()[0], [1.5, 2.5])]).replace("[1.5, 2.5]", losses))
    with pytest.raises(UserError, match="blocks.csv, row 1, column losses cannot be read"):
        read_rows(file, BlockRow)
