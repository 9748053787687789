"""Our ratio beside the paper's digitised one, at the same shares of the baseline's budget."""

import pytest

from posenc.analysis import page, tables
from posenc.analysis.comparison import compare
from posenc.analysis.published import PUBLISHED, ROFORMER
from posenc.analysis.reproduction import reproduction
from tests.analysis.synthetic import pair, run, sweep

MASKED = {"objective": "masked", "attention": "softmax"}
LINEAR = {"objective": "causal", "attention": "linear"}


def both(setting: dict[str, str], seeds: int = 3):
    return sweep(
        *(run("rope", seed, pace=2.0, setting=setting) for seed in range(seeds)),
        *(run("sinusoidal", seed, setting=setting) for seed in range(seeds)),
    )


def test_the_paper_s_ratios_are_those_of_its_digitised_steps():
    ratios = [[round(point.ratio, 2) for point in curves.points] for curves in ROFORMER]
    assert ratios == [[1.37, 1.44, 1.58, 2.19], [1.54, 2.23]]
    fractions = [[round(fraction, 3) for fraction in curves.fractions()] for curves in ROFORMER]
    assert fractions == [[0.066, 0.131, 0.289, 1.0], [0.349, 1.0]]
    assert PUBLISHED[3].result == "2.19x (114k against 250k steps)"


@pytest.mark.parametrize(("setting", "figure"), [(MASKED, 0), (LINEAR, 1)])
def test_runs_that_repeat_a_figure_stand_beside_it_at_its_shares_of_the_budget(setting, figure):
    (panel,) = compare(both(setting))
    beside = reproduction(panel)
    assert beside is not None
    assert beside.curves is ROFORMER[figure]
    assert [row.fraction for row in beside.rows] == ROFORMER[figure].fractions()
    assert beside.rows[-1].ours["rope"].value == pytest.approx(2, rel=0.05)
    mark = panel.rivals[0].marks[-1]
    assert beside.rows[-1].level == mark.level
    assert beside.rows[-1].ours["rope"].value == mark.in_steps.value


@pytest.mark.parametrize("setting", [{}, {"objective": "causal", "attention": "softmax"}])
def test_runs_that_repeat_no_figure_stand_beside_none(setting):
    (panel,) = compare(both(setting))
    assert reproduction(panel) is None


def test_runs_that_go_on_stand_beside_none():
    going_on = sweep(*(run(scheme, 0, finished=False, upto=200, setting=MASKED) for scheme in ("rope", "sinusoidal")))
    (panel,) = compare(going_on)
    assert reproduction(panel) is None


def test_the_page_and_the_terminal_show_it(capsys):
    one = both(MASKED)
    panels = compare(one)
    assert "Beside the paper" in page.html(one, panels)
    tables.show(panels)
    shown = capsys.readouterr().out
    assert "Beside the paper (Su et al. 2021, figure 3, left)" in shown
    assert "2.19x" in shown
    assert "Beside the paper" not in page.html(pair(), compare(pair()))
