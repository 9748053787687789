"""Many settings in one sentence and one table."""

from dataclasses import replace

import numpy as np
import pytest

from posenc.analysis.comparison import compare
from posenc.analysis.convergence import Estimate
from posenc.report import page, sentences, tables, terminal
from posenc.report.export import export
from tests.analysis.synthetic import run, sweep


def settings(*paces: float, upto: int = 300, finished: bool = True):
    """RoPE at a pace against the sinusoid, in a model of its own for each."""
    runs = [
        run(scheme, seed, pace=pace, upto=upto, finished=finished, setting={"model": f"m{number}"})
        for number, rope in enumerate(paces)
        for scheme, pace in (("rope", rope), ("sinusoidal", 1.0))
        for seed in range(3)
    ]
    return sweep(*runs)


def test_many_settings_are_one_sentence_that_counts_the_verdicts():
    assert sentences.overall(compare(settings(2.0, 3.0, 0.5))) == (
        "Against sinusoidal, rope is faster in 2, slower in 1 of 3 settings, with 2.01 to 3.02 times fewer steps where "
        "faster."
    )
    assert sentences.overall(compare(settings(2.0, 3.0, 4.0))) == (
        "Against sinusoidal, rope is faster in 3 of 3 settings, with 2.01 to 4.01 times fewer steps."
    )
    assert sentences.overall(compare(settings(2.0, 3.0))) == ""


def test_how_many_times_the_steps_a_slower_scheme_needs_has_its_interval_from_low_to_high():
    slower = Estimate(0.5, seeds=3, interval=(0.4, 0.8))
    assert sentences._slower(slower, missed=0, level="") == "it needs 2.00 times the steps (1.25–2.50)"


@pytest.mark.parametrize(("missed", "said"), [(2, "not reached (2 of 3)"), (3, "not at all")])
def test_a_loss_that_some_seeds_reach_is_not_said_to_be_reached_by_none(missed, said):
    assert sentences._step(Estimate(float("inf"), seeds=3, missed=missed)) == said


def test_the_headline_of_several_settings_without_the_baseline_is_not_the_loss_of_one():
    alone = [run("rope", seed, setting={"model": f"m{number}"}) for number in range(3) for seed in range(3)]
    assert sentences.headline(compare(sweep(*alone))) == "No scheme is compared with sinusoidal in any of 3 settings"


def test_what_is_only_begun_or_has_diverged_is_said():
    assert sentences.overall(compare(settings(2.0, 2.0, 2.0, upto=200, finished=False))).startswith("So far, against")
    one = settings(2.0, 2.0, 2.0)
    lost = replace(one, diverged=(run("rope", 9, setting={"model": "m0"}),))
    assert "undecided in 1, faster in 2 of 3 settings" in sentences.overall(compare(lost))
    assert "(1 of 10 runs diverged)" in sentences.overall(compare(lost))


def test_a_scheme_that_is_undecided_since_runs_of_the_baseline_diverged_says_so():
    slow = [run("rope", seed, pace=0.5) for seed in range(3)]
    lost = replace(sweep(*slow, *(run("sinusoidal", seed) for seed in range(3))), diverged=(run("sinusoidal", 3),))
    (panel,) = compare(lost).panels
    assert "rope is undecided (1 of the baseline's runs diverged), 0.5" in sentences.verdict(panel)


def test_the_terminal_the_page_and_the_results_show_every_setting(capsys, tmp_path):
    comparison = compare(settings(2.0, 3.0, 0.5))
    terminal.show(comparison)
    assert "All settings" in capsys.readouterr().out
    assert f"<p>{sentences.overall(comparison)}</p>" in page.html(comparison)
    export(comparison, tmp_path / "kept")
    assert "| model=m1 | 3.02x" in (tmp_path / "kept" / "README.md").read_text()


@pytest.mark.parametrize(
    ("factors", "said"),
    [
        ((1.5, 2.0, 2.6), ", not distinguishable from 1."),
        ((2.2, 2.6, 1.6), ", not distinguishable from 1."),
        ((0.3, 1.0, 8.0), " (not determined at 3 seeds)."),
    ],
)
def test_time_that_cannot_be_told_apart_is_not_called_less_or_more(factors, said):
    one = settings(2.0)
    slowed = [
        replace(each, curve={**each.curve, "seconds": each.curve["seconds"] * factors[each.seed]})
        if each.scheme == "rope"
        else each
        for each in one.runs
    ]
    sentence = sentences.verdict(compare(sweep(*slowed)).panels[0])
    assert "times fewer steps" in sentence
    assert "and a wall-clock speed-up" in sentence
    assert sentence.endswith(said)


def test_of_a_busy_machine_s_seconds_nothing_is_said_but_that():
    one = settings(2.0)
    assert "wall-clock speed-up" in sentences.verdict(compare(one).panels[0])
    (busy,) = compare(one, busy=True).panels
    assert "times fewer steps" in sentences.verdict(busy)
    assert "wall-clock" not in sentences.verdict(busy)
    assert "wall-clock" in str(tables.thresholds(compare(one).panels[0]).rows)
    assert "wall-clock" not in str(tables.thresholds(busy).rows)
    assert "are not comparable" in busy.notices[-1]


def test_what_the_intervals_cover_is_said_wherever_there_is_one(capsys, tmp_path):
    comparison = compare(settings(2.0))
    terminal.show(comparison)
    assert sentences.COVERAGE in " ".join(capsys.readouterr().out.split())
    assert sentences.COVERAGE in page.html(comparison)
    export(comparison, tmp_path / "kept")
    assert sentences.COVERAGE in (tmp_path / "kept" / "README.md").read_text()
    assert "not cover other corpora, model sizes or budgets" in sentences.COVERAGE
    assert "posenc.claim_map compares finished runs of several lengths" in sentences.COVERAGE


def test_the_headline_is_that_of_the_fastest():
    paces = {"rope": 2.0, "alibi": 1.5, "sinusoidal": 1.0}
    runs = [run(scheme, seed, pace) for scheme, pace in paces.items() for seed in range(3)]
    assert sentences.headline(compare(sweep(*runs))).startswith("rope reaches")


def test_files_left_of_an_earlier_comparison_are_deleted(tmp_path):
    searched = replace(settings(2.0), search=({"pos": "rope", "optim.lr": 0.01, "best": True},))
    export(compare(searched), tmp_path)
    assert "`search.csv` the trials" in (tmp_path / "README.md").read_text()
    for name in ("heads.png", "lengths.png", "lengths.csv", "notes.txt"):
        (tmp_path / name).touch()
    export(compare(settings(2.0)), tmp_path)
    kept = {file.name for file in tmp_path.iterdir()}
    assert kept == {"README.md", "curves.csv", "curves.png", "curves.svg", "notes.txt", "table.csv"}


def test_the_setting_in_which_each_scheme_ends_lowest_is_said_where_losses_are_of_one_task(capsys, tmp_path):
    rates = [
        run(scheme, seed, pace=pace, setting={"optim.lr": rate})
        for rate, pace in ((0.001, 1.0), (0.003, 3.0), (0.009, 2.0))
        for scheme, seed in (("rope", 0), ("rope", 1), ("sinusoidal", 0))
    ]
    comparison = compare(sweep(*rates))
    loss = 2 + 2 * np.exp(-9)
    said = (
        f"Lowest validation loss: rope {loss:.3f} at optim.lr=0.003 (2 seeds); sinusoidal {loss:.3f} at optim.lr=0.003"
    )
    assert sentences.lowest(comparison).startswith(said)
    terminal.show(comparison)
    export(comparison, tmp_path)
    for shown in (capsys.readouterr().out, page.html(comparison), (tmp_path / "README.md").read_text()):
        assert "Lowest validation loss: rope" in shown
    assert sentences.lowest(compare(settings(2.0))) == ""
    for key in ("objective", "text"):
        others = [replace(one, setting={**one.setting, key: str(one.setting["optim.lr"])}) for one in rates]
        assert sentences.lowest(compare(sweep(*others))) == ""
