"""The table of what models copy on the claim map's page."""

from dataclasses import replace

from posenc.analysis.results import CopyingRow, RemovedHeadRow
from posenc.analysis.run_key import BACKBONE
from posenc.report.claim_map.copying import copying, removed_heads

OF_BYTES = CopyingRow(
    *("text", BACKBONE, "rope", 0, 4096, 0.003, "", "10000"),
    first=2.0, second=1.5, new=1.9, seen=1.7, share=0.186, own=1.8, foreign=1.9,
)  # fmt: skip


def test_a_run_with_one_factor_changed_has_a_row_of_its_own_with_that_factor():
    *_, table = copying([OF_BYTES, replace(OF_BYTES, setting="tokenizer=bpe", share=0.07)])
    gained = "4,096 | 0 | -0.50 | 1.900 | 1.700"
    assert f"| rope | lr 0.003, base 10000 | {gained} | 19% |" in table
    assert f"| rope | lr 0.003, base 10000; tokenizer=bpe | {gained} | 7% |" in table


def test_of_the_heads_removed_the_two_that_matter_most_are_shown_where_there_are_any():
    removed = [
        RemovedHeadRow(*arm, layer, head, first=2.0, second=second, new=1.9, seen=1.7)
        for seed, heads in ((0, {(0, 0): 1.5, (2, 1): 1.6, (3, 2): 1.9, (3, 4): 1.7}), (1, {(0, 0): 1.4}))
        for arm in [("text", BACKBONE, "rope", seed, 4096, 0.003, "", "10000")]
        for (layer, head), second in heads.items()
    ]
    *_, table = removed_heads(removed)
    assert "| 4,096 | 0 | -0.50 | -0.10 | -0.30 | 3.2 | 1.900 | 1.900 | 1.700 | 1.700 |" in table
