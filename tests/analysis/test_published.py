"""Our ratio beside the paper's digitised one, at the same shares of the baseline's budget."""

from dataclasses import replace

import pytest

from posenc.analysis.comparison import compare
from posenc.analysis.published import ROFORMER
from posenc.report import page, terminal
from tests.analysis.synthetic import pair, panels, run, sweep

MASKED = {"objective": "masked", "attention": "softmax"}
LINEAR = {"objective": "causal", "attention": "linear"}


def both(setting: dict[str, str], seeds: int = 3):
    return sweep(
        *(run("rope", seed, pace=2.0, setting=setting) for seed in range(seeds)),
        *(run("sinusoidal", seed, setting=setting) for seed in range(seeds)),
    )


def test_the_paper_s_ratios_are_those_of_its_digitised_steps():
    for curves in ROFORMER:
        for point in curves.points:
            assert point.ratio == pytest.approx(point.other / point.rotary, rel=0.02)
    fractions = [[round(fraction, 3) for fraction in curves.fractions()] for curves in ROFORMER]
    assert fractions == [[0.066, 0.131, 0.289, 1.0], [0.349, 1.0]]


@pytest.mark.parametrize(("setting", "figure"), [(MASKED, 0), (LINEAR, 1)])
def test_runs_that_repeat_a_figure_stand_beside_it_at_its_shares_of_the_budget(setting, figure):
    (panel,) = panels(both(setting))
    beside = panel.reproduction
    assert beside is not None
    assert beside.curves is ROFORMER[figure]
    ours = beside.ours["rope"]
    assert [threshold.fraction for threshold in ours] == ROFORMER[figure].fractions()
    (rope,) = panel.rivals
    assert ours[-1] == rope.thresholds[-1]
    assert ours[-1].in_steps.value == pytest.approx(2, rel=0.05)


@pytest.mark.parametrize(
    "setting",
    [{}, {"objective": "causal", "attention": "softmax"}, {"objective": "masked", "attention": "linear"}],
)
def test_runs_that_repeat_no_figure_have_no_reproduction(setting):
    (panel,) = panels(both(setting))
    assert panel.reproduction is None


def test_runs_with_another_baseline_than_the_paper_s_other_arm_have_no_reproduction():
    (panel,) = panels(both(MASKED), baseline="rope")
    assert panel.rivals
    assert panel.reproduction is None


def test_what_lies_before_the_first_validation_is_left_out():
    late = [replace(one, curve={name: values[4:] for name, values in one.curve.items()}) for one in both(MASKED).runs]
    (panel,) = panels(sweep(*late))
    beside = panel.reproduction
    assert beside is not None
    assert [point.level for point in beside.points] == ["loss 2.5", "its final loss"]
    assert [round(threshold.fraction, 3) for threshold in beside.ours["rope"]] == [
        0.289,
        1.0,
    ]  # the first is at step 50 of 300


def test_runs_that_have_not_ended_have_no_reproduction():
    going_on = sweep(*(run(scheme, 0, finished=False, upto=200, setting=MASKED) for scheme in ("rope", "sinusoidal")))
    (panel,) = panels(going_on)
    assert panel.reproduction is None


def test_the_page_and_the_terminal_show_the_comparison_with_the_paper(capsys):
    comparison = compare(both(MASKED))
    assert "Comparison with the paper" in page.html(comparison)
    terminal.show(comparison)
    shown = capsys.readouterr().out
    assert "Comparison with the paper (Su et al. 2021, figure 3, left)" in shown
    assert "1.58x" in shown
    assert "Comparison with the paper" not in page.html(compare(pair()))


def test_a_scheme_that_cannot_be_compared_does_not_remove_the_comparison_with_the_paper():
    (panel,) = panels(sweep(*both(MASKED).runs, run("none", 0, setting={**MASKED, "objective": "causal"})))
    assert panel.reproduction is not None
