"""How far runs of different length are compared: unfinished ones, and schemes that were not treated alike."""

from dataclasses import replace

import numpy as np
import pytest

from posenc.report import sentences
from tests.analysis.synthetic import arm, pair, panels, run, sweep


def test_a_scheme_that_died_early_does_not_cut_the_others_short():
    dead = [run("none", seed, upto=20, finished=False) for seed in range(3)]
    (panel,) = panels(sweep(*pair().runs, *dead))
    assert (panel.budget, panel.provisional) == (300, False)
    assert arm(panel, "rope").verdict == "faster"
    assert "none is not compared until one of its runs is finished" in panel.notices


def test_a_scheme_that_was_not_treated_alike_does_not_cut_the_others_short():
    stray = [run("rope", seed, upto=50, setting={"steps": 50}) for seed in range(3)]
    others = [run(scheme, seed) for scheme in ("none", "sinusoidal") for seed in range(3)]
    (panel,) = panels(sweep(*stray, *others))
    assert panel.budget == 300
    assert {one.scheme for one in panel.rivals} == {"none"}


def test_of_a_scheme_that_was_not_treated_alike_only_runs_that_reach_the_budget_are_shown():
    stray = {"batch_size": 8}
    runs = [run("rope", 0, setting=stray), run("rope", 1, upto=20, finished=False, setting=stray)]
    (panel,) = panels(sweep(*runs, run("none", 0), run("sinusoidal", 0)))
    assert [shown.seed for shown in arm(panel, "rope").runs] == [0]
    assert "rope, seed 1 is not finished: step 20 of 300" in panel.notices
    (panel,) = panels(sweep(*runs[1:], run("none", 0), run("sinusoidal", 0)))
    assert {one.scheme for one in panel.arms} == {"none", "sinusoidal"}


def test_a_stray_scheme_measured_only_after_the_others_ended_is_named_and_not_drawn():
    late = run("rope", 0, setting={"eval_every": 400})
    late = replace(late, curve={name: values[-1:] + 100 * (name == "step") for name, values in late.curve.items()})
    (panel,) = panels(sweep(late, run("none", 0), run("sinusoidal", 0, setting={"eval_every": 10})))
    assert {one.scheme for one in panel.arms} == {"none", "sinusoidal"}
    assert any("rope cannot be compared with sinusoidal: eval_every is 400" in notice for notice in panel.notices)


def test_runs_still_going_are_compared_as_far_as_all_have_come():
    runs = [run("rope", 0, pace=2, upto=120, finished=False), run("sinusoidal", 0, upto=200, finished=False)]
    (panel,) = panels(sweep(*runs))
    assert (panel.budget, panel.provisional) == (120, True)
    assert "rope, seed 0 is not finished: step 120 of 300" in panel.notices
    assert arm(panel, "rope").thresholds[-1].in_steps.value == pytest.approx(2, rel=0.05)
    assert "after the first 120 steps" in sentences.verdict(panel)


@pytest.mark.parametrize(("upto", "compared"), [(30, False), (40, True)])
def test_runs_still_going_are_compared_from_four_validations_on(upto, compared):
    (panel,) = panels(sweep(*(run(scheme, 0, upto=upto, finished=False) for scheme in ("rope", "sinusoidal"))))
    assert bool(panel.rivals) == compared
    assert ("fewer than 4 validations: no speed-up can be computed" in panel.notices) != compared


@pytest.mark.parametrize(("upto", "compared"), [(10, False), (20, True), (30, True)])
def test_a_finished_comparison_has_a_result_unless_it_has_a_single_validation(upto, compared):
    """Where both schemes reach whatever they reach."""
    (panel,) = panels(sweep(*(run(scheme, 0, upto=upto) for scheme in ("rope", "sinusoidal"))))
    assert bool(panel.rivals) == compared
    assert ("fewer than 2 validations: no speed-up can be computed" in panel.notices) != compared


def test_a_baseline_that_alone_is_finished_waits_for_the_others():
    runs = [run("rope", 0, upto=120, finished=False), run("none", 0, upto=200, finished=False), run("sinusoidal", 0)]
    (panel,) = panels(sweep(*runs))
    assert (panel.budget, panel.provisional) == (120, True)


def test_once_every_scheme_has_a_finished_run_the_others_are_left_out():
    runs = [run("rope", 1, upto=100, finished=False), run("rope", 0), run("sinusoidal", 0), run("sinusoidal", 1)]
    (panel,) = panels(sweep(*runs))
    assert (panel.budget, panel.provisional) == (300, False)
    assert [one.seed for one in arm(panel, "rope").runs] == [0]


def test_the_run_with_the_fewest_validations_decides_whether_it_is_too_early():
    runs = [run(scheme, 0, upto=30, finished=False) for scheme in ("rope", "sinusoidal")]
    step = np.arange(5.0, 31, 5)
    curve = {name: np.interp(step, runs[0].curve["step"], of) for name, of in runs[0].curve.items()}
    assert panels(sweep(replace(runs[0], curve=curve), runs[1]))[0].rivals == ()


def test_a_scheme_that_cannot_be_compared_is_cut_at_the_budget_too():
    others = [run(scheme, 0, upto=150, finished=False) for scheme in ("rope", "sinusoidal")]
    (panel,) = panels(sweep(run("none", 0, setting={"optim.lr": 0.01}), *others))
    assert [one.last_step for one in arm(panel, "none").runs] == [150]


def test_while_the_baseline_is_unfinished_all_are_compared_as_far_as_it_has_come():
    runs = [run("rope", 0), run("none", 0), run("sinusoidal", 0, upto=200, finished=False)]
    (panel,) = panels(sweep(*runs))
    assert (panel.budget, panel.provisional, len(panel.rivals)) == (200, True, 2)
