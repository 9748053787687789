"""What README and the results say of N with new seeds, on the test split, is what results/claim-map says."""

from collections.abc import Mapping

import numpy as np
import pytest
from scipy.stats import linregress

from posenc.analysis.claim_map import Point, advantage
from posenc.analysis.convergence import Estimate, mean, speed_up
from posenc.analysis.held_out import held_out
from posenc.analysis.results import BlockRow
from posenc.report import formatting
from tests.claim_map_pages import (
    COPIED,
    CORPUS,
    FORMER,
    README,
    RESULTS,
    STUDY,
    at,
    at_settings_of_4_9m,
    evaluated,
    found,
    listed,
    p_of,
    with_bounds,
)

ROPE_THEN = "rope, base 100,000, learning rate 0.003"
"""RoPE's arm with 39.3M tokens when the replications were announced."""


def test_the_replication_on_the_test_split_is_stated_with_n_on_validation_beside_it():
    assert list(evaluated()) == [
        "replication",
        "second replication",
        "third replication",
        "fourth replication",
        "fifth replication",
    ]
    for on_test, on_validation in evaluated()["replication"]:
        assert list(on_test.by_seed) == list(on_validation.by_seed) == [3, 4, 5]
        assert f"| {on_test.tokens / 1e6:.1f}M | {replicated(on_test, on_validation)} |" in RESULTS


@pytest.mark.parametrize(
    ("name", "row", "expected"),
    [
        ("second replication", "39.3M, the sinusoid's former setting", (1.15, 1.5)),
        ("third replication", "19.7M, tuned there", (1.65, 2.05)),
        ("fourth replication", "39.3M, the sinusoid's arm", (1.05, 1.5)),
    ],
)
def test_the_replication_of_arms_tuned_with_more_tokens_is_stated_with_every_seed(name, row, expected):
    backbone, alternatives = found(CORPUS)
    ((on_test, on_validation),) = evaluated()[name]
    assert row.startswith(f"{on_test.tokens / 1e6:.1f}M, ")
    assert list(on_test.by_seed) == list(on_validation.by_seed) == [3, 4, 5]
    assert f"| {row} | {replicated(on_test, on_validation)} |" in RESULTS
    assert f"N is {listed(on_test.by_seed.values(), 2)} with seeds 3, 4 and 5" in RESULTS
    assert expected[0] < on_test.advantage.value < expected[1]  # as expected
    assert abs(on_test.advantage.value - on_validation.advantage.value) < 0.1
    assert min(on_test.by_seed.values()) > 1


@pytest.mark.parametrize(("name", "tokens"), [("third replication", 19_660_800), ("fourth replication", 39_321_600)])
def test_n_over_the_six_seeds_of_the_arms_tuned_with_more_tokens_is_stated(name, tokens):
    six = over_six_seeds(name, tokens)
    assert f"Over seeds 0 to 5 it is {formatting.interval(six.advantage, 2)} on validation" in RESULTS


def test_how_much_lower_rope_ends_over_the_six_seeds_with_39_3m_tokens_is_stated():
    six = over_six_seeds("fourth replication", 39_321_600)
    ahead = sum(n > 1 for n in six.by_seed.values())
    assert ahead == 5
    p = p_of(six.gaps.values())
    lower = with_bounds(six.gap, " nats").removesuffix(")")
    corrected = f"p = {p:.2f}, corrected for the four budgets above 20M {4 * p:.2f}"
    assert f"on average by {lower}; {corrected})." in RESULTS

    ((on_test, _),) = evaluated()["fourth replication"]
    of_new = with_bounds(on_test.gap)
    assert f"over seeds 3 to 5 alone, on the test split, the difference is {of_new}." in RESULTS


def test_the_announced_test_of_six_more_seeds_with_39_3m_tokens_is_stated():
    ((on_test, on_validation),) = (both for both in evaluated()["fifth replication"] if both[0].tokens == 39_321_600)
    assert list(on_test.gaps) == list(on_validation.gaps) == [6, 7, 8, 9, 10, 11]
    gap, p = on_test.gap, p_of(on_test.gaps.values())
    assert gap is not None
    assert p < 0.05
    assert min([*on_test.gaps.values(), *on_validation.gaps.values()]) > 0
    assert 0.010 < gap.value < 0.035  # as expected
    lower = with_bounds(gap, " nats").removesuffix(")")
    announced = "With six of them, in a test announced before their runs, RoPE ends"
    assert f"{announced} {gap.value:.3f} nats lower (p = {p:.4f})." in README
    assert f"p = {p:.4f}; exact sign-flip test, p = {2 / 2**6:.2f}, the least that six seeds can give;" in RESULTS
    ratio = formatting.interval(on_test.advantage, 2)
    assert on_test.advantage.value < 1.45  # as expected, and above 1.10
    both = f"{ratio} on the test split and {formatting.interval(on_validation.advantage, 2)} on validation"
    assert f"N of the new seeds is {both} (expected: 1.10 to 1.45)" in RESULTS
    assert f"on the test split it is {listed(on_test.by_seed.values(), 2)} by seed." in RESULTS
    ends = f"the sinusoid ends at {listed(on_test.baseline_losses.values(), 3)} nats"
    assert f"{ends}, RoPE at {listed(on_test.arm_losses.values(), 3)}: lower with each of the six" in RESULTS
    assert f"on average by {lower}; paired t-test, p = {p:.4f};" in RESULTS
    assert f"On validation the difference is {with_bounds(on_validation.gap)};" in RESULTS


def test_n_with_39_3m_tokens_is_stated_over_the_nine_seeds_that_did_not_choose_the_settings_and_over_all_twelve():
    ((on_test, _),) = evaluated()["fourth replication"]
    ((later, later_on_validation),) = (
        both for both in evaluated()["fifth replication"] if both[0].tokens == on_test.tokens
    )
    nine, twelve = (
        over_seeds({**before.by_seed, **after.by_seed})
        for before, after in (
            (on_test, later),
            (over_six_seeds("fourth replication", on_test.tokens), later_on_validation),
        )
    )
    assert (nine.seeds, twelve.seeds) == (9, 12)
    assert nine.interval is not None
    headline = f"and {nine.value:.2f} at 39M. The last ratio is from [nine new seeds]"
    interval = "{:.2f} to {:.2f}".format(*nine.interval)
    assert f"{headline}(docs/results.md#new-seeds-on-the-test-split) on the test split ({interval})." in README
    of_nine = formatting.interval(nine, 2)
    assert f"N is {of_nine} over the nine seeds that did not choose the settings." in RESULTS
    gaps = [*on_test.gaps.values(), *later.gaps.values()]
    assert min(gaps) > 0  # so that of the 2^9 signs only two give as large a mean
    difference = with_bounds(mean(gaps)).removesuffix(")")
    flipped = f"{difference}; sign-flip test, p = {2 / 2**9:.3f})"
    assert f"it is {of_nine} on the test split, where the difference is {flipped}." in RESULTS
    assert f"and N is {formatting.interval(twelve, 2)}. Over seeds 3 to 11, which did not choose" in RESULTS


def over_seeds(ratios: Mapping[int, float | None]) -> Estimate:
    """The mean of N by seed."""
    needed = [1 / ratio for ratio in ratios.values() if ratio]
    return speed_up([1] * len(needed), needed)


def test_how_much_lower_rope_ends_over_twelve_seeds_with_39_3m_tokens_is_stated():
    runs = [run for run in found(CORPUS)[1]["fifth replication"] if run.tokens == 39_321_600]
    losses = {pos: {run.seed: run.val_loss for run in runs if run.pos == pos} for pos in ("sinusoidal", "rope")}
    later = {seed: loss - losses["rope"][seed] for seed, loss in losses["sinusoidal"].items()}
    gaps = {**over_six_seeds("fourth replication", 39_321_600).gaps, **later}
    assert list(gaps) == [*range(12)]
    assert sum(gap > 0 for gap in gaps.values()) == 11
    assert f"over all twelve seeds, 0 to 11, it is {with_bounds(mean([*gaps.values()]))}, RoPE being ahead" in RESULTS
    copying = {
        row.seed: row.second - row.first < -0.2
        for row in COPIED
        if (row.pos, row.setting, row.tokens, row.lr, row.scale) == ("sinusoidal", "backbone", 39_321_600, 0.002, "0.1")
    }
    assert [seed for seed in gaps if copying[seed]] == [0, 4]
    assert f"those of seeds 0 and 4; they end {-gaps[0]:.3f} below and {gaps[4]:.3f} above RoPE" in RESULTS
    others = [gap for seed, gap in gaps.items() if not copying[seed]]
    assert f"the others {min(others):.3f} to {max(others):.3f} above" in RESULTS


def test_how_much_smaller_rope_s_lead_is_with_more_tokens_is_stated():
    before = over_six_seeds("third replication", 19_660_800)
    after = over_six_seeds("fourth replication", 39_321_600)
    shrinks = [before.gaps[seed] - after.gaps[seed] for seed in after.gaps]
    by = mean(shrinks)
    assert by.interval is not None
    interval = "{:.3f} to {:.3f}".format(*by.interval)
    ratio = speed_up([after.by_seed[seed] for seed in after.by_seed], [before.by_seed[seed] for seed in after.by_seed])
    p = p_of(shrinks)
    stated = f"it is {by.value:.3f} nats smaller at 39.3M tokens than at 19.7M ({interval}; p = {p:.4f}), and N"
    assert f"Over six seeds {stated} falls by a factor of {formatting.interval(ratio, 2)};" in RESULTS

    points = {point.tokens: point for point in advantage(found(CORPUS)[0], "rope", "sinusoidal")}
    first, last = points[9_830_400], points[78_643_200]
    shrinks = [first.gaps[seed] - last.gaps[seed] for seed in last.gaps]
    smaller = with_bounds(mean(shrinks), " nats smaller at 78.6M than at 9.8M").removesuffix(")")
    p = p_of(shrinks)
    assert f"over seeds 0 to 2 the lead is {smaller}; p = {p:.3f})." in RESULTS

    budgets = [tokens for tokens in points if tokens >= first.tokens]
    assert len(budgets) == 6
    slopes = [-linregress(np.log2(budgets), [points[at].gaps[seed] for at in budgets]).slope for seed in last.gaps]
    falls = with_bounds(mean(slopes), " nats per doubling of the tokens").removesuffix(")")
    assert (
        f"Over all six budgets from 9.8M to 157M and seeds 0 to 2 it falls by {falls}; p = {p_of(slopes):.3f})."
        in RESULTS
    )


def test_the_sinusoid_s_former_setting_with_19_7m_tokens_is_stated_where_it_ends_lower():
    backbone, alternatives = found(CORPUS)
    third, tokens = alternatives["third replication"], 19_660_800
    former, arm = (
        {run.seed: run for run in runs if (run.pos, run.tokens) == ("sinusoidal", tokens)}
        for runs in ([*alternatives[FORMER], *alternatives["replication"]], [*backbone, *third])
    )
    assert sorted(former) == sorted(arm) == [0, 1, 2, 3, 4, 5]
    above = mean([arm[seed].val_loss - former[seed].val_loss for seed in arm])
    ends = with_bounds(above, " nats above its former setting**")
    assert f"**Over seeds 0 to 5 the sinusoid's arm ends {ends}" in RESULTS

    ropes = [run for run in [*backbone, *third] if run.pos == "rope"]
    both = [*ropes, *former.values()]
    of_both = held_out([], {"both": both}, STUDY.rows("test.csv", BlockRow, CORPUS))["both"]
    on_test = next(point for point, _ in of_both if point.tokens == tokens)
    assert list(on_test.by_seed) == [3, 4, 5]
    six = at(tokens, both)
    ratios = formatting.interval(six.advantage, 2), formatting.interval(on_test.advantage, 2)
    assert "N is {} over these six instead of 1.86, and {} instead of 1.93".format(*ratios) in RESULTS


def over_six_seeds(name: str, tokens: int) -> Point:
    backbone, alternatives = found(CORPUS)
    then = alternatives[ROPE_THEN]
    arms = [run for run in backbone if (run.pos, run.tokens) != ("rope", then[0].tokens)]
    runs = {run.key: run for run in (*arms, *then, *alternatives["third replication"], *alternatives[name])}
    both = [run for run in runs.values() if run.pos in ("rope", "sinusoidal")]
    six = at(tokens, both)
    assert list(six.by_seed) == [0, 1, 2, 3, 4, 5]
    return six


def test_n_of_the_setting_that_was_replicated_with_39_3m_tokens_is_stated():
    backbone, alternatives = found(CORPUS)
    (tokens,) = {run.tokens for run in alternatives["sinusoidal, second replication"]}
    former = [run for run in alternatives["sinusoidal, learning rate 0.003, amplitude 0.2"] if run.tokens == tokens]
    others = [run for run in backbone if run.tokens != tokens]
    then = [*others, *former, *alternatives[ROPE_THEN]]
    (point,) = (one for one in advantage(then, "rope", "sinusoidal") if one.tokens == tokens)
    interval = formatting.interval(point.advantage, 2)
    assert f"Seeds 0 to 2 of that setting, from a GPU, have {interval} on validation." in RESULTS


def test_readme_has_the_replications_of_tuned_arms():
    ((third, _),) = evaluated()["third replication"]
    shortest, *_ = (point for point, _ in evaluated()["replication"])
    least, then = (formatting.interval(point.advantage, 2).replace("–", " to ") for point in (shortest, third))
    assert f"give test-split ratios of {least} at 9.8M and {then} at 19.7M." in README


def replicated(on_test: Point, on_validation: Point) -> str:
    """The cells of a replication: the losses on the test split, and N there and on validation."""
    losses = (
        ", ".join(f"{loss:.3f}" for loss in ends.values()) for ends in (on_test.baseline_losses, on_test.arm_losses)
    )
    ratios = (formatting.interval(point.advantage, 2) for point in (on_test, on_validation))
    return " | ".join([*losses, *ratios])


def test_n_over_the_six_seeds_of_both_replications_is_stated():
    both = [run for run in at_settings_of_4_9m() if run.pos in ("rope", "sinusoidal")]
    ratios = [
        formatting.interval(point.advantage, 2)
        for point in advantage([*both, *found(CORPUS)[1]["replication"]], "rope", "sinusoidal")
        if point.advantage.seeds == 6 and point.has_ratio
    ]
    stated = " at 9.8M and ".join(ratios[:2])
    assert (
        f"Over all six seeds, 0 to 5, N on the last validation is {stated} at 19.7M, all with these settings;"
        in RESULTS
    )
