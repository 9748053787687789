"""The result on README, and the pages that repeat it, have the figures of the committed results."""

import itertools
import math
import re
from collections.abc import Sequence
from statistics import mean

import numpy as np
import pytest
from scipy import stats
from scipy.interpolate import PchipInterpolator
from scipy.optimize import brentq

from posenc.analysis import convergence
from posenc.analysis.claim_map import FAMILIES, Point, advantage, growth, shared, with_ratio
from posenc.analysis.convergence import speed_up
from posenc.analysis.levels import level, levels_of_arm
from posenc.analysis.results import NGramRow
from posenc.analysis.study import Study
from posenc.analysis.why import effect
from posenc.report import formatting
from tests.claim_map_pages import (
    CLAIMS,
    CORPUS,
    LONGEST,
    README,
    RESULTS,
    STUDY,
    at_settings_of_4_9m,
    found,
    listed,
    p_of,
    with_bounds,
)
from tests.conftest import ROOT

BPE = "tokenizer=bpe tokenizer.vocab_size=1024"
SEEDS, OF_BPE = {4_915_200: [0, 1], 19_660_800: [0]}, {4_915_200: [0, 1], 19_660_800: [0, 1, 2]}
"""Of the runs with one factor changed, by tokens."""


def points(corpus: str) -> Sequence[Point]:
    return advantage(found(corpus)[0], "rope", "sinusoidal")


@pytest.mark.parametrize("corpus", STUDY.corpora)
def test_every_ratio_with_an_interval_is_in_the_results(corpus):
    ratios = [point.advantage for point in points(corpus) if point.advantage.interval]
    assert ratios
    assert all(formatting.interval(ratio, 2) in RESULTS for ratio in ratios)


def test_the_table_of_readme_has_every_budget_from_the_first_with_a_mean_ratio():
    rows = [re.split(r" \| ", row) for row in re.findall(r"\| (\d[\d.]*M \|.*?) \|(?= \|| Means)", README)]
    stated = [
        [
            f"{point.tokens / 1e6:.{0 if point.tokens > 1e8 else 1}f}M",
            f"{mean(point.baseline_losses.values()):.3f}",
            f"{mean(point.arm_losses.values()):.3f}",
            with_bounds(point.gap),
            formatting.interval(point.advantage, 2) if point.advantage.interval else of_seeds(point),
        ]
        for point in points(CORPUS)[3:]
    ]
    assert rows == stated


def of_seeds(point: Point) -> str:
    """N of each seed, without a mean since RoPE does not reach the sinusoid's loss with one of them."""
    *others, last = (f"{ratio:.2f}" if ratio else "below 1" for ratio in point.by_seed.values())
    return f"{', '.join(others)} and {last}"


def test_the_ratios_and_the_leads_of_the_headline_are_those_of_its_table():
    *_, first, second, open_, crossing, behind, longest = points(CORPUS)
    assert (open_.tokens, behind.tokens, longest.tokens) == (LONGEST // 2, LONGEST, 2 * LONGEST)
    assert not longest.has_ratio
    assert max(crossing.advantage.value, behind.advantage.value) < 1 < min(second.by_seed.values())
    ratios = [f"{point.advantage.value:.1f}" for point in (first, second)]
    at = [f"{point.tokens / 1e6:.0f}M" for point in (first, second)]
    assert f"with {ratios[0]} times fewer training tokens at {at[0]}, {ratios[1]} at {at[1]} and " in README
    p = [p_of(of.gaps.values()) for of in (open_, crossing, behind, longest)]
    assert f"The differences that were found there have p = {listed(p, 2)}." in RESULTS
    *_, of_crossing, of_behind, of_longest = p
    assert min(of_crossing, of_behind, of_longest) > 0.3
    epochs = longest.tokens / (0.9 * 100_000_000)
    assert f"157M is {epochs:.2f} epochs, and has the ratio of each seed, since one of RoPE's runs does not" in README
    assert "From 59M on, neither scheme is shown to end lower (three seeds per budget, p > 0.3)." in README
    means = [f"{mean(point.gaps.values()):.3f}" for point in (first, second, open_, crossing, behind, longest)]
    stated = "{}, {} and {} nats, then {} at 59.0M, {} at 78.6M and {} at 157M.".format(*means)
    assert f"The difference in the final loss is {stated}" in RESULTS
    saved = [f"{point.tokens * (1 - 1 / point.advantage.value) / 1e6:.1f}M" for point in (first, second, open_)]
    assert "RoPE saves {}, {} and {} tokens at 9.8M, 19.7M and 39.3M.".format(*saved) in RESULTS
    detected = [detectable([*point.gaps.values()]) for point in (open_, crossing, behind, longest)]
    assert f"finds a difference of {listed(detected, 3)} nats at 39.3M, 59.0M, 78.6M and 157M tokens" in RESULTS
    assert f"half as large as that at 19.7M, {mean(second.gaps.values()):.3f}, would often be missed" in RESULTS
    ends = [listed(of.values(), 3) for of in (crossing.baseline_losses, crossing.arm_losses)]
    assert f"| 59.0M | {ends[0]} (seeds 0, 1, 2) | {ends[1]} | " in RESULTS


def detectable(differences: Sequence[float], power: float = 0.8) -> float:
    """The mean that a paired, two-sided t-test at 0.05 finds with this probability, given their SD and number."""
    seeds, sem = len(differences), stats.sem(differences)
    threshold = stats.t.ppf(0.975, seeds - 1) ** 2

    def missed(shift: float) -> float:  # the square of a non-central t is a non-central F
        return stats.ncf.cdf(threshold, 1, seeds - 1, (shift / sem) ** 2) - (1 - power)

    return brentq(missed, sem, 10 * sem)


def test_an_interval_over_three_seeds_is_too_narrow_where_a_third_of_the_runs_copies():
    least, most = (f"{100 * covered_where_a_third_copies(sd):.0f}" for sd in (0.003, 0.006))
    assert f"({least} to {most} % in simulations in which a third of the runs end 0.028 nats below" in RESULTS


def covered_where_a_third_copies(sd: float) -> float:
    """How many t-intervals over three seeds contain the mean; the SD is that of either group."""
    generator = np.random.default_rng(0)
    runs = generator.normal(0, sd, (100_000, 3)) - 0.028 * (generator.random((100_000, 3)) < 1 / 3)
    margin = stats.t.ppf(0.975, 2) * stats.sem(runs, axis=1)
    return float(np.mean(abs(runs.mean(axis=1) + 0.028 / 3) < margin))


def test_the_ratio_on_the_king_james_bible_is_in_readme():
    first, second = (
        "{:.2f}{} ({:.2f} to {:.2f})".format(point.advantage.value, fewer, *point.advantage.interval)
        for point, fewer in zip(points(STUDY.corpora[1])[2:], (" times fewer tokens", ""), strict=True)
        if point.advantage.interval
    )
    assert f"RoPE needs {first} at 4.9M and {second} at 9.8M" in RESULTS
    assert f"King James Bible, where the ratio is {first.replace(' times fewer tokens', '')} at 4.9M." in README


def test_by_what_factor_the_ratio_changes_from_each_budget_to_the_next_is_stated():
    now, former = (
        with_ratio(advantage(runs, "rope", "sinusoidal")) for runs in (found(CORPUS)[0], at_settings_of_4_9m())
    )
    factors = [growth(pair) for pair in itertools.pairwise(now)]
    changes = [factor for factor in factors if factor]
    assert [least for least, *_ in changes] == [9_830_400, 19_660_800, 39_321_600, 58_982_400]
    for least, most, by in changes:
        assert f"| {least / 1e6:.1f}M | {most / 1e6:.1f}M | {formatting.interval(by, 2)} |" in RESULTS
        low, high = by.interval or (0, 2)
        assert low <= 1 <= high
    assert "None of these factors is distinguishable from no change:" in RESULTS
    for before, after in itertools.pairwise(former[:3]):
        factor = growth((before, after))
        assert factor is not None
        assert formatting.interval(factor[2], 2).replace(" (", ", ") in RESULTS


def test_the_ratio_with_a_monotone_cubic_instead_of_straight_lines_is_stated():
    ours, theirs, seeds = shared(found(CORPUS)[0], "rope", "sinusoidal")
    of_budget = []
    for tokens in (9_830_400, 19_660_800):
        needed = []
        for seed in seeds:
            budgets = sorted(ours[seed])
            cubic = PchipInterpolator(np.log(budgets), [ours[seed][budget] for budget in budgets])
            (root,) = cubic.solve(theirs[seed][tokens], extrapolate=False)
            needed.append(math.exp(root))
        of_budget.append(formatting.interval(speed_up([tokens] * len(needed), needed), 2))
    assert f"a monotone cubic (PCHIP) gives {of_budget[0]} at 9.8M and {of_budget[1]} at 19.7M." in RESULTS


def test_how_far_above_the_sinusoid_rope_ends_with_half_its_tokens_is_stated():
    *_, half, first, second, _, _, _, _ = points(CORPUS)
    above = [
        convergence.mean([before.arm_losses[seed] - after.baseline_losses[seed] for seed in after.baseline_losses])
        for before, after in ((half, first), (first, second))
    ]
    at_9_8m, at_19_7m = with_bounds(above[0], " nats"), with_bounds(above[1])
    stated = f"{at_9_8m} above the sinusoid's at 9.8M and {at_19_7m} at 19.7M."
    assert f"RoPE's runs of half the length end {stated}" in RESULTS


def test_which_relative_schemes_differ_from_rope_is_corrected_for_their_number():
    runs = [run for run in found(CORPUS)[0] if run.tokens == 4_915_200 and run.pos not in FAMILIES]
    losses = {pos: [run.val_loss for run in runs if run.pos == pos] for pos in {run.pos for run in runs}}
    rope = losses.pop("rope")
    p = {pos: stats.ttest_rel(of_scheme, rope).pvalue for pos, of_scheme in losses.items()}
    assert f"ALiBi ends above RoPE (p = {2 * p['alibi']:.3f}), and T5 is not" in RESULTS
    assert f"distinguishable from it (p = {2 * p['t5']:.3f})" in RESULTS
    assert f"Of all {len(p)} other relative schemes" in RESULTS
    assert [pos for pos, value in p.items() if len(p) * value < 0.05] == ["rope_bounded"]


def test_the_tokens_of_the_sinusoid_to_each_loss_of_rope_are_in_the_results():
    levels = levels_of_arm(found(CORPUS)[0], "rope", "sinusoidal")
    ratios = [level.ratio for level in levels]
    assert [ratio.seeds for ratio in ratios] == [3] * 9
    assert [level.is_bound for level in levels] == [False] * 8 + [True]
    cells = [formatting.interval(ratio, 2) if ratio.interval else f"over {ratio.value:.2f}" for ratio in ratios]
    assert f"the sinusoid's, times as many | {' | '.join(cells)} |" in RESULTS


def test_the_tokens_to_the_losses_of_n_gram_models_are_in_the_results():
    losses = {row.order: row.val_loss for row in STUDY.rows("ngrams.csv", NGramRow, CORPUS)}
    four, five = (level(found(CORPUS)[0], "rope", "sinusoidal", losses[order]) for order in (4, 5))
    assert four is not None
    assert five is not None
    assert f"that of a 4-gram model ({losses[4]:.3f} nats) the sinusoid needs {four.ratio.value:.2f} times" in RESULTS
    assert f"that of a 5-gram model ({losses[5]:.3f}) {five.ratio.value:.2f} times" in RESULTS
    for of in (four.ratio, five.ratio):
        assert of.interval is not None
        assert "({:.2f}–{:.2f})".format(*of.interval) in RESULTS


def test_the_ratios_against_a_tuned_learned_table_are_stated_beside_those_against_the_sinusoid():
    learned = advantage(found(CORPUS)[0], "rope", "learned")
    assert [point.tokens for point in learned] == [4_915_200, 19_660_800, 39_321_600, LONGEST]
    *shorter, longest = (point.advantage for point in learned)
    least, *_, most = sorted(shorter, key=lambda ratio: ratio.value)
    assert f"RoPE needs {least.value:.2f} to {most.value:.2f} times fewer tokens at 4.9M, 19.7M and 39.3M" in RESULTS
    assert least == shorter[1]
    assert least.interval is not None
    assert "the ratio at 19.7M is {:.2f} ({:.2f} to {:.2f}).".format(least.value, *least.interval) in README
    after = zip(("4.9M tokens (3 seeds)", "19.7M", "39.3M", "78.6M"), learned, strict=True)
    of_claims = [f"{formatting.interval(point.advantage, 2)} after {tokens}" for tokens, point in after]
    assert f"at the best of nine trials {', '.join(of_claims)} |" in CLAIMS
    assert longest.interval is not None
    assert "At 78.6M the interval of the ratio is {:.2f} to {:.2f}".format(*longest.interval) in RESULTS
    assert min(min(point.by_seed.values()) for point in learned) > 1  # "is ahead with every seed"
    sinusoid = {point.tokens: point for point in points(CORPUS)}
    for point in learned:
        losses = ", ".join(f"{loss:.3f}" for loss in point.baseline_losses.values())
        ratios = listed(point.by_seed.values(), 2) if point is learned[-1] else formatting.interval(point.advantage, 2)
        assert f"| {point.tokens / 1e6:.1f}M | {losses} | {with_bounds(point.gap)} | {ratios} |" in RESULTS
        below = [loss < sinusoid[point.tokens].baseline_losses[seed] for seed, loss in point.baseline_losses.items()]
        assert all(below) == (point.tokens == 19_660_800)  # "Only with 19.7M tokens does every seed"
        if all(below):
            lower = mean(sinusoid[point.tokens].baseline_losses.values()) - mean(point.baseline_losses.values())
            assert f"the learned embeddings end {lower:.3f} lower at 19.7M." in README


def test_every_factor_s_losses_with_19_7m_tokens_are_in_the_results_seed_by_seed():
    assert STUDY.changes
    ratios, means, on_the_plateau = {}, {}, []
    for setting in STUDY.changes:
        for point in advantage([run for run in STUDY.on(CORPUS) if run.setting == setting], "rope", "sinusoidal"):
            assert (
                sorted(point.baseline_losses)
                == sorted(point.arm_losses)
                == (OF_BPE if setting == BPE else SEEDS)[point.tokens]
            )
            if point.tokens == 4_915_200:
                on_the_plateau.append(point.plateau)
                continue
            losses, own = (
                ", ".join(f"{loss:.3f}" for loss in ends.values()) for ends in (point.baseline_losses, point.arm_losses)
            )
            assert f"| {losses} | {own} | {listed(point.by_seed.values(), 2)} |" in RESULTS, setting
            ratios[setting] = [*point.by_seed.values()]
            if point.advantage.interval:
                means[setting] = point.advantage
    assert (sum(on_the_plateau), len(on_the_plateau)) == (4, 8)
    assert "in four of their eight settings the sinusoid is on the plateau with one seed or both." in RESULTS
    ((of_three_seeds, average),) = means.items()
    assert of_three_seeds == BPE
    assert average.interval is not None
    assert f"the mean ratio over the three seeds is {formatting.interval(average, 2)}, not" in RESULTS
    in_readme = "{:.2f}](docs/results.md#one-factor-at-a-time) ({:.2f} to {:.2f})".format(
        average.value, *average.interval
    )
    assert f"Against the sinusoid it is [{in_readme} with 19.7M BPE tokens (49M bytes; " in README
    first, *_ = ratios.pop(BPE)
    smallest, largest = sorted(ratios, key=lambda setting: ratios[setting])[:: len(ratios) - 1]
    assert (smallest, largest) == ("context=64 batch_size=64", "objective=masked")
    (low,), (high,) = ratios[smallest], ratios[largest]
    of_former = advantage(at_settings_of_4_9m(), "rope", "sinusoidal")
    (unchanged,) = (point.by_seed[0] for point in of_former if point.tokens == 19_660_800)
    assert f"| windows of 64 bytes | 1.467 | 1.453 | {low:.2f} |" in RESULTS
    of_bpe = "{:.2f} (BPE tokens; over three seeds {:.2f}, {:.2f} to {:.2f})".format(
        min(first, low), average.value, *average.interval
    )
    stated = f"{of_bpe} to {high:.2f} (masked language modelling)"
    assert f"the ratio at 19.7M tokens ranges with seed 0 from {stated}." in RESULTS
    assert f"and RoPE needs {unchanged:.2f} times fewer tokens. [Runs of 4.9M" in RESULTS


def test_the_final_losses_with_linear_attention_after_4_9m_tokens_are_stated():
    runs = [run for run in STUDY.on(CORPUS) if (run.setting, run.tokens) == ("attention=linear", 4_915_200)]
    ends = {pos: [run.val_loss for run in runs if run.pos == pos] for pos in ("sinusoidal", "learned", "rope")}
    sinusoid, learned, rope = (listed(losses, 3) for losses in ends.values())
    stated = f"the sinusoid ends at {sinusoid}, learned position embeddings at {learned}, RoPE at {rope}"
    below, above = (ends["sinusoidal"][seed] - ends["rope"][seed] for seed in (0, 1))
    assert f"{stated}: {below:.3f} below the sinusoid and {-above:.3f} above it." in RESULTS


def test_a_bias_in_place_of_the_sinusoid_is_compared_with_rope_on_the_same_seeds():
    findings = " ".join((ROOT / "results/why/findings.md").read_text().split())
    why = Study(ROOT / "results/why")
    rope, sinusoid, bias = (
        why.curves(why.arm(name), why.corpora[0])
        for name in ("rope", "sinusoidal", "previous-token bias in place of the sinusoid")
    )
    shared = {seed: rope[seed] for seed in bias}
    of_bias, of_rope = (effect(arm, sinusoid, rope, []) for arm in (bias, shared))
    assert of_bias is not None
    assert of_rope is not None
    assert of_bias.speed_up.seeds == of_rope.speed_up.seeds == 3
    fewer, steps = (
        "{:.2f}{} ({:.2f} to {:.2f})".format(one.speed_up.value, words, *one.speed_up.interval or ())
        for one, words in ((of_bias, " times fewer steps than the sinusoid"), (of_rope, ""))
    )
    assert f"In place of the sinusoid it needs {fewer}, RoPE with the same three seeds {steps}." in RESULTS
    ends = f"it ends {of_bias.behind.value:.3f} nats above RoPE."
    assert f"in place of the sinusoid, 77 % (61 to 92 %), and 64 % (45 to 82 %) in the final loss: {ends}" in RESULTS
    assert "77 % (61 to 92 %) in steps and 64 % (45 to 82 %) in the final loss." in findings
