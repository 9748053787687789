"""The table of what models copy on the claim map's page."""

from posenc.analysis.results import BACKBONE, CopyingRow
from posenc.report.copying import copying

RUN = {"corpus": "text", "pos": "rope", "seed": 0, "tokens": 4096, "lr": 0.003, "scale": "", "base": "10000"}
LOSSES = {"first": 2.0, "second": 1.5, "new": 1.9, "seen": 1.7, "own": 1.8, "foreign": 1.9}


def test_a_run_with_one_factor_changed_has_a_row_of_its_own_with_that_factor():
    bytes_, bpe = (
        CopyingRow(**RUN, setting=setting, **LOSSES, share=share)
        for setting, share in ((BACKBONE, 0.186), ("tokenizer=bpe", 0.07))
    )
    *_, table = copying([bytes_, bpe])
    gained = "4,096 | 0 | -0.50 | 1.900 | 1.700"
    assert f"| rope | lr 0.003, base 10000 | {gained} | 19% |" in table
    assert f"| rope | lr 0.003, base 10000; tokenizer=bpe | {gained} | 7% |" in table
