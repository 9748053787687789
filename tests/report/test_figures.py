"""Still figures."""

from typing import Any

import pytest

from posenc.analysis.comparison import compare
from posenc.config.files import CONF
from posenc.report import figures
from posenc.report.looks import LOOKS, looks
from tests.analysis.synthetic import pair, run, sweep, with_lengths


def titles(figure) -> list[str]:
    return [axes.get_title(loc="left") for axes in figure.axes]


@pytest.mark.parametrize(("seeds", "over"), [(1, "1 seed"), (2, "2 seeds"), (3, "3 seeds, 95 % band")])
def test_a_title_has_the_number_of_seeds_and_a_band_only_if_one_is_drawn(seeds, over):
    made_up = compare(pair(seeds))
    assert titles(figures.curves(made_up)) == [f"Validation loss, {over}", f"Speed-up over sinusoidal, {over}"]


def test_the_titles_count_the_seeds_that_were_evaluated_or_shared():
    first, *others = pair().runs
    partly = compare(sweep(with_lengths(first, 0.1), *others))
    assert titles(figures.lengths(partly)) == ["Loss in longer windows, 1 seed", "Loss by position, 1 seed"]
    more = compare(sweep(*pair(2).runs, *(run("sinusoidal", seed) for seed in (2, 3, 4))))
    assert titles(figures.curves(more)) == [
        "Validation loss, 2 to 5 seeds, 95 % band",
        "Speed-up over sinusoidal, 2 seeds",
    ]


@pytest.mark.parametrize("pace", [1.08, 2.0, 20.0])
def test_a_speed_up_can_be_read_from_the_axis_also_near_1(pace):
    figure = figures.curves(compare(pair(pace=pace)))
    figure.canvas.draw()
    _, axes = figure.axes
    low, high = axes.get_ylim()
    assert sum(low <= at <= high for at in axes.get_yticks()) >= 3
    left, right = axes.get_xlim()
    assert left > right  # the loss decreases to the right


def test_the_line_of_the_training_length_is_at_it():
    _, by_position = figures.lengths(compare(sweep(*(with_lengths(one, 0.1) for one in pair().runs)))).axes
    line: Any = by_position.lines[-1]
    assert [*line.get_xdata()] == [256, 256]


@pytest.mark.parametrize("form", ["png", "svg"])
def test_a_figure_is_the_same_file_for_the_same_data(form, tmp_path):
    files = [tmp_path / f"{name}.{form}" for name in ("one", "other")]
    for file in files:
        figures.save(figures.curves(compare(pair())), file)
    assert files[0].read_bytes() == files[1].read_bytes()
    assert {file.name for file in tmp_path.iterdir()} == {file.name for file in files}  # nothing half-written is left


def test_head_scores_that_rise_have_a_figure(tmp_path):
    paces = {"rope": 2.0, "sinusoidal": 1.0}
    runs = (run(scheme, seed, pace, head_at=60) for scheme, pace in paces.items() for seed in range(3))
    comparison = compare(sweep(*runs))
    assert "heads.png" in figures.save_all(comparison, tmp_path)
    assert (tmp_path / "heads.png").stat().st_size > 10_000
    _, score = figures.heads(comparison).axes
    assert score.get_ylim() == (0, 1)


def test_every_scheme_has_a_look_of_its_own():
    schemes = [file.stem for file in (CONF / "pos").glob("*.yaml")]
    assert len(set(looks(schemes).values())) == len(schemes)


@pytest.mark.parametrize("schemes", [("rope", "sinusoidal"), tuple(sorted(LOOKS)), ("a_very_long_name_" * 5, "rope")])
def test_the_legend_is_inside_the_figure_whatever_the_schemes(schemes):
    figure = figures.curves(compare(sweep(*(run(scheme, 0) for scheme in schemes)), baseline=schemes[0]))
    figure.canvas.draw()
    (legend,) = figure.legends
    assert {text.get_text() for text in legend.get_texts()} >= set(schemes)
    extent = legend.get_window_extent()
    assert extent.x0 >= 0
    assert extent.x1 <= figure.bbox.width
