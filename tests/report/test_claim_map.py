import re
from dataclasses import replace

from posenc.analysis.claim_map import advantage
from posenc.report.claim_map import table
from tests.analysis.test_claim_map import SLOW, UNIT, backbone


def cells(runs, column=-1):
    """The ratio of each budget, as the table says it."""
    lines = table(advantage(runs, "rope", "sinusoidal"), UNIT).splitlines()[2:]
    return [re.split(r" \| |\| | \|", line)[1:-1][column] for line in lines]


def with_loss(arm, loss):
    """The backbone, with another loss of one run."""
    return [replace(run, val_loss=loss) if (run.pos, run.seed, run.tokens) == arm else run for run in backbone()]


def test_a_ratio_has_its_interval_from_three_seeds_on():
    assert cells(backbone())[-1] == "1.60 (1.60 to 1.60), 3 seeds"
    assert cells(backbone(seeds=2))[-1] == "1.60, 2 seeds"


def test_where_one_seed_has_no_ratio_each_is_named():
    assert cells(with_loss(SLOW, 2.4))[2] == "1.60, 1.60, RoPE needs under 1 unit in 1 of 3 seeds"
    assert cells(with_loss(SLOW, 0.5))[2] == "1.60, 1.60, RoPE needs over 16 units in 1 of 3 seeds"
    assert cells(backbone())[0] == "RoPE needs under 1 unit"


def test_a_budget_on_which_rope_is_not_yet_trained_gives_a_bound():
    shorter = [run for run in backbone() if run.pos != "rope" or run.tokens <= 8 * UNIT]
    assert cells(shorter)[-1] == "RoPE needs over 8 units"


def test_the_loss_of_rope_is_that_of_its_own_runs():
    """At 4 units one seed of RoPE is missing, and the sinusoid's is far off."""
    runs = [run for run in with_loss(SLOW, 2.4) if (run.pos, run.seed, run.tokens) != ("rope", *SLOW[1:])]
    own = [run.val_loss for run in runs if (run.pos, run.tokens) == ("rope", SLOW[2])]
    assert cells(runs, 3)[2] == f"{sum(own) / 2:.3f}"
