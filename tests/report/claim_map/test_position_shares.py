"""The table of position shares."""

from posenc.analysis.results import ShareRow
from posenc.report.claim_map.tables import position_shares


def share(seed, first, last, tokens=4096):
    return ShareRow("wiki", "backbone", "sinusoidal", seed, tokens, 0.003, "0.1", "10000", first, last)


def test_an_arm_has_one_row_with_the_means_over_its_seeds():
    *_, text = position_shares([share(0, 0.8, 0.4), share(0, 0.7, 0.3, tokens=8192), share(1, 0.6, 0.3)])
    arm = "| sinusoidal | lr 0.003, scale 0.1, base 10000"
    assert text.splitlines()[2:] == [f"{arm} | 4,096 | 0, 1 | 0.70 | 0.35 |", f"{arm} | 8,192 | 0 | 0.70 | 0.30 |"]


def test_without_shares_there_is_no_table():
    assert position_shares([]) == []
