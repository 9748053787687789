"""What the pages say of the longest runs, where the sinusoid leads and copies, is in the committed results."""

import math
import re
from collections.abc import Sequence
from statistics import mean, stdev

from scipy import stats

from posenc.analysis.results import BlockRow, CopyingRow, DistanceRow, RemovedHeadRow, Result
from posenc.analysis.validation_error import Difference, differences
from posenc.storage.csv_files import read_rows
from tests.claim_map_pages import CLAIMS, COPYING, CORPUS, FOLDER, LONGEST, README, STUDY, found, listed

SEEDS, REPLICATION = (0, 1, 2), (3, 4, 5)


def paired(tokens: int = LONGEST) -> Sequence[Difference]:
    rows = [row for row in read_rows(FOLDER / "blocks.csv", BlockRow) if row.corpus == CORPUS]
    return [
        one
        for one in differences(*found(CORPUS), rows)
        if one.pairs[0][0].tokens == tokens and one.pairs[0][0].pos == "sinusoidal"
    ]


def whole(one: Difference) -> dict[int, float]:
    """The baseline's lead on the whole validation split, by seed."""
    rows = {row.key: row.losses for row in read_rows(FOLDER / "blocks.csv", BlockRow)}
    return {own.seed: mean(rows[arm.key]) - mean(rows[own.key]) for own, arm in one.pairs}


def lead(one: Difference) -> str:
    return listed(whole(one).values(), 3)


def in_training(one: Difference) -> str:
    """The baseline's lead at the last validation, by seed."""
    return listed((arm.val_loss - own.val_loss for own, arm in one.pairs), 3)


def leads(seeds: Sequence[int], tokens: int = LONGEST) -> list[float]:
    """Of the sinusoid over RoPE, each at its best learning rate there, at the last validation, by seed."""
    backbone, alternatives = found(CORPUS)
    runs = [run for run in (*backbone, *alternatives["replication"]) if run.tokens == tokens]
    of = {(run.pos, run.seed): run.val_loss for run in runs}
    return [of["rope", seed] - of["sinusoidal", seed] for seed in seeds]


def over_seeds(values: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of their mean."""
    margin = stats.t.ppf(0.975, len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return mean(values) - margin, mean(values) + margin


def in_cells(rows: Sequence[CopyingRow]) -> str:
    """Second minus first occurrence, by seed, as in a table."""
    return ", ".join(f"{row.second - row.first:.2f}" for row in rows)


def test_the_lead_of_the_sinusoid_has_its_interval_over_seeds():
    first = leads(SEEDS)
    low, high = over_seeds(first)
    interval = f"{low:.3f} to {high:.3f}"
    assert f"After 78.6M tokens the sinusoid leads by {mean(first):.3f} nats (95 % interval {interval})" in README
    assert f"lower than RoPE at 0.003 by {listed(first, 3)} nats (seeds 0, 1 and 2;" in COPYING
    p = stats.ttest_1samp(first, 0).pvalue
    assert f"in the mean by {mean(first):.3f} ({interval}; p = {p:.3f})" in COPYING
    assert low < 0


def test_the_replication_of_that_lead_has_an_interval_of_its_own():
    again = leads(REPLICATION)
    interval = "{:.3f} to {:.3f}".format(*over_seeds(again))
    p = stats.ttest_1samp(again, 0).pvalue
    replication = "in a [replication](docs/copying.md#the-order-of-the-arms) with three new seeds by"
    assert f"{replication} {mean(again):.3f} ({interval})" in README
    corrected = f"or {2 * p:.3f} corrected for the two tests of this order at this budget, {3 * p:.3f} for all three"
    test = f"{interval}; p = {p:.3f}, {corrected}"
    assert f"gives leads of {listed(again, 3)}, {mean(again):.3f} in the mean ({test})" in COPYING
    assert f"by {mean(again):.3f}, {interval}, in a replication" in CLAIMS
    together = leads([*SEEDS, *REPLICATION])
    low, high = over_seeds(together)
    assert f"Over all six seeds it is {mean(together):.3f} ({low:.3f} to {high:.3f}" in COPYING
    assert f"over all six by {mean(together):.3f} ({low:.3f} to {high:.3f}; exploratory)" in README


def test_the_lead_with_twice_the_tokens_has_an_interval_of_its_own():
    longer = leads(SEEDS, 2 * LONGEST)
    again = leads(REPLICATION)
    assert min(*leads(SEEDS), *again, *longer) > 0
    tests = "none of three tests of this, of which one was announced before its runs, is significant after correction"
    assert f"in all nine pairs of runs (six seeds); {tests}" in README
    interval = "{:.3f} to {:.3f}".format(*over_seeds(longer))
    p, before = (stats.ttest_1samp(of_test, 0).pvalue for of_test in (longer, again))
    assert (
        f"after 157M by {mean(longer):.3f} ({interval}; p = {p:.3f}, corrected for the three tests {3 * p:.3f})"
        in README
    )
    ends = f"ends lower by {listed(longer, 3)} nats, in the mean by {mean(longer):.3f} ({interval};"
    assert f"{ends} p = {p:.3f}, or {3 * p:.3f} corrected" in COPYING
    assert f"after 157M with each of three (by {mean(longer):.3f}, {interval})" in CLAIMS
    assert 3 * min(p, before, stats.ttest_1samp(leads(SEEDS), 0).pvalue) > 0.05
    of_trials = [run for run in STUDY.on(CORPUS) if (run.tokens, run.seed) == (2 * LONGEST, 100)]
    losses = {(run.pos, run.lr, run.scale, run.base): run.val_loss for run in of_trials}
    fourth = losses["rope", 0.0015, "", "10000"] - losses["sinusoidal", 0.003, "0.1", "10000"]
    assert f"With the seed of the trials, 100, RoPE ends {-fourth:.3f} lower at the same two settings" in COPYING
    assert f"With the seed used for tuning RoPE copies a little and ends {-fourth:.3f} lower there" in README
    low, high = over_seeds([*longer, fourth])
    assert f"as a fourth pair the mean is {mean([*longer, fourth]):.3f} ({low:.3f} to {high:.3f})" in COPYING
    assert f"with this pair the mean is {mean([*longer, fourth]):.3f} ({low:.3f} to {high:.3f})" in README

    (one,) = (one for one in paired(2 * LONGEST) if one.pairs[0][1].lr == 0.0015)
    low, high = over_seeds([*whole(one).values()])
    assert f"{lead(one)} on the [whole validation split]" in COPYING
    p = stats.ttest_1samp([*whole(one).values()], 0).pvalue
    corrected = f"p = {p:.3f}, or {6 * p:.3f} corrected for three tests on two measures"
    exploratory = f"mean {-one.value:.3f}, {low:.3f} to {high:.3f}; {corrected}"
    assert f"({exploratory}; standard error over the text {one.se:.3f})" in COPYING


def test_the_lead_of_the_sinusoid_is_that_on_the_whole_validation_split():
    searched, halved = sorted(paired(), key=lambda one: -one.pairs[0][1].lr)
    assert [own.seed for own, _ in searched.pairs] == [*SEEDS]
    assert halved.pairs[0][1].lr == searched.pairs[0][1].lr / 2
    assert all(f"{one.se:.3f}" == "0.001" for one in (searched, halved))
    assert f"{in_training(searched)} below RoPE at 0.006 ({lead(searched)} on the whole split)" in COPYING
    seeds = listed((own.seed for own, _ in halved.pairs), 0)
    assert f"The lead is {lead(halved)} with seeds {seeds} on the [whole validation split]" in COPYING
    again = [whole(halved)[seed] for seed in REPLICATION]
    low, high = over_seeds(again)
    assert f"there the replication has a mean of {mean(again):.3f} ({low:.3f} to {high:.3f})" in COPYING


def test_at_equal_learning_rates_the_lead_and_the_sd_over_seeds_are_stated():
    runs = [run for run in STUDY.on(CORPUS) if run.tokens == LONGEST and run.scale in ("", "0.1")]
    of = {(run.pos, run.base, run.lr, run.seed): run.val_loss for run in runs}
    lead = of["rope", "1000", 0.003, 100] - of["sinusoidal", "10000", 0.003, 100]
    arms = ("rope", "1000", 0.003), ("rope", "1000", 0.006), ("sinusoidal", "10000", 0.0042)
    sds = [stdev(of[*arm, seed] for seed in (*range(6), 100) if (*arm, seed) in of) for arm in arms]
    stated = f"the lead is {lead:.3f} .* is {min(sds):.4f} to {max(sds):.3f} in either arm"
    assert re.search(stated, COPYING)


def test_what_is_copied_and_the_lead_without_the_context_are_stated():
    rows = [row for row in read_rows(FOLDER / "copying.csv", CopyingRow) if row.tokens == LONGEST]
    of = {(row.pos, row.lr, row.seed): row for row in rows}
    sinusoids = [of["sinusoidal", 0.0042, seed] for seed in (*SEEDS, *REPLICATION)]
    ropes = [of["rope", 0.003, seed] for seed in (*SEEDS, *REPLICATION)]
    for three in sinusoids[:3], sinusoids[3:]:
        assert f"| {in_cells(three)} |" in COPYING
    pairs = list(zip(ropes, sinusoids, strict=True))
    assert f"leads RoPE at 0.003 by {listed((rope.own - sinusoid.own for rope, sinusoid in pairs), 3)} nats" in COPYING
    assert f"is {listed((sinusoid.foreign - rope.foreign for rope, sinusoid in pairs), 3)} behind" in COPYING
    gaps = [(sinusoid.new - rope.new, rope.seen - sinusoid.seen) for rope, sinusoid in pairs]
    novel, repeated = (listed(of_seeds, 3) for of_seeds in zip(*gaps, strict=True))
    assert f"ends {novel} below the sinusoid (seeds 0 to 5), in repeated ones {repeated} above it" in COPYING
    copied, ahead = [row.first - row.second for row in sinusoids], leads([*SEEDS, *REPLICATION])
    of_least = [sorted(range(6), key=values.__getitem__)[:2] for values in (copied, ahead)]
    assert set(of_least[0]) == set(of_least[1])  # "The two of the six seeds that copy least have the smallest leads"


def test_what_both_arms_copy_in_the_longer_runs_is_in_readme():
    rows = [row for row in read_rows(FOLDER / "copying.csv", CopyingRow) if row.tokens in (LONGEST, 2 * LONGEST)]
    at_their_best = {LONGEST: {"sinusoidal": 0.0042, "rope": 0.003}, 2 * LONGEST: {"sinusoidal": 0.003, "rope": 0.0015}}
    in_pairs = [row for row in rows if row.seed < 100 and at_their_best[row.tokens].get(row.pos) == row.lr]
    assert len(in_pairs) == 2 * len([*SEEDS, *REPLICATION, *SEEDS]) == 18
    copied, rotated = ([row.first - row.second for row in in_pairs if row.pos == pos] for pos in ("sinusoidal", "rope"))
    of_rope = [row.first - row.second for row in rows if row.pos == "rope"]
    lower = f"{min(copied):.2f} to {max(copied):.2f} nats lower than at its first occurrence"
    assert f"its loss on text that occurs a second time within the window is {lower}" in README
    most = f"(at most {max(of_rope):.2f} in all {len(of_rope)} of its runs of these lengths)"
    assert f"RoPE's {min(rotated):.2f} to {max(rotated):.2f} {most}" in README


def test_what_is_copied_with_twice_the_tokens_is_stated():
    rows = [row for row in read_rows(FOLDER / "copying.csv", CopyingRow) if row.tokens == 2 * LONGEST]
    of = {(row.pos, row.lr, row.seed): row for row in rows if row.scale in ("", "0.1")}
    sinusoids, verdict = ([of[*arm, seed] for seed in SEEDS] for arm in (("sinusoidal", 0.003), ("rope", 0.0015)))
    ropes = [row for row in rows if row.pos == "rope"]
    assert f"| {in_cells(sinusoids)} |" in COPYING
    ends = [run for run in STUDY.on(CORPUS) if run.tokens == 2 * LONGEST]
    most = max(ropes, key=lambda row: row.first - row.second)
    (lowest,) = (run.val_loss for run in ends if run.key == most.key)
    assert lowest < min(run.val_loss for run in ends if (run.pos, run.seed) == ("sinusoidal", most.seed))
    pairs = list(zip(verdict, sinusoids, strict=True))
    novel, repeated, own, foreign = (
        listed(values, 3)
        for values in zip(
            *(
                (sine.new - rope.new, rope.seen - sine.seen, rope.own - sine.own, sine.foreign - rope.foreign)
                for rope, sine in pairs
            ),
            strict=True,
        )
    )
    assert f"is {novel} below the sinusoid (seeds 0, 1 and 2), in repeated ones {repeated} above it" in COPYING
    assert (
        f"the sinusoid leads by {own}; without the text more than 32 bytes before that quarter it is {foreign}"
        in COPYING
    )


def test_what_is_copied_with_bpe_tokens_is_stated():
    rows = [row for row in read_rows(FOLDER / "copying.csv", CopyingRow) if "tokenizer=bpe" in row.setting]
    ropes, sinusoids = ([row for row in rows if row.pos == pos] for pos in ("rope", "sinusoidal"))
    both = [" and ".join(f"{row.second - row.first:.2f}" for row in of_arm) for of_arm in (sinusoids, ropes)]
    assert f"second minus first is {both[0]} nats per token with the sinusoid and {both[1]} with RoPE" in COPYING
    of_bpe = [run for run in STUDY.on(CORPUS) if (run.setting, run.tokens) == (rows[0].setting, rows[0].tokens)]
    ends = {(run.pos, run.seed): run.val_loss for run in of_bpe}
    below = listed((ends["sinusoidal", row.seed] - ends["rope", row.seed] for row in ropes), 3)
    pairs = list(zip(ropes, sinusoids, strict=True))
    novel, repeated = (
        listed(gaps, 3) for gaps in zip(*((two.new - one.new, one.seen - two.seen) for one, two in pairs), strict=True)
    )
    gaps = f"{novel} below in novel contexts and {repeated} above in repeated ones"
    assert f"RoPE ends {below} below, {gaps}" in COPYING
    rope, sinusoid = ropes[0], sinusoids[0]
    apart = {(row.pos, row.distance): row.val_loss for row in read_rows(FOLDER / "distances.csv", DistanceRow)
             if row.key in (rope.key, sinusoid.key)}  # fmt: skip
    near, far, of_sinusoid, at_last = (
        f"{apart[pos, 0] - apart[pos, back]:.2f}" for pos in ("rope", "sinusoidal") for back in (32, 224)
    )
    assert f"by {near} nats per token if it is 32 tokens back, by {far} if it is 224 back" in COPYING
    assert f"with the sinusoid by {of_sinusoid} and {at_last}." in COPYING


def test_what_fewer_rotated_channels_change_is_stated():
    runs = [run for run in STUDY.on(CORPUS) if run.tokens == LONGEST]
    of = {(run.pos, run.lr, run.base, run.seed): run for run in runs}
    hybrids, controls = (
        [of[pos, 0.003, base, seed] for seed in (0, 1)] for pos, base in (("nope_hybrid", "10000"), ("rope", "1000"))
    )
    sinusoids = [of["sinusoidal", 0.0042, "10000", seed] for seed in (0, 1)]
    hybrid, partial, control, sinusoid, other = (
        of[*arm, "10000", 100]
        for arm in (
            ("nope_hybrid", 0.003),
            ("rope_partial", 0.003),
            ("rope", 0.003),
            ("sinusoidal", 0.003),
            ("sinusoidal", 0.006),
        )
    )

    def below(ones: Sequence[Result], others: Sequence[Result]) -> str:
        return listed((high.val_loss - low.val_loss for low, high in zip(ones, others, strict=True)), 3)

    assert f"It ends {below([hybrid], [control])} nats below that RoPE." in COPYING
    assert f"and end {below(hybrids, controls)} below RoPE of the same seed" in COPYING
    against = f"it ends {below(hybrids, sinusoids)} lower (seeds 0 and 1), and, with seed 100, "
    against += f"{below([hybrid], [other])} lower than the sinusoid at 0.006 and {below([hybrid], [sinusoid])} lower"
    assert f"Against the sinusoid at its best rate {against} than at 0.003" in COPYING
    ends = f"it does with each of three seeds, and ends {below(hybrids, sinusoids)} nats below the sinusoid (two seeds)"
    assert f"RoPE can copy too: without positions in its last layer {ends}" in README
    assert max(run.val_loss for run in hybrids) < min(run.val_loss for run in sinusoids)
    ends = f"{below([partial], [control])} below RoPE of the same seed, base and learning rate"
    assert f"It ends {ends}, and {below([partial], [other])} below the sinusoid at 0.006" in COPYING
    gains = {row.key: row.first - row.second for row in read_rows(FOLDER / "copying.csv", CopyingRow)}
    partials = sorted((run for run in runs if run.pos == "rope_partial"), key=lambda run: run.seed)
    late = [run for run in partials if gains[run.key] < 0.1]
    copying = [run for run in runs if run.pos in ("nope_hybrid", "rope_partial") and gains[run.key] > 0.2]
    assert (
        min(gains[run.key] for run in copying) > 0.3 > 0.02 > max(gains[one.key] for one in (*late, control, *controls))
    )
    words = ("no", "one", "two", "three")
    share = f"with {words[sum(run in copying for run in partials)]} of {words[len(partials)]} seeds"
    assert f"does so {share}" in COPYING
    ropes = {0: controls[0], 1: controls[1], 100: control}
    stated = f"not copy, and ends {below(late, [ropes[run.seed] for run in late])} below RoPE of the same seed"
    assert stated in COPYING
    novel = {row.key: row.new for row in read_rows(FOLDER / "copying.csv", CopyingRow)}
    gaps = listed((novel[ropes[run.seed].key] - novel[run.key] for run in partials), 3)
    seeds = listed((run.seed for run in partials), 0)
    assert f"In novel contexts it is {gaps} below RoPE (seeds {seeds})" in COPYING
    last = max(run.val_loss for run in copying)
    assert last < min(run.val_loss for run in runs if run not in copying)  # "and ends below the sinusoid"
    assert min(runs, key=lambda run: run.val_loss) == partial  # "the lowest of all runs"


def test_the_one_head_that_copies_is_stated():
    rows = read_rows(FOLDER / "removed_heads.csv", RemovedHeadRow)
    whole, without = [], []
    for pos, seed in ("nope_hybrid", 0), ("nope_hybrid", 1), ("nope_hybrid", 100), ("rope_partial", 100):
        all_heads, *heads = [row for row in rows if (row.pos, row.seed) == (pos, seed)]
        gained, *others = sorted((row.first - row.second, row.layer) for row in heads)
        assert gained[1] == 4
        assert all(gain > 0.195 for gain, _ in others)  # "Without any one head ... each model still copies"
        whole.append(all_heads.first - all_heads.second)
        without.append(gained[0])
    assert f"{-max(without):.2f} and {min(without):.2f}" == "-0.02 and 0.00"
    assert f"goes from {listed((-gain for gain in whole), 2)} to between -0.02 and 0.00" in COPYING


def test_the_one_head_that_copies_a_little_is_stated():
    rows = read_rows(FOLDER / "removed_heads.csv", RemovedHeadRow)
    whole, *heads = [row for row in rows if (row.pos, row.seed) == ("rope_partial", 1)]
    least, second, *_ = sorted(heads, key=lambda row: row.first - row.second)
    assert least.layer == 4
    goes = f"from {whole.second - whole.first:.2f} to {least.second - least.first:.2f}"
    stated = f"one head of the last layer too: {goes}; without any other head it is"
    assert f"{stated} {second.second - second.first:.2f} at the least" in COPYING
    copied = {row.key for row in rows if row.layer == 0 and row.first - row.second > 0.1 and "bpe" not in row.setting}
    assert len(copied) == 8
    assert "So in each of the eight models of bytes that copy and were measured, one of them only a little," in COPYING


def test_the_one_head_that_copies_with_the_sinusoid_is_stated():
    rows = [row for row in read_rows(FOLDER / "removed_heads.csv", RemovedHeadRow) if row.tokens == LONGEST]
    rows = [row for row in rows if row.pos == "sinusoidal"]
    whole, *heads = [row for row in rows if row.seed == 100]
    all_heads, *others = [row for row in rows if row.seed == 2]
    broken, last, other, *_ = sorted(others, key=lambda row: row.first - row.second)
    assert (broken.layer, last.layer) == (1, 4)
    goes = f"{all_heads.second - all_heads.first:.2f} to {abs(last.second - last.first):.2f}"
    rest = f"it is {other.second - other.first:.2f} at the least, but for one head of the first layer"
    assert f"With seed 2 it is a head of the last layer: {goes}; without any other {rest}" in COPYING
    assert f"without which the loss at the first occurrence is {broken.first:.1f}" in COPYING
    least, second, third, *_ = sorted(heads, key=lambda row: row.first - row.second)
    assert (least.layer, second.layer) == (3, 1)
    goes = f"{whole.second - whole.first:.2f} to {abs(least.second - least.first):.2f}"
    rises = f"rises by {least.seen - whole.seen:.2f}, to {least.seen:.3f}, and that in novel ones by"
    novel = f"{least.new - whole.new:.2f}"
    assert f"second minus first goes from {goes}, the loss in repeated contexts {rises} {novel}." in COPYING
    raised = f"also raises the loss at the first occurrence by {second.first - whole.first:.1f}"
    first_layer = f"for a head of the first layer that {raised}, and {third.second - third.first:.2f} for the others"
    assert f"it is {second.second - second.first:.2f} at the least, {first_layer}" in COPYING
