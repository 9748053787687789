"""What the pages say of the longest runs, where the sinusoid leads and copies, is in the committed results."""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from operator import attrgetter
from statistics import mean, stdev

import pytest
from scipy import stats

from posenc.analysis.claim_map import advantage
from posenc.analysis.corpus_map import replaced
from posenc.analysis.results import BlockRow, DistanceRow, Result
from posenc.analysis.run_key import BACKBONE, SEARCH
from posenc.analysis.validation_error import differences
from posenc.report import formatting
from posenc.storage.csv_files import read_csv, read_rows
from tests.claim_map_pages import (
    CLAIMS,
    COPIED,
    COPYING,
    CORPUS,
    FOLDER,
    LONGEST,
    README,
    RESULTS,
    STUDY,
    cells,
    copied,
    found,
    listed,
    p_of,
)

SEEDS, REPLICATION = (0, 1, 2), (3, 4, 5)
FORMER = "base 10,000, learning rate 0.0015"
"""RoPE's arm with 157M tokens until its best trial had three seeds."""

RATE = "base 1,000,000, learning rate {}"
"""Of settings of RoPE."""

OLDER = "amplitude 0.1"
"""The sinusoid's arm with 78.6M and 157M tokens until amplitude 0.2 had three seeds."""

BUDGETS = {"59.0M": 58_982_400, "78.6M": LONGEST, "78.6M, replication": LONGEST, "157M": 2 * LONGEST}

FIRST, SECOND, THIRD = "0.0042, 1,000,000", "0.003, 1,000,000", "0.006, 1,000,000"

ORDERS = [
    ("59.0M", SECOND, "0.003, 0.1", SEEDS, "no", ("", "")),
    ("78.6M", FIRST, "0.003, 0.2", SEEDS, "no", ("", "")),
    ("78.6M", FIRST, "0.0042, 0.1", SEEDS, "no", ("", OLDER)),
    ("78.6M", SECOND, "0.0042, 0.1", SEEDS, "no", (RATE.format("0.003"), OLDER)),
    ("78.6M", "0.003, 100,000", "0.0042, 0.1", SEEDS, "no", ("base 100,000", OLDER)),
    ("78.6M", "0.003, 1,000", "0.0042, 0.1", SEEDS, "no", ("base 1,000", OLDER)),
    ("78.6M, replication", "0.003, 1,000", "0.0042, 0.1", REPLICATION, "no", ("", "")),
    ("78.6M", THIRD, "0.0042, 0.1", range(6), "yes", (RATE.format("0.006"), OLDER)),
    ("157M", SECOND, "0.003, 0.2", SEEDS, "no", ("", "")),
    ("157M", SECOND, "0.003, 0.1", SEEDS, "no", ("", OLDER)),
    ("157M", "0.0015, 10,000", "0.003, 0.1", SEEDS, "yes", (FORMER, OLDER)),
    ("157M", THIRD, "0.003, 0.1", SEEDS, "yes", (RATE.format("0.006"), OLDER)),
]
"""Tests of the order of the arms: a row of the table each. Each p is corrected for their number."""

BLOCKS = [row for row in read_rows(FOLDER / "blocks.csv", BlockRow) if row.corpus == CORPUS]


def leads(
    seeds: Sequence[int],
    tokens: int = LONGEST,
    rope: str = "",
    sinusoid: str = "",
    loss: Callable[[Result], float] = attrgetter("val_loss"),
) -> list[float]:
    """Of the sinusoid over RoPE at the last validation, by seed; each is its arm unless another setting is given."""
    backbone, alternatives = found(CORPUS)
    chosen = [f"{pos}, {other}" for pos, other in (("rope", rope), ("sinusoidal", sinusoid)) if other]
    others = [run for name in ("replication", *chosen) for run in alternatives[name]]
    runs = [run for run in (*backbone, *others) if run.tokens == tokens]
    of = {(run.pos, run.seed): run for run in runs}
    return [loss(of["rope", seed]) - loss(of["sinusoidal", seed]) for seed in seeds]


def interval(values: Sequence[float]) -> str:
    """The 95 % interval of their mean."""
    margin = stats.t.ppf(0.975, len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return f"{mean(values) - margin:.3f} to {mean(values) + margin:.3f}".replace("-0.000", "0.000")


@pytest.mark.parametrize(("tokens", "of_rope", "of_sinusoid", "seeds", "announced", "settings"), ORDERS)
def test_the_lead_of_the_sinusoid_has_an_interval_and_a_corrected_p(
    tokens, of_rope, of_sinusoid, seeds, announced, settings
):
    values = leads(seeds, BUDGETS[tokens], *settings)
    of_seeds = cells(values, ".3f").replace("-0.000", "0.000")
    setting = f"{tokens} | {of_rope} | {of_sinusoid} | {', '.join(map(str, seeds))}"
    assert f"| {setting} | {of_seeds} | {statistics(values)} | {announced} |" in COPYING
    assert "| p | p, corrected for twelve tests |" in COPYING
    assert len(ORDERS) == 12


def statistics(values: Sequence[float]) -> str:
    """Mean, interval and p, as in a table."""
    # none of the twelve is significant after correction
    assert p_of(values) * len(ORDERS) > 0.05
    return f"{mean(values):.3f} ({interval(values)}) | {p_of(values):.3f} | {min(1, len(ORDERS) * p_of(values)):.3f}"


def test_the_leads_are_in_the_results_and_beside_the_published_claims():
    first, again, longer = leads(SEEDS), leads(REPLICATION), leads(SEEDS, 2 * LONGEST)
    shorter, of_rope = leads(SEEDS, 58_982_400), [-lead for lead in longer]
    assert f"After 59.0M tokens the sinusoid ends {mean(shorter):.3f} nats lower ({interval(shorter)})." in RESULTS
    lead = f"After 78.6M tokens the sinusoid ends {mean(first):.3f} nats lower (95 % interval {interval(first)})"
    assert lead in RESULTS
    replication = "in a [replication](copying.md#the-order-of-the-arms) with three new seeds and earlier settings by"
    corrected = f"p = {p_of(again):.2f}, corrected for twelve settings {len(ORDERS) * p_of(again):.2f}"
    assert f"{replication} {mean(again):.3f} ({interval(again)}; {corrected})" in RESULTS
    assert f"After 157M RoPE ends {mean(of_rope):.3f} lower ({interval(of_rope)})" in RESULTS
    nearer = [before - after for before, after in zip(first, longer, strict=True)]
    assert f"From 78.6M to 157M tokens RoPE gains {mean(nearer):.3f} nats on it ({interval(nearer)})" in RESULTS
    ends = f"ends {first[0]:.3f} and {first[1]:.3f} below and {-first[2]:.3f} above RoPE (seeds 0 to 2; mean"
    assert f"{ends} {mean(first):.3f} below, {interval(first)})" in CLAIMS
    ends = f"{-longer[0]:.3f} above, {longer[1]:.3f} below and {-longer[2]:.3f} above (mean {-mean(longer):.3f} above,"
    assert f"at 157M {ends} {interval(of_rope)})" in CLAIMS
    assert f"by {mean(again):.3f} ({interval(again)}; {corrected})" in CLAIMS


def test_what_was_not_planned_of_these_tests_is_stated():
    together = [*leads(SEEDS, rope="base 1,000", sinusoid=OLDER), *leads(REPLICATION)]
    mean_of_six = f"{mean(together):.3f} ({interval(together)})"
    every = (
        len(ORDERS) + 4 + 4 + 8 + 1
    )  # the table, those left out, on the whole split, the next sentence, and this one
    corrected = f"is {p_of(together) * every:.3f} when corrected for the {every} tests on this page."
    exploratory = f"{mean_of_six}; its p, {p_of(together):.3f}, {corrected}"
    assert f"Over all six seeds of 78.6M with base 1,000 the mean is {exploratory}" in COPYING
    of_all = {row.key: mean(row.losses) for row in BLOCKS}
    apart, of_split = [], []
    for tokens, _, _, seeds, _, settings in ORDERS:
        with suppress(KeyError):  # not measured
            of_split.append(leads(seeds, BUDGETS[tokens], *settings, lambda run: of_all[run.key]))
            last = leads(seeds, BUDGETS[tokens], *settings)
            apart += [abs(one - other) for one, other in zip(of_split[-1], last, strict=True)]
    measured = f"for {len(of_split)} of the comparisons with former arms, the leads differ by at most {max(apart):.3f};"
    least = min(map(p_of, of_split))
    assert f"{measured} the smallest p is {least:.3f}" in COPYING
    assert f"({2 * len(ORDERS) * least:.3f} corrected for twelve tests on two measures)" in COPYING
    (replicated,) = (one for one in differences(*found(CORPUS), BLOCKS) if one.pairs[0][0].pos == "sinusoidal")
    assert f"The standard error of a lead over the text is {replicated.se:.3f}" in COPYING
    left_out = [("learning rate 0.00075", 2 * LONGEST), ("learning rate 0.006", LONGEST)]
    others = [leads(SEEDS, tokens, setting, OLDER) for setting, tokens in left_out]
    others.append(leads(SEEDS, BUDGETS["59.0M"], sinusoid="learning rate 0.003, amplitude 0.2"))
    others.append(leads(SEEDS, BUDGETS["59.0M"], rope="base 100,000"))
    of_rate, of_base, of_amplitude, of_lower_base = (f"(p = {p_of(values):.3f})" for values in others)
    assert f"0.00075 with base 10,000 and 157M {of_rate} and at 0.006 with base 1,000 and 78.6M {of_base}," in COPYING
    assert f"at 59.0M the sinusoid at 0.003 with amplitude 0.2 {of_amplitude}" in COPYING
    assert f"RoPE at 0.003 with base 100,000 {of_lower_base};" in COPYING
    assert min(map(p_of, others)) * (len(ORDERS) + 4) > 0.05  # "corrected for sixteen tests none is significant"


def test_how_the_sinusoid_s_arms_compare_with_the_former_settings_of_rope_is_stated():
    high, low, slow = RATE.format("0.006"), RATE.format("0.003"), "learning rate 0.006"
    of_longest = [leads(SEEDS, rope=setting) for setting in (low, "base 100,000", "base 1,000", slow, high)]
    of_double = [leads(SEEDS, 2 * LONGEST, setting) for setting in (FORMER, "learning rate 0.00075", high)]
    all_leads = [*of_longest, *of_double]
    p, means = sorted(map(p_of, all_leads)), sorted(map(mean, all_leads))
    assert len(p) == 8
    assert p[0] * (len(ORDERS) + len(p)) > 0.05  # "none is significant when corrected for all twenty tests"
    stated = f"by {means[0]:.3f} to {means[-1]:.3f} on average (p = {p[0]:.3f} to {p[-1]:.2f}; "
    assert f"over each of RoPE's eight other settings with these seeds, {stated}" in COPYING


def test_the_sd_over_seeds_is_stated():
    of: dict[tuple, list[float]] = {}
    for run in STUDY.on(CORPUS):
        if run.tokens == LONGEST and run.setting in (BACKBONE, SEARCH):
            of.setdefault((run.pos, run.lr, run.scale or run.base), []).append(run.val_loss)
    of_sinusoid = [("sinusoidal", 0.003, "0.2"), ("sinusoidal", 0.0042, "0.1")]
    alike = [("rope", 0.003, "1000"), ("rope", 0.006, "1000"), *of_sinusoid]
    sds, (arm, fast, mixed) = (
        [stdev(of[setting]) for setting in settings]
        for settings in (alike, [("rope", 0.0042, "1000000"), ("rope", 0.006, "1000000"), ("sinusoidal", 0.006, "0.1")])
    )
    assert {len(of[setting]) for setting in alike} == {3, 4, 7}
    spread = f"is {min(sds):.4f} to {max(sds):.4f} where all runs copy or none does (3 to 7 seeds)"
    assert f"The SD over seeds {spread}" in COPYING
    assert f"{min(arm, fast):.3f} to {mixed:.3f} where only some do" in COPYING
    assert max(sds) < min(arm, fast) < max(arm, fast) < mixed


def test_which_sinusoidal_runs_copy_and_that_the_learned_tables_that_copy_end_above_rope():
    gains = {row.key: row.first - row.second for row in COPIED if row.setting in (BACKBONE, SEARCH)}
    runs = [run for run in STUDY.on(CORPUS) if run.key in gains and run.tokens >= LONGEST]
    sinusoids = [gains[run.key] for run in runs if run.pos == "sinusoidal"]
    silent, most = sorted(sinusoids)[:2], sorted(sinusoids)[2:]
    of_all = f"in {len(most)} of the {len(sinusoids)} runs of 78.6M and 157M tokens that were measured"
    assert f"The sinusoid copies {of_all} ({-most[0]:.2f} to {-most[-1]:.2f}; four of 157M with" in COPYING
    unmeasured = [
        (run.tokens, run.seed, run.scale, run.lr)
        for run in STUDY.on(CORPUS)
        if run.pos == "sinusoidal" and run.setting in (BACKBONE, SEARCH) and run.tokens >= LONGEST
        if run.key not in gains
    ]
    rates = (0.0015, 0.003, 0.0042, 0.006)
    assert sorted(unmeasured) == [(2 * LONGEST, 100, "0.1", rate) for rate in rates]
    assert "amplitude 0.1, at 0.0015, 0.003, 0.0042 and 0.006 and with seed 100, were not)." in COPYING
    of_59 = {
        (run.lr, run.seed, run.scale): gains[run.key]
        for run in STUDY.on(CORPUS)
        if (run.pos, run.tokens) == ("sinusoidal", BUDGETS["59.0M"]) and run.key in gains
    }
    assert [gain > 0.2 for (rate, *_), gain in of_59.items() if rate == 0.003] == [True] * 8
    assert len(of_59) == 8 + 2 + 1
    assert silent[1] < 0.045 < 0.2 < most[0]
    exceptions = sorted(
        (run for run in runs if run.pos == "sinusoidal" and gains[run.key] in silent), key=lambda run: run.seed
    )
    assert {(run.lr, run.scale, run.tokens) for run in exceptions} == {(0.006, "0.1", LONGEST)}
    ends = listed((run.val_loss for run in exceptions), 3)
    of_two = f"({cells((-gains[run.key] for run in exceptions), '.2f')}), do not, and end at {ends}"
    seeds = listed((run.seed for run in exceptions), 0)
    assert f"The other two, at 0.006 with amplitude 0.1 and seeds {seeds} {of_two}," in COPYING
    ropes = [run.val_loss for run in runs if (run.pos, run.tokens) == ("rope", LONGEST)]
    assert min(run.val_loss for run in exceptions) > max(ropes)  # "above every run of RoPE"
    arms = [run for run in found(CORPUS)[0] if run.tokens >= LONGEST and run.pos in ("sinusoidal", "rope")]
    copy = [(run.pos, gains[run.key] > 0.2) for run in arms]
    assert [copy.count((pos, True)) for pos in ("sinusoidal", "rope")] == [6, 3]
    assert len(arms) == 12
    assert "At 79M and 157M all six sinusoidal runs [copy](docs/copying.md) passages that recur" in README
    of_sinusoid = {(run.tokens, run.seed): run.val_loss for run in arms if run.pos == "sinusoidal"}
    lower = [run for run in arms if run.val_loss < of_sinusoid[run.tokens, run.seed]]
    assert [gains[run.key] > 0.2 for run in lower] == [True] * 3
    assert "and of RoPE's six runs only the three that also copy end below the sinusoid of their seed;" in README
    assert (
        f"Of the {len(sinusoids)} sinusoidal runs of 78.6M and 157M tokens that were measured {len(most)} copy"
        in RESULTS
    )
    rope = {run.seed: run.val_loss for run in found(CORPUS)[0] if (run.pos, run.tokens) == ("rope", LONGEST)}
    copying = [run for run in runs if run.pos == "learned" and gains[run.key] > 0.2]
    others = [run.val_loss for run in runs if run.pos == "learned" and run not in copying]
    assert (len(copying), len(others)) == (2, 4)
    apart = [loss - run.val_loss for loss in others for run in copying]
    assert f"copy, and end {min(apart):.2f} to {max(apart):.2f} nats below the other four." in COPYING
    (_, above_own), (_, above_copying) = sorted((run.seed, run.val_loss - rope[run.seed]) for run in copying)
    of_first = f"these two end {above_own:.3f} above RoPE's run of seed 0, which does not copy,"
    assert f"{of_first} and {above_copying:.3f} above that of seed 2, which does." in COPYING
    assert all(run.val_loss > rope[run.seed] for run in copying)
    assert "Two runs with learned position embeddings copy and still end above RoPE." in RESULTS


def test_what_is_copied_with_bpe_tokens_is_stated():
    rows = [row for row in COPIED if "tokenizer=bpe" in row.setting]
    ropes, sinusoids = ([row for row in rows if row.pos == pos] for pos in ("rope", "sinusoidal"))
    of_bpe = [run for run in STUDY.on(CORPUS) if (run.setting, run.tokens) == (rows[0].setting, rows[0].tokens)]
    ends = {(run.pos, run.seed): run.val_loss for run in of_bpe}
    for rope, sinusoid in zip(ropes, sinusoids, strict=True):
        gaps = (ends["rope", rope.seed] - ends["sinusoidal", rope.seed], rope.new - sinusoid.new)
        differences = " | ".join(f"{gap:+.3f}" for gap in (*gaps, rope.seen - sinusoid.seen))
        assert f"| {rope.seed} | {copied([sinusoid])} | {copied([rope])} | {differences} |" in COPYING
    rope, sinusoid = ropes[0], sinusoids[0]
    apart = {(row.pos, row.distance): row.val_loss for row in read_rows(FOLDER / "distances.csv", DistanceRow)
             if row.key in (rope.key, sinusoid.key)}  # fmt: skip
    near, far, of_sinusoid, at_last = (
        f"{apart[pos, 0] - apart[pos, back]:.2f}" for pos in ("rope", "sinusoidal") for back in (32, 224)
    )
    assert f"by {near} nats per token if it is 32 tokens back, by {far} if it is 224 back" in COPYING
    assert f"with the sinusoid by {of_sinusoid} and {at_last}." in COPYING


def test_the_sinusoid_s_arm_trained_again_on_the_cpu_is_stated_beside_its_runs_on_the_gpu():
    again = sorted(read_rows(FOLDER / "devices.csv", Result), key=attrgetter("seed"))
    backbone, _ = found(CORPUS)
    before = [next(run for run in backbone if run.key == other.key) for other in again]
    assert all("EPYC" in run.hardware for run in again)
    assert all("H200" in run.hardware for run in before)
    losses = [listed((run.val_loss for run in runs), 3) for runs in (again, before)]
    copies = listed((float(row["second"]) - float(row["first"]) for row in read_csv(FOLDER / "devices.csv")), 2)
    assert [run.seed for run in again] == [0, 1, 2]
    assert f"it ends at {losses[0]} nats instead of {losses[1]}, and its second minus first is {copies}," in COPYING
    apart = [new.val_loss - old.val_loss for new, old in zip(again, before, strict=True)]
    assert max(map(abs, apart)) < 0.015  # as expected
    assert abs(mean(apart)) < 0.006  # as expected
    arms = [run for run in backbone if run.pos in ("rope", "sinusoidal")]
    tokens = BUDGETS["59.0M"]
    points = [
        point
        for runs in (replaced(arms, again), arms)
        for point in advantage(runs, "rope", "sinusoidal")
        if point.tokens == tokens
    ]
    now, then = (formatting.interval(point.advantage, 2) for point in points)
    by_seed = [listed(point.by_seed.values(), 2) for point in points]
    assert f"N is {now} instead of {then}, by seed {by_seed[0]} instead of {by_seed[1]}." in COPYING
    assert abs(points[0].advantage.value - points[1].advantage.value) < 0.1  # as expected
