"""Tables for every renderer."""

import csv
from dataclasses import replace

import pytest

from posenc.analysis.comparison import Comparison, compare
from posenc.analysis.convergence import Estimate
from posenc.report import csv_tables, formatting, tables, terminal
from posenc.storage.metrics import COLUMNS, METRICS
from tests.analysis.synthetic import arm, pair, panels, run, sweep, with_lengths
from tests.conftest import ROOT


def test_the_documentation_explains_the_columns_as_the_registry_does():
    assert tables.markdown(tables.metrics()) in (ROOT / "docs" / "comparing.md").read_text()


def test_every_metric_that_a_comparison_makes_is_a_column_of_its_table():
    derived = METRICS.keys() - set(COLUMNS)
    assert derived <= set(csv_tables.TABLE)


def test_every_row_has_a_cell_for_every_column():
    (panel,) = panels(pair())
    for table in (tables.losses(panel), tables.thresholds(panel), tables.metrics()):
        assert {len(row) for row in table.rows} == {len(table.head)}


def test_lines_within_a_cell_stay_within_it_in_markdown():
    table = tables.Table(("a", "b"), [("1", "2\n3")])
    assert tables.markdown(table) == "| a | b |\n|---|---|\n| 1 | 2<br>3 |"


def test_what_a_stranger_s_names_hold_does_not_steer_the_terminal(capsys):
    (panel,) = panels(pair())
    panel = replace(panel, setting={"data": "\x1b[2J\x07evil"}, notices=("\x9b31mred\u202egniht",))
    terminal.show(Comparison(pair(), (panel, panel), busy=False))
    printed = capsys.readouterr().out
    assert "evil" in printed
    assert all(character.isprintable() for character in printed.replace("\n", ""))


def test_steps_and_tokens_of_a_curve_are_whole_numbers():
    long = run("rope", 0)
    long = replace(long, curve={**long.curve, "tokens": long.curve["step"] * 32_768 + 1})
    last = list(csv.DictReader(csv_tables.curves(compare(sweep(long))).splitlines()))[-1]
    assert (last["step"], last["tokens"]) == ("300", "9830401")


def test_each_cell_of_the_csv_table_is_that_of_its_threshold():
    slow = [run("rope", seed, pace=1.5 + seed / 5) for seed in range(3)]
    for one in slow:
        one.curve["seconds"][:] *= 2
    found = replace(sweep(*slow, *(run("sinusoidal", seed) for seed in range(3))), diverged=(run("rope", 3),))
    rope = arm(compare(found).panels[0], "rope")
    rows = [row for row in cells_of(found) if row["scheme"] == "rope"]
    for row, at in zip(rows, rope.thresholds, strict=True):
        assert [row[name] for name in ("seeds", "diverged", "pairs", "not_reached")] == ["3", "1", "3", "0"]
        assert row["comparison"] == "matched"
        for name, of in (
            ("steps", at.steps),
            ("speed_up_steps", at.in_steps),
            ("speed_up_seconds", at.in_seconds),
            ("headline_speed_up_steps", rope.headline.in_steps),
            ("bits_per_byte", rope.bits),
        ):
            values = [float(row[f"{name}{end}"]) for end in ("", "_low", "_high")]
            assert values == pytest.approx([of.value, *of.interval], abs=0.051)
        bootstrap = [float(row[f"speed_up_steps_bootstrap_{end}"]) for end in ("low", "high")]
        assert bootstrap == pytest.approx(at.bootstrap, abs=1e-4)
        assert float(row["level"]) == pytest.approx(at.level, abs=1e-4)


def test_what_was_never_reached_has_empty_cells():
    *_, last = (row for row in cells_of(pair(pace=0.5)) if row["scheme"] == "rope")
    assert (last["not_reached"], last["steps"], last["speed_up_steps"]) == ("3", "", "")


def test_a_comparison_after_a_search_is_called_tuned():
    searched = replace(pair(), search=({"pos": "rope", "optim.lr": 0.01, "best": True},))
    assert {row["comparison"] for row in cells_of(searched)} == {"tuned"}


def test_a_measure_that_a_validation_lacks_is_an_empty_cell():
    rows = list(csv.DictReader(csv_tables.curves(compare(sweep(run("rope", 0)))).splitlines()))
    assert {row["previous_token"] for row in rows} == {""}
    assert all(row["val_loss"] for row in rows)


def test_seconds_keep_their_digits():
    one = run("rope", 0)
    one.curve["seconds"][:] /= 7
    first, *_ = csv.DictReader(csv_tables.curves(compare(sweep(one))).splitlines())
    assert float(first["seconds"]) == pytest.approx(2 / 7, abs=1e-5)


def test_a_row_has_the_loss_and_the_bits_and_the_facts_the_time_of_all_runs():
    (panel,) = panels(pair())
    (rope,) = (row for row in tables.losses(panel).rows if row[0] == "rope")
    own = arm(panel, "rope")
    assert rope[3:5] == (formatting.interval(own.loss), formatting.interval(own.bits))
    assert ("Training time", "360 s in total") in {*map(tuple, tables.facts(pair()).rows)}  # six runs of 60 s
    unfinished = sweep(run("rope", 0), run("rope", 1, finished=False))
    assert ("Runs", "2, 1 of them finished") in {*map(tuple, tables.facts(unfinished).rows)}
    assert [formatting.short(ratio) for ratio in (9.5, 10, 12.34)] == ["9.50", "10.0", "12.3"]


def test_a_rounded_zero_has_no_minus_sign():
    assert formatting.difference(Estimate(-0.0001, 2, interval=(-0.0004, 0.0002))) == "+0.000 (+0.000 to +0.000)"


def test_the_scores_stand_under_their_names():
    (panel,) = panels(sweep(*(run(scheme, seed, head_at=60) for scheme in ("rope", "sinusoidal") for seed in range(2))))
    table = tables.heads(panel)
    assert [name.split("\n")[0] for name in table.head[-2:]] == ["previous-token score", "induction score"]
    assert table.rows[0][-2:] == ("0.40", "0.010")


def test_a_trial_at_the_edge_of_the_grid_and_a_failed_one_are_named():
    trials = (
        {"pos": "rope", "optim.lr": 0.01, "best": True, "val_loss": 2.0, "edge": ["optim.lr"]},
        {"pos": "rope", "optim.lr": 0.02, "best": False, "val_loss": None, "edge": []},
    )
    best, other = tables.search(replace(pair(), search=trials)).rows
    assert best[1:] == ["0.01", "2.0000", "best, at the edge of the grid in optim.lr"]
    assert other[1:] == ["0.02", "failed", ""]


def test_how_many_seeds_were_evaluated_at_longer_windows_is_said():
    runs = with_lengths(run("rope", 0), 0.1), run("rope", 1), run("learned", 0)
    (panel,) = compare(sweep(*runs), "learned").panels
    assert panel.extrapolation is not None
    (row,) = tables.longer_windows(panel, panel.extrapolation).rows
    assert row[1] == "1 of 2"


def cells_of(found):
    return list(csv.DictReader(csv_tables.table(compare(found)).splitlines()))
