import re
from dataclasses import replace

from posenc.analysis.claim_map import FAMILIES, advantage
from posenc.analysis.corpus_map import backbone_of
from posenc.analysis.held_out import held_out
from posenc.analysis.study import Study
from posenc.report.claim_map.page import write_up
from posenc.report.claim_map.tables import levels, on_test_split, one_factor, schemes, table
from tests.analysis.test_claim_map import SLOW, UNIT, backbone
from tests.analysis.test_held_out import evaluated
from tests.conftest import ROOT


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


def test_a_budget_whose_loss_rope_never_reaches_is_named_where_the_others_are_summed_up():
    shorter = [run for run in backbone() if run.pos != "rope" or run.tokens <= 8 * UNIT]
    said = [
        text for text in write_up(shorter, advantage(shorter, "rope", "sinusoidal"), {}, UNIT) if "left out" in text
    ]
    assert len(said) == 1
    assert said[0].startswith("With 19,660,800 tokens RoPE's largest budget does not reach")
    assert not any(
        "left out" in text for text in write_up(backbone(), advantage(backbone(), "rope", "sinusoidal"), {}, UNIT)
    )


def test_the_loss_of_rope_is_that_of_its_own_runs():
    """At 4 units one seed of RoPE is missing, and the sinusoid's is far off."""
    runs = [run for run in with_loss(SLOW, 2.4) if (run.pos, run.seed, run.tokens) != ("rope", *SLOW[1:])]
    own = [run.val_loss for run in runs if (run.pos, run.tokens) == ("rope", SLOW[2])]
    assert cells(runs, 3)[2] == f"{sum(own) / 2:.3f}"


def schemes_at_4_units(seeds):
    """The cells of the table at 4 units, where t5 ends 0.01 nats below RoPE."""
    runs = backbone(seeds=seeds)
    t5 = [replace(run, pos="t5", val_loss=run.val_loss - 0.01) for run in runs if run.pos == "rope"]
    lines = schemes([*runs, *(run for run in t5 if run.tokens == 4 * UNIT)], 4 * UNIT, UNIT).splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_schemes_are_ordered_by_their_loss_and_compared_with_rope_seed_by_seed():
    t5, rope, sinusoidal = schemes_at_4_units(seeds=3)
    assert [t5[0], rope[0], sinusoidal[0]] == ["t5", "rope", "sinusoidal"]
    assert [t5[1], rope[1], sinusoidal[1]] == ["relative", "relative", "additive"]
    assert t5[5] == "-0.010 (-0.010 to -0.010)"
    assert rope[5:] == ["", ""]
    assert sinusoidal[6] == "1.60 (1.60 to 1.60), 3 seeds"


def test_two_seeds_of_a_scheme_have_no_interval():
    assert schemes_at_4_units(seeds=2)[0][5] == "-0.010"


def test_a_setting_with_one_difference_has_a_row_for_each_baseline():
    runs = [run for run in backbone(seeds=2) if run.pos == "rope" or run.tokens == 16 * UNIT]
    learned = [replace(run, pos="learned", val_loss=run.val_loss + 0.1) for run in runs if run.pos == "sinusoidal"]
    assert one_factor({}, UNIT) == []
    _, text = one_factor({"model.width=64": [*runs, *learned]}, UNIT)
    rows = cells_of(text.splitlines()[2:])
    assert [row[:3] for row in rows] == [["model.width=64", pos, "19,660,800"] for pos in ("learned", "sinusoidal")]
    assert rows[1][3:] == cells_of(table(advantage(runs, "rope", "sinusoidal"), UNIT).splitlines()[-1:])[0][2:]


def test_the_tokens_of_the_baseline_to_a_loss_of_rope_are_a_table():
    _, _, text = levels(with_loss(("rope", 1, 16 * UNIT), 1.0), {3: 1.9, 5: 0.5})
    rows = {row[0] + row[2]: row for row in cells_of(text.splitlines()[2:])}
    assert rows["RoPE's final loss4.9M"][3:] == ["7.9M", "1.60 (1.60 to 1.60), 3 seeds"]
    assert rows["RoPE's final loss19.7M"][3:] == ["19.7M", "over 1.00, 3 seeds"]
    assert [row[4] for row in rows.values() if row[0] == "3-gram model"] == ["1.60 (1.60 to 1.60), 3 seeds"]
    assert not any(row[0] == "5-gram model" for row in rows.values())  # no run is as good
    assert levels([], {}) == []


def cells_of(lines):
    return [[cell.strip(" `") for cell in line.strip("|\n").split("|")] for line in lines]


def test_the_additive_family_is_the_schemes_with_an_encoding():
    hooks = {row[0]: row[2] for row in cells_of((ROOT / "docs/schemes.md").read_text().splitlines()) if len(row) == 5}
    of_hook = {"encoding": "additive", "": "no positions"}
    schemes = {pos: of_hook[hook] for pos, hook in hooks.items() if hook in of_hook}
    assert schemes == FAMILIES


def test_the_page_of_the_schemes_has_the_losses_of_the_claim_map():
    study = Study(ROOT / "results/claim-map")
    corpus, *_ = study.corpora
    runs, _ = backbone_of(study, corpus)
    unit = min(run.tokens for run in runs)
    measured = {row[0]: [row[5], row[3]] for row in cells_of(schemes(runs, 4 * unit, unit).splitlines()[2:])}
    _, section = (ROOT / "docs/schemes.md").read_text().split("## Loss and cost")
    _, *shown = cells_of(line for line in section.split("## ")[0].splitlines() if line.startswith("| `"))
    assert {row[0]: row[1:3] for row in shown} == measured


def test_the_standard_error_is_the_median_over_runs():
    runs = [replace(run, val_loss_se=0.03) if run.seed == 2 else run for run in backbone()]
    assert any("standard error of 0.0100 nats" in text for text in write_up(runs, (), {}, UNIT))


def test_a_range_is_from_the_lowest_to_the_highest():
    runs = [replace(run, val_loss=round(run.val_loss + 0.1 * run.seed, 6)) for run in backbone()]
    mean, low, high = (f"{2.2 - 0.8 + 0.103 * seed:.3f}" for seed in (1, 0, 2))
    assert cells(runs, 2)[-1] == f"{mean} ({low} to {high})"


def test_n_on_the_test_split_is_beside_that_on_validation():
    runs = backbone(budgets=(1, 2))
    rows = [evaluated(run, 0.2 * (run.pos == "sinusoidal")) for run in runs]
    *_, page = on_test_split(held_out(runs, {}, rows), UNIT)
    last = re.split(r" \| |\| | \|", page.splitlines()[-1])[1:-1]
    assert last[:2] == ["backbone", "2"]
    assert last[-2:] == ["RoPE needs under 1 unit", "1.60 (1.60 to 1.60), 3 seeds"]
    assert on_test_split({}, UNIT) == []
