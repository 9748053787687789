"""Many settings in one sentence and one table."""

from dataclasses import replace

from posenc.analysis.comparison import compare, without_seconds
from posenc.report import formatting, page, tables
from posenc.report.export import keep
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
    assert formatting.overall(compare(settings(2.0, 3.0, 0.5))) == (
        "Against sinusoidal, rope is faster in 2, slower in 1 of 3 settings, with 2.01 to 3.02 times fewer steps where "
        "faster."
    )
    assert formatting.overall(compare(settings(2.0, 3.0))) == ""


def test_what_is_only_begun_or_has_diverged_is_said():
    assert formatting.overall(compare(settings(2.0, 2.0, 2.0, upto=200, finished=False))).startswith("So far, against")
    one = settings(2.0, 2.0, 2.0)
    lost = replace(one, diverged=(run("rope", 9, setting={"model": "m0"}),))
    assert "undecided in 1, faster in 2 of 3 settings" in formatting.overall(compare(lost))
    assert "(1 of 10 runs diverged)" in formatting.overall(compare(lost))


def test_the_terminal_the_page_and_the_results_show_every_setting(capsys, tmp_path):
    one = settings(2.0, 3.0, 0.5)
    panels = compare(one)
    tables.show(panels)
    assert "Every setting" in capsys.readouterr().out
    assert f"<h1>{formatting.overall(panels)}</h1>" in page.html(one, panels)
    keep(one, panels, tmp_path / "kept")
    assert "| model=m1 | 3.02x" in (tmp_path / "kept" / "README.md").read_text()


def test_time_that_cannot_be_told_apart_is_not_called_less_or_more():
    one = settings(2.0)
    slowed = [
        replace(each, curve={**each.curve, "seconds": each.curve["seconds"] * (0.3, 1.0, 8.0)[each.seed]})
        if each.scheme == "rope"
        else each
        for each in one.runs
    ]
    sentence = formatting.against(compare(sweep(*slowed))[0])
    assert "times fewer steps" in sentence
    assert "in time not distinguishable (" in sentence
    assert "less time" not in sentence


def test_of_a_busy_machine_s_seconds_nothing_is_said_but_that():
    (panel,) = compare(settings(2.0))
    assert "times less time" in formatting.against(panel)
    (busy,) = without_seconds([panel])
    assert "times fewer steps" in formatting.against(busy)
    assert "time (" not in formatting.against(busy)
    assert "say nothing about the schemes" in busy.notices[-1]
