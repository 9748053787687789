from posenc.analysis.claim_map import advantage
from posenc.report.claim_map import table
from tests.analysis.test_claim_map import UNIT, backbone, result


def cells(runs):
    """The ratio of each budget, as the table says it."""
    return [
        line.removesuffix(" |").split(" | ")[-1]
        for line in table(advantage(runs, "rope", "sinusoidal"), UNIT).splitlines()[2:]
    ]


def test_a_ratio_has_its_interval_from_three_seeds_on():
    assert cells(backbone())[-1] == "1.60 (1.60 to 1.60), 3 seeds"
    assert cells(backbone(seeds=2))[-1] == "1.60, 2 seeds"


def test_where_one_seed_has_no_ratio_each_is_named():
    slow = result("sinusoidal", 4 * UNIT, seed=2, loss=2.4)  # RoPE is below that after one unit
    runs = [run for run in backbone() if (run.pos, run.seed, run.tokens) != ("sinusoidal", 2, 4 * UNIT)]
    assert cells([*runs, slow])[2] == "1.60, 1.60, RoPE needs under 1 unit in 1 of 3 seeds"
    assert cells(backbone())[0] == "RoPE needs under 1 unit"
