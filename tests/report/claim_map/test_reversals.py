"""What the figure of the budgets from the first at which the baseline ends lower draws."""

import statistics
from dataclasses import replace

import pytest

from posenc.analysis.claim_map import advantage
from posenc.report.claim_map.losses import losses
from posenc.report.claim_map.reversals import reversed_order
from tests.analysis.test_claim_map import UNIT, backbone
from tests.report.claim_map.test_losses import with_a_lower_rate


def panels(runs, alternatives=None, figure=reversed_order):
    return figure(runs, advantage(runs, "rope", "sinusoidal"), alternatives or {}).axes


def with_the_order_reversed(*units):
    """The backbone with the arms' losses exchanged at these budgets."""
    other = {"rope": "sinusoidal", "sinusoidal": "rope"}
    at = {one * UNIT for one in units}
    return [replace(run, pos=other[run.pos]) if run.tokens in at else run for run in backbone()]


def test_the_runs_of_a_budget_where_the_order_reverses_have_a_row_for_each_arm_by_rising_mean():
    runs, alternatives = with_the_order_reversed(16), with_a_lower_rate(16)
    alternatives["t5"] = [replace(run, pos="t5") for run in alternatives["rope, learning rate 0.001"][:1]]
    (beneath,) = panels(runs, alternatives)
    of_all_runs = (panels(runs, others, losses)[1] for others in (alternatives, None))
    assert len({len(axes.lines) for axes in of_all_runs}) == 1  # what has a row is not drawn again
    rate = f", learning rate {runs[0].lr:g}"
    arms = {
        f"sinusoid{rate}": [run for run in runs if (run.pos, run.tokens) == ("sinusoidal", 16 * UNIT)],
        f"RoPE{rate}": [run for run in runs if (run.pos, run.tokens) == ("rope", 16 * UNIT)],
        "sinusoid, learning rate 0.001": alternatives["sinusoidal, learning rate 0.001"],
        "RoPE, learning rate 0.001": alternatives["rope, learning rate 0.001"],
        "T5, learning rate 0.001": alternatives["t5"],
    }
    means = {name: statistics.fmean(run.val_loss for run in found) for name, found in arms.items()}
    names = [text.get_text() for text in beneath.get_yticklabels()]
    assert names == sorted(arms, key=lambda name: means[name])
    assert beneath.yaxis_inverted()
    dots, bars = ([line for line in beneath.lines if (line.get_marker() == "o") == dot] for dot in (True, False))
    for height, (name, own, bar) in enumerate(zip(names, dots, bars, strict=True)):
        assert own.get_xydata().tolist() == [[run.val_loss, height] for run in arms[name]]
        assert bar.get_xdata() == pytest.approx([means[name]] * 2)


def test_the_base_of_rope_is_named_if_there_are_several():
    runs = [replace(run, base="1000") if run.pos == "rope" else run for run in with_the_order_reversed(16)]
    other = [replace(run, base="100000") for run in runs if (run.pos, run.tokens) == ("rope", 16 * UNIT)]
    (axes,) = panels(runs, {"rope, other": other})
    rate = f"learning rate {runs[0].lr:g}"
    assert {text.get_text() for text in axes.get_yticklabels()} == {
        f"RoPE, base 1,000, {rate}",
        f"RoPE, other, base 100,000, {rate}",
        f"sinusoid, {rate}",
    }


def test_the_amplitude_of_the_sinusoid_is_named_if_there_are_several():
    runs = with_the_order_reversed(16)
    (one, *_) = (run for run in runs if (run.pos, run.tokens) == ("sinusoidal", 16 * UNIT))
    (axes,) = panels(runs, {"sinusoidal, amplitude 0.7": [replace(one, scale="0.7")]})
    rate = f"learning rate {one.lr:g}"
    names = {text.get_text() for text in axes.get_yticklabels()}
    assert {f"sinusoid, amplitude {one.scale}, {rate}", f"sinusoid, amplitude 0.7, {rate}"} <= names


def test_a_rate_is_named_unless_the_name_has_it_and_not_the_beginning_of_another():
    runs = with_the_order_reversed(16)
    (one, *_) = (run for run in runs if (run.pos, run.tokens) == ("sinusoidal", 16 * UNIT))
    others = {f"sinusoidal, learning rate {rate}": [replace(one, lr=0.004)] for rate in ("0.0042", "0.004")}
    (axes,) = panels(runs, others)
    names = {text.get_text() for text in axes.get_yticklabels()}
    assert {"sinusoid, learning rate 0.0042, learning rate 0.004", "sinusoid, learning rate 0.004"} <= names


@pytest.mark.parametrize("units", [(8, 16), (8,)], ids=["for good", "and back"])
def test_each_budget_from_the_first_where_the_order_reverses_has_a_panel_with_the_scale_of_the_others(units):
    beneath = panels(with_the_order_reversed(*units))
    assert [axes.get_title(loc="right") for axes in beneath] == [
        f"the runs of {tokens} tokens; bars: means, bold: the arms" for tokens in ("9.8M", "19.7M")
    ]
    assert len({axes.get_xlim() for axes in beneath}) == 1


def test_without_such_a_budget_there_is_no_figure():
    runs = backbone()
    assert reversed_order(runs, advantage(runs, "rope", "sinusoidal"), with_a_lower_rate(16)) is None
