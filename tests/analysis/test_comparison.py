"""Which runs may be compared, and what comes out."""

import re
from dataclasses import replace

import numpy as np
import pytest

from posenc.analysis.comparison import compare
from posenc.errors import UserError
from posenc.report import formatting, sentences
from tests.analysis.synthetic import arm, pair, panels, run, sweep, with_lengths


def test_a_scheme_at_twice_the_pace_is_twice_as_fast_at_every_threshold():
    (panel,) = panels(pair())
    rope = arm(panel, "rope")
    assert [threshold.fraction for threshold in rope.thresholds] == [0.25, 0.5, 0.75, 1.0]
    for threshold in rope.thresholds:
        assert threshold.in_steps.value == pytest.approx(2, rel=0.03)
        assert threshold.in_seconds.value == pytest.approx(2, rel=0.03)
    assert rope.verdict == "faster"
    assert rope.thresholds[-1].steps.value == pytest.approx(150, abs=3)
    assert arm(panel, "sinusoidal").thresholds[-1].steps.value == pytest.approx(300)
    assert "rope is faster" in sentences.verdict(panel)
    assert rope.headline == rope.thresholds[-1]


def test_a_slower_scheme_never_gets_to_the_baseline_s_last_loss_and_still_has_a_number():
    (panel,) = panels(pair(pace=0.5))
    rope = arm(panel, "rope")
    assert rope.thresholds[-1].steps.missed == 3
    assert rope.headline.in_steps.value == pytest.approx(0.5, rel=0.03)
    assert rope.verdict == "slower"
    assert "not reached" in formatting.steps(rope.thresholds[-1].steps)
    assert "rope is slower: it never reaches that loss; to 2." in sentences.verdict(panel)
    assert "times the steps" in sentences.verdict(panel)


def test_schemes_whose_seeds_disagree_are_not_distinguishable():
    mixed = [run("rope", seed, pace=pace) for seed, pace in enumerate((0.8, 1.0, 1.3))]
    (panel,) = panels(sweep(*mixed, *(run("sinusoidal", seed) for seed in range(3))))
    assert arm(panel, "rope").verdict == "not distinguishable"


def test_seeds_are_compared_in_pairs():
    """The seeds differ more than the schemes: only pairs show a speed-up that is the same with each."""
    runs = [
        run(scheme, seed, pace=pace * 4**seed) for seed in range(3) for scheme, pace in (("rope", 2), ("sinusoidal", 1))
    ]
    (panel,) = panels(sweep(*runs))
    estimate = arm(panel, "rope").thresholds[0].in_steps
    assert estimate.value == pytest.approx(2, rel=0.15)
    assert estimate.interval[0] > 1.2


def test_learning_rates_that_a_search_chose_make_it_best_against_best():
    found = replace(pair(setting={"optim.lr": 0.01}), search=({"pos": "rope", "optim.lr": 0.01, "best": True},))
    (panel,) = panels(found)
    assert panel.tuned
    assert arm(panel, "rope").verdict == "faster"
    assert not panels(pair())[0].tuned


def test_learning_rates_that_differ_without_a_search_are_no_fair_comparison():
    (panel,) = panels(pair(setting={"optim.lr": 0.01}))
    assert panel.rivals == ()
    assert "rope cannot be compared with sinusoidal: optim.lr is 0.01, and 0.003 for sinusoidal" in panel.notices


def test_a_scheme_that_cannot_be_compared_sets_no_figure_of_the_others():
    bytewise = {"tokenizer": "bytes", "context": 128}
    stray = run("none", 0, pace=3.0, setting=bytewise)
    stray = replace(with_lengths(stray, 0.1), summary={**stray.summary, "bigram_loss": 1.0})
    others = [with_lengths(one, 0.1) for one in pair().runs]
    (alone,), (panel,) = panels(sweep(*others)), panels(sweep(*others, stray))
    assert [arm.scheme for arm in panel.arms] == ["none", "rope", "sinusoidal"]
    assert [arm.scheme for arm in panel.comparable] == ["rope", "sinusoidal"]
    assert (panel.ngram, panel.heads) == (alone.ngram, alone.heads)
    assert alone.extrapolation is not None
    assert panel.extrapolation is not None
    assert panel.extrapolation.lengths == alone.extrapolation.lengths


def test_schemes_that_differ_in_the_same_way_share_a_notice():
    strays = [run(scheme, 0, setting={"optim.lr": 0.01}) for scheme in ("rope", "alibi", "t5")]
    (panel,) = panels(sweep(*strays, run("none", 0), run("sinusoidal", 0)))
    reason = "cannot be compared with sinusoidal: optim.lr is 0.01, and 0.003 for sinusoidal"
    assert [notice for notice in panel.notices if "cannot" in notice] == [f"rope, alibi, t5 {reason}"]


def test_a_precision_known_of_one_seed_only_is_known_of_the_scheme():
    runs = [run("rope", 0, finished=False), run("rope", 1, setting={"precision": "bf16-mixed"}), run("sinusoidal", 1)]
    runs[0] = replace(runs[0], setting={key: value for key, value in runs[0].setting.items() if key != "precision"})
    (panel,) = panels(sweep(*runs))
    assert any("precision is bf16-mixed, and 32-true" in notice for notice in panel.notices)


def test_of_a_seed_trained_twice_the_newest_finished_run_counts():
    first, again = run("rope", 0), replace(run("rope", 0, pace=3), source="rope/0-2")
    stopped = replace(run("rope", 0, upto=20, finished=False), source="rope/0-3")
    (panel,) = panels(sweep(again, stopped, first, run("sinusoidal", 0)))
    assert [kept.source for kept in arm(panel, "rope").runs] == ["rope/0-2"]
    tenth = replace(first, source="rope/0-10")
    (panel,) = panels(sweep(tenth, again, run("sinusoidal", 0)))
    assert [kept.source for kept in arm(panel, "rope").runs] == ["rope/0-10"]
    dated = replace(again, summary={**again.summary, "date": "2026-11-25"})
    (panel,) = panels(sweep(dated, tenth, run("sinusoidal", 0)))
    assert [kept.source for kept in arm(panel, "rope").runs] == ["rope/0-2"]
    assert "rope, seed 0 exists more than once; rope/0-2, the newest finished one, is used" in panel.notices


def test_of_a_seed_trained_twice_on_one_day_the_last_listed_counts():
    """W&B lists older runs first, and its ids have no order."""
    runs = [
        replace(run("rope", 0), source=f"https://wandb.ai/team/posenc/runs/{name}") for name in ("ff00aa", "01c3d4")
    ]
    (panel,) = panels(sweep(*runs, run("sinusoidal", 0)))
    assert [kept.source for kept in arm(panel, "rope").runs] == ["https://wandb.ai/team/posenc/runs/01c3d4"]


def test_a_scheme_that_lost_runs_is_not_called_faster_for_the_rest_of_them():
    found = replace(pair(), diverged=(run("rope", 3), run("rope", 4)))
    (panel,) = panels(found)
    assert (len(arm(panel, "rope").runs), arm(panel, "rope").started) == (3, 5)
    assert arm(panel, "rope").verdict == "undecided"
    assert "2 of 5 runs diverged" in sentences.verdict(panel)


def test_bits_per_byte_are_those_of_the_loss_beside_them():
    (panel,) = panels(sweep(run("rope", 0), run("sinusoidal", 0, upto=150, finished=False)))
    one = arm(panel, "rope")
    assert panel.budget == 150
    assert one.bits.value == pytest.approx(one.loss.value / 0.693)


def test_fewer_but_slower_steps_do_not_look_better_than_they_are():
    slow = [run("rope", seed, pace=1.2) for seed in range(3)]
    for one in slow:
        one.curve["seconds"][:] *= 2
    (panel,) = panels(sweep(*slow, *(run("sinusoidal", seed) for seed in range(3))))
    assert "1.20 times fewer steps" in sentences.verdict(panel)
    assert "but a wall-clock speed-up of only 0.60 (" in sentences.verdict(panel)


def test_a_scheme_that_is_faster_and_ends_higher_is_faster_to_a_loss_that_both_reach():
    found = pair()
    for one in (one for one in found.runs if one.scheme == "rope"):
        one.curve["val_loss"][:] = np.maximum(one.curve["val_loss"], 2.5)
    comparison = compare(found)
    assert "rope is faster to 2.500, the lowest that both reach, with 1.97" in sentences.verdict(comparison.panels[0])
    headline = sentences.headline(comparison)
    assert headline == "rope needs 1.97 times fewer steps than sinusoidal to their lowest common loss"


@pytest.mark.parametrize(("key", "value"), [("steps", 600), ("data.path", "other.txt"), ("tokenizer", "bpe")])
def test_runs_that_were_not_treated_alike_are_not_compared_and_it_says_why(key, value):
    runs = [
        run("rope", 0, setting={key: value}),
        run("sinusoidal", 0, setting={key: "mine"}),
        run("none", 0, setting={key: "mine"}),
    ]
    (panel,) = panels(sweep(*runs))
    assert f"rope cannot be compared with sinusoidal: {key} is {value}, and mine for sinusoidal" in panel.notices
    assert arm(panel, "rope").thresholds == ()
    assert arm(panel, "none").thresholds != ()  # what is sound still appears


def test_a_missing_baseline_is_named_with_what_there_is():
    (panel,) = panels(sweep(run("rope", 0), run("rope", 1), run("none", 0)))
    assert any(
        "the baseline sinusoidal is missing (found rope, none): no speed-up can be computed" in notice
        for notice in panel.notices
    )
    assert re.match(r"Validation loss after 300 steps: .*rope \d\.\d{3} \(2 seeds\)", sentences.verdict(panel))


def test_one_seed_gets_no_interval_and_no_verdict():
    (panel,) = panels(pair(seeds=1))
    assert "one seed only: no verdict with fewer than 3" in panel.notices
    assert arm(panel, "rope").verdict == "no verdict"
    assert "no verdict from 1 seed" in sentences.verdict(panel)
    assert "95 %" not in sentences.verdict(panel)


def test_two_seeds_give_figures_without_intervals_and_no_verdict():
    (panel,) = panels(pair(seeds=2))
    assert arm(panel, "rope").headline.in_steps.interval is None
    assert arm(panel, "rope").verdict == "no verdict"
    assert "2 seeds only: no verdict with fewer than 3" in panel.notices
    said = sentences.verdict(panel)
    assert said.endswith("rope has a speed-up in steps of 2.00x, no verdict from 2 seeds.")
    assert "95 %" not in said
    assert "faster" not in said


def test_an_interval_of_more_than_a_factor_of_ten_is_not_printed_and_decides_nothing():
    wild = [run("rope", seed, pace=pace) for seed, pace in enumerate((0.9, 2.0, 6.0))]
    (panel,) = panels(sweep(*wild, *(run("sinusoidal", seed) for seed in range(3))))
    rope = arm(panel, "rope")
    low, high = rope.headline.in_steps.interval
    assert high / low > 10
    assert rope.verdict == "not determined"
    assert formatting.times(rope.headline.in_steps).endswith("x (not determined at 3 seeds)")
    assert "rope has a speed-up in steps of" in sentences.verdict(panel)
    unknown = np.isnan(rope.speed_ups.low)
    assert unknown.any()
    assert (unknown == np.isnan(rope.speed_ups.high)).all()
    assert not (rope.speed_ups.high[~unknown] > 10 * rope.speed_ups.low[~unknown]).any()


def test_a_baseline_asked_for_that_is_not_there_is_refused_with_those_that_are():
    with pytest.raises(
        UserError, match=r"^--baseline=ropey has no run in made-up that can be compared; choose from rope, sinusoidal$"
    ):
        compare(pair(), "ropey")


def test_a_baseline_whose_runs_have_diverged_is_refused_with_that_notice():
    found = replace(sweep(run("rope", 0)), notices=("learned, seed 0 diverged",))
    with pytest.raises(UserError, match=r"that can be compared; choose from rope; learned, seed 0 diverged$"):
        compare(found, "learned")


def test_runs_that_share_no_seed_are_not_compared():
    (panel,) = panels(sweep(run("rope", 1), run("sinusoidal", 0)))
    assert "rope and sinusoidal share no seed: no speed-up can be computed" in panel.notices


def test_a_run_that_diverged_counts_in_its_own_setting_alone():
    runs = [run(scheme, 0, setting={"model": model}) for model in ("a", "b") for scheme in ("rope", "sinusoidal")]
    found = panels(replace(sweep(*runs), diverged=(run("rope", 1, setting={"model": "b"}),)))
    assert [arm(panel, "rope").diverged for panel in found] == [0, 1]


def test_seconds_from_two_machines_are_flagged():
    (panel,) = panels(sweep(run("rope", 0, hardware="fast"), run("sinusoidal", 0, hardware="slow")))
    assert "seconds are not comparable: the runs were on fast and slow" in panel.notices
    assert not panel.one_machine
    assert panels(pair())[0].one_machine


@pytest.mark.parametrize(
    ("summary", "machine"), [({"devices": 2}, "2 x one"), ({"compiled": True}, "one, compiled"), ({"devices": 1}, None)]
)
def test_seconds_of_more_devices_or_of_a_compiled_model_are_flagged(summary, machine):
    rope = run("rope", 0)
    other = replace(rope, summary={**rope.summary, **summary})
    (panel,) = panels(sweep(other, run("sinusoidal", 0)))
    assert panel.one_machine == (machine is None)
    flagged = [notice for notice in panel.notices if notice.startswith("seconds are not comparable: the runs were on")]
    assert flagged == (
        []
        if machine is None
        else [f"seconds are not comparable: the runs were on {' and '.join(sorted((machine, 'one')))}"]
    )


def test_seconds_of_a_run_resumed_on_another_machine_are_flagged():
    rope = run("rope", 0)
    resumed = replace(rope, summary={**rope.summary, "machines": ["one", "two"]})
    (panel,) = panels(sweep(resumed, run("sinusoidal", 0)))
    assert "seconds are not comparable: the runs were on one and two" in panel.notices


def test_the_machine_of_a_run_trained_again_is_that_of_the_newer():
    rope, newer = run("rope", 0, hardware="slow"), run("rope", 0)
    newer = replace(newer, summary={**newer.summary, "date": "2099-01-01"})
    (panel,) = panels(sweep(rope, newer, run("sinusoidal", 0)))
    assert panel.one_machine


def test_a_scheme_without_a_common_seed_counts_its_diverged_runs():
    found = replace(sweep(run("rope", 1), run("sinusoidal", 0)), diverged=(run("rope", 2),))
    assert arm(panels(found)[0], "rope").started == 2


def test_a_baseline_that_lost_runs_does_not_win_by_the_rest():
    found = replace(pair(pace=0.5), diverged=(run("sinusoidal", 3),))
    assert arm(panels(found)[0], "rope").verdict == "undecided"


def test_a_second_machine_of_one_seed_makes_seconds_incomparable():
    runs = [run("rope", 0), run("rope", 1, hardware="slow"), run("sinusoidal", 0), run("sinusoidal", 1)]
    assert not panels(sweep(*runs))[0].one_machine


def test_a_scheme_with_one_seed_does_not_deny_the_others_their_verdict():
    runs = [run(scheme, seed) for scheme in ("rope", "sinusoidal") for seed in range(3)]
    (panel,) = panels(sweep(*runs, run("none", 0)))
    assert not any("only: no verdict" in notice for notice in panel.notices)


@pytest.mark.parametrize(
    ("searched", "key", "compared"),
    [
        ("optim.lr", "optim.lr", True),
        ("optim.lr", "optim.weight_decay", False),
        ("optim.lr", "steps", False),
        ("schedule", "schedule.min_lr_ratio", True),
        ("batch_size", "batch_size", False),
        ("tokenizer", "tokenizer.vocab_size", False),
    ],
)
def test_a_search_excuses_what_it_has_searched_but_neither_another_task_nor_another_batch(searched, key, compared):
    runs = [run(pos, seed, setting={key: n}) for n, pos in enumerate(("rope", "sinusoidal"), 1) for seed in range(3)]
    found = replace(sweep(*runs), search=({"pos": "rope", searched: "one", "best": True},))
    assert bool(panels(found)[0].rivals) is compared


def test_the_thresholds_of_a_panel_are_those_of_the_baseline_s_seeds():
    """And not of the seeds that the lowest rival shares with it."""
    runs = [run(scheme, seed, pace) for scheme, pace in (("sinusoidal", 1.0), ("learned", 1.1)) for seed in range(3)]
    panel = panels(sweep(*runs, run("rope", 2, 2.0)))[0]
    assert [one.scheme for one in panel.rivals] == ["rope", "learned"]
    levels = [[round(one.level, 6) for one in of.thresholds] for of in (panel, arm(panel, "learned"))]
    assert levels[0] == levels[1]
    assert levels[0] != [round(one.level, 6) for one in arm(panel, "rope").thresholds]
