from dataclasses import replace

from posenc.report.claim_map import schemes
from tests.analysis.test_claim_map import UNIT, backbone


def rows(seeds):
    """The cells of the table at 4 units, where t5 ends 0.01 nats below RoPE."""
    runs = backbone(seeds=seeds)
    t5 = [replace(run, pos="t5", val_loss=run.val_loss - 0.01) for run in runs if run.pos == "rope"]
    lines = schemes([*runs, *(run for run in t5 if run.tokens == 4 * UNIT)], 4 * UNIT, UNIT).splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_schemes_are_ordered_by_their_loss_and_compared_with_rope_seed_by_seed():
    t5, rope, sinusoidal = rows(seeds=3)
    assert [t5[0], rope[0], sinusoidal[0]] == ["t5", "rope", "sinusoidal"]
    assert t5[4] == "-0.010 (-0.010 to -0.010)"
    assert rope[4:] == ["", ""]
    assert sinusoidal[5] == "1.60 (1.60 to 1.60), 3 seeds"


def test_two_seeds_have_no_interval():
    assert rows(seeds=2)[0][4] == "-0.010"
