"""Tables for every renderer."""

import csv
from dataclasses import replace

from posenc.analysis.comparison import Comparison, compare
from posenc.report import csv_tables, tables, terminal
from posenc.storage.metrics import COLUMNS, METRICS
from tests.analysis.synthetic import pair, panels, run, sweep
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
    table = tables.Table("", ("a", "b"), [("1", "2\n3")])
    assert tables.markdown(table) == "| a | b |\n|---|---|\n| 1 | 2<br>3 |"


def test_what_a_stranger_s_names_hold_does_not_steer_the_terminal(capsys):
    (panel,) = panels(pair())
    panel = replace(panel, setting={"data": "\x1b[2J\x07evil"}, notices=("\x9b31mred\u202egniht",))
    terminal.show(Comparison(pair(), (panel, panel)))
    printed = capsys.readouterr().out
    assert "evil" in printed
    assert all(character.isprintable() for character in printed.replace("\n", ""))


def test_steps_and_tokens_of_a_curve_are_whole_numbers():
    long = run("rope", 0)
    long = replace(long, curve={**long.curve, "tokens": long.curve["step"] * 32_768 + 1})
    last = list(csv.DictReader(csv_tables.curves(compare(sweep(long))).splitlines()))[-1]
    assert (last["step"], last["tokens"]) == ("300", "9830401")
