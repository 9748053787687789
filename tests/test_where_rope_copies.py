"""What the page on copying says of the runs of RoPE that copy, of models that rotate less, and of single heads."""

import math
from collections import Counter
from collections.abc import Sequence
from operator import attrgetter

from posenc.analysis.results import CopyingRow, RemovedHeadRow, Result
from posenc.analysis.run_key import BACKBONE, SEARCH
from posenc.storage.csv_files import read_rows
from tests.claim_map_pages import (
    COPIED,
    COPYING,
    CORPUS,
    FOLDER,
    LONGEST,
    RESULTS,
    STUDY,
    cells,
    copied,
    listed,
)

SEEDS = (0, 1, 2)
COPIES = -0.2
"""Second minus first, in nats per byte, below which a model copies, in the words of docs/copying.md."""

seed_of = attrgetter("seed")


def test_the_runs_of_rope_that_copy_are_counted_and_end_below_the_sinusoid():
    ends = {run.key: run.val_loss for run in STUDY.on(CORPUS)}
    longest = [row for row in COPIED if row.tokens in (LONGEST, 2 * LONGEST) and row.setting in (BACKBONE, SEARCH)]
    rows = [row for row in longest if row.pos == "rope"]
    copying = [row for row in rows if row.second - row.first < COPIES]
    others = [row for row in rows if row not in copying]
    large = [row for row in rows if int(row.base) >= 1_000_000]
    least = max(row.first - row.second for row in others)
    share = f"in {len(copying)} of {len(rows)} runs"
    assert f"{share}, all of them with a base of 1,000,000" in COPYING
    assert f"The other {len(others)} copy less: -{least:.2f} nats at the most." in COPYING
    assert all(row in large for row in copying)

    def lead(row: CopyingRow) -> float:
        """Of the sinusoid's lowest run with that seed and budget."""
        pair = ("sinusoidal", row.tokens, row.seed)
        return ends[row.key] - min(run.val_loss for run in STUDY.on(CORPUS) if is_of(run, pair))

    above, *below = sorted(-lead(row) for row in copying)
    assert above < 0 < below[0]
    stated = "Ten of these eleven end below every sinusoid of the same seed and budget, "
    stated += f"by {below[0]:.3f} to {below[-1]:.3f} nats"
    assert (len(below), len(copying)) == (10, 11)
    assert f"{stated}, one {-above:.3f} above the lowest." in COPYING
    (exception,) = (row for row in others if lead(row) < 0)
    assert f"only one, which copies a little ({exception.second - exception.first:.2f}), ends below" in COPYING
    of_seed = {seed: [row in copying for row in large if row.seed == seed] for seed in (100, 2)}
    others_of = [row in copying for row in large if row.seed not in of_seed]
    counts = [(sum(of), len(of)) for of in (*of_seed.values(), others_of)]
    assert counts == [(6, 11), (4, 5), (1, 13)]
    stated = "six of eleven with seed 100, four of five with seed 2 and one of thirteen with other seeds;"
    assert f"There {len(copying)} of {len(large)} runs copy, {stated}" in COPYING
    assert f"with a smaller base none of {len(rows) - len(large)} (" in COPYING
    assert f"Ten of these {len(copying)} end below every sinusoid of the same seed and budget." in RESULTS
    assert f"and {len(copying)} of the {len(rows)} of RoPE with all channels rotated in all layers," in RESULTS


def test_among_runs_of_rope_matched_by_budget_rate_and_seed_those_that_copy_have_the_larger_base():
    matched: dict[tuple, list[tuple[bool, bool]]] = {}
    for row in COPIED:
        if row.pos == "rope" and row.tokens >= LONGEST and row.setting in (BACKBONE, SEARCH):
            of = matched.setdefault((row.tokens, row.lr, row.seed), [])
            of.append((int(row.base) >= 1_000_000, row.second - row.first < COPIES))
    both = {key: runs for key, runs in matched.items() if len({large for large, _ in runs}) == 2}
    copies = [large for runs in both.values() for large, copied in runs if copied]
    assert copies == [True] * 6
    assert {seed for (*_, seed), runs in both.items() if any(copied for _, copied in runs)} == {2, 100}
    # The probability that, within each stratum, only runs with a large base copy.
    p = 1.0
    for runs in both.values():
        large, copied = (sum(values) for values in zip(*runs, strict=True))
        p *= math.comb(large, copied) / math.comb(len(runs), copied)
    stated = f"all six runs that copy have the larger base (exact permutation test, one-sided p = {p:.2f})"
    assert f"Matched by budget, rate and seed, {stated}" in COPYING


def test_what_rope_copies_is_stated_for_every_base_and_rate():
    rows = [row for row in COPIED if row.tokens in (LONGEST, 2 * LONGEST) and row.pos == "rope"]
    rows = [row for row in rows if row.setting in (BACKBONE, SEARCH)]
    for base, lr in {(row.base, row.lr) for row in rows}:
        of_setting = [row for row in rows if (row.base, row.lr) == (base, lr)]
        by_budget = [cell([row for row in of_setting if row.tokens == tokens]) for tokens in (LONGEST, 2 * LONGEST)]
        assert f"| {int(base):,} | {lr:g} | {' | '.join(by_budget)} |".replace("  ", " ") in COPYING


def cell(runs: Sequence[CopyingRow]) -> str:
    """Second minus first occurrence by seed, that of seed 100 in parentheses."""
    gains = {run.seed: run.second - run.first for run in sorted(runs, key=seed_of)}
    shown = {seed: f"**{gain:.2f}**" if gain < COPIES else f"{gain:.2f}" for seed, gain in gains.items()}
    of_trials = [f"({shown.pop(100)})"] if 100 in shown else []
    return " ".join([", ".join(shown.values()), *of_trials]).strip()


def test_what_the_sinusoid_copies_in_shorter_runs_is_stated_for_every_setting():
    rows = [row for row in COPIED if row.tokens in (LONGEST // 2, 3 * LONGEST // 4) and row.pos == "sinusoidal"]
    of: dict[tuple[int, float, str], list[CopyingRow]] = {}
    for row in sorted(rows, key=seed_of):
        if row.setting in (BACKBONE, SEARCH):
            of.setdefault((row.tokens, row.lr, row.scale), []).append(row)
    assert len(of) == 8
    for (tokens, lr, amplitude), runs in of.items():
        seeds = ", ".join(str(run.seed) for run in runs if run.seed != 100)
        stated = f"| {tokens / 1e6:.1f}M | {lr:g} | {amplitude} | {seeds} | {cell(runs)} |"
        assert stated.replace("  ", " ") in COPYING


def is_of(run: Result, pair: tuple[str, int, int]) -> bool:
    """A run of this scheme, budget and seed, with nothing else changed."""
    return run.setting in (BACKBONE, SEARCH) and (run.pos, run.tokens, run.seed) == pair


def test_the_best_trials_of_both_arms_with_78_6m_tokens_are_stated():
    trials = [run for run in STUDY.on(CORPUS) if (run.setting, run.tokens) == (SEARCH, LONGEST)]
    of_rope, of_sinusoid = ([run for run in trials if run.pos == pos] for pos in ("rope", "sinusoidal"))
    best = {
        (row.lr, row.scale, row.base): row.second - row.first
        for row in COPIED
        if (row.setting, row.tokens) == (SEARCH, LONGEST)
    }
    rope, sinusoid = (min(arm, key=lambda run: run.val_loss) for arm in (of_rope, of_sinusoid))
    quiet = min((run for run in of_rope if best[run.lr, "", run.base] > COPIES), key=lambda run: run.val_loss)
    assert (sinusoid.lr, sinusoid.scale) == (0.0042, "0.1")
    assert [(run.lr, run.base) for run in (rope, quiet)] == [(0.006, "1000000"), (0.003, "1000000")]
    assert (len(of_rope), len(of_sinusoid)) == (12, 7)
    stated = f"the sinusoid's best (0.0042, of seven) ends at {sinusoid.val_loss:.3f}, RoPE's best (0.006 with base"
    assert f"{stated} 1,000,000, of twelve), which copies, at {rope.val_loss:.3f}, and its best" in COPYING
    assert f"that at most copies a little (0.003 with base 1,000,000) at {quiet.val_loss:.3f}." in COPYING


def test_what_fewer_rotated_channels_change_is_stated():
    runs = [run for run in STUDY.on(CORPUS) if run.tokens == LONGEST and run.setting in (BACKBONE, SEARCH)]
    of = {(run.pos, run.lr, run.base, run.seed): run for run in runs if run.scale in ("", "0.2")}
    hybrids = [of["nope_hybrid", 0.003, "10000", seed] for seed in SEEDS]
    controls = [of["rope", 0.003, "10000", seed] for seed in (0, 1)]
    sinusoids = [of["sinusoidal", 0.003, "10000", seed] for seed in SEEDS]
    partial, control = (of[pos, 0.003, "10000", 100] for pos in ("rope_partial", "rope"))

    def below(ones: Sequence[Result], others: Sequence[Result]) -> str:
        return listed((high.val_loss - low.val_loss for low, high in zip(ones, others, strict=True)), 3)

    assert f"It ends {below(hybrids, sinusoids)} below the sinusoid (seeds 0, 1 and 2)." in COPYING
    third = [run for run in STUDY.on(CORPUS) if run.tokens == LONGEST and "in_layers=[0, 1, 3]" in run.setting]
    behind = [low.val_loss - high.val_loss for low, high in zip(sorted(third, key=seed_of), sinusoids, strict=True)]
    *others, last = (f"{abs(gap):.3f} {'below' if gap < 0 else 'above'}" for gap in behind)
    assert f"in the third layer RoPE ends {', '.join(others)} and {last} the sinusoid" in COPYING
    assert max(run.val_loss for run in hybrids) < min(run.val_loss for run in sinusoids)
    ends = f"{below([partial], [control])} below RoPE of the same seed, base and learning rate"
    assert f"With seed 100 it does: it ends {ends}, the lowest of all runs." in COPYING
    gains = {row.key: row.first - row.second for row in COPIED}
    partials = sorted((run for run in runs if run.pos == "rope_partial"), key=lambda run: run.seed)
    late = [run for run in partials if gains[run.key] < 0.1]
    copying = [run for run in runs if run.pos in ("nope_hybrid", "rope_partial") and gains[run.key] > 0.2]
    assert (
        min(gains[run.key] for run in copying) > 0.3 > 0.02 > max(gains[one.key] for one in (*late, control, *controls))
    )
    ropes = {0: controls[0], 1: controls[1], 100: control}
    first, little, _ = partials
    assert (first in late, little in late, little in copying) == (True, False, False)
    of_both = [little, first]
    above = below([sinusoids[run.seed] for run in of_both], of_both)
    apart = f"{below(of_both, [ropes[run.seed] for run in of_both])} below RoPE, and {above} above the sinusoid."
    stated = f"With seed 1 it copies a little (-{gains[little.key]:.2f}), with seed 0 not; these end {apart}"
    assert stated in COPYING
    novel = {row.key: row.new for row in COPIED}
    gaps = listed((novel[ropes[run.seed].key] - novel[run.key] for run in partials), 3)
    seeds = listed((run.seed for run in partials), 0)
    assert f"In novel contexts it is {gaps} below RoPE (seeds {seeds})" in COPYING
    worst = max(run.val_loss for run in copying)
    assert worst < min(run.val_loss for run in runs if run.pos == "sinusoidal")  # "and ends below the sinusoid"
    assert min(runs, key=lambda run: run.val_loss) == partial  # "the lowest of all runs"


def test_in_which_layer_positions_must_be_missing_for_rope_to_copy_is_stated():
    """The last layer is the hybrid's; the seeds of each are in order, in the results too."""
    ends = {run.key: run.val_loss for run in STUDY.on(CORPUS)}
    at_longest = [
        row for row in COPIED if (row.tokens, row.lr, row.base) == (LONGEST, 0.003, "10000") and row.seed < 100
    ]
    rope = {row.seed: row for row in at_longest if (row.pos, row.setting) == ("rope", BACKBONE)}
    assert [*rope] == [0, 1]
    for name, layers, copies in (
        ("the first layer", "1, 2, 3", False),
        ("the second", "0, 2, 3", False),
        ("the third", "0, 1, 3", True),
        ("the last", "", True),
    ):
        setting = f"intervention=only_layers intervention.in_layers=[{layers}]" if layers else BACKBONE
        pos = "rope" if layers else "nope_hybrid"
        rows = sorted((row for row in at_longest if (row.pos, row.setting) == (pos, setting)), key=lambda row: row.seed)
        assert [row.seed for row in rows] == [*SEEDS]
        assert {row.second - row.first < -0.2 for row in rows} == {copies}
        gaps = cells((ends[row.key] - ends[rope[row.seed].key] for row in rows if row.seed in rope), "+.3f")
        assert f"| {name} | {copied(rows)} | {gaps} |" in COPYING


def test_the_one_head_on_which_copying_depends_is_stated_for_every_model_of_bytes_that_copies():
    rows = read_rows(FOLDER / "removed_heads.csv", RemovedHeadRow)
    copying = [row for row in rows if row.layer == 0 and row.first - row.second > 0.1 and "bpe" not in row.setting]
    kinds = Counter("in_layers=[0, 1, 3]" in row.setting or row.pos for row in copying)
    assert kinds == {"sinusoidal": 3, "nope_hybrid": 4, True: 3, "rope_partial": 2, "rope": 1}
    assert "13 were measured: the sinusoid (3), RoPE without positions in its third or last layer (7)," in COPYING
    assert "with a quarter of its channels rotated (2), and one RoPE with all of them." in COPYING
    rises, unrotated = [], []
    for whole in copying:
        heads = [row for row in rows if row.key == whole.key and row.layer and row.first - whole.first < 0.5]
        one = min(heads, key=lambda row: row.first - row.second)
        assert one.layer > 2
        if "in_layers=[0, 1, 3]" in whole.setting or whole.pos == "nope_hybrid":
            unrotated.append((one.layer, 4 if whole.pos == "nope_hybrid" else 3))
        assert one.first - one.second < 0.065

        rises.append((one.seen - whole.seen, one.new - whole.new))
    (least, most), (low, high) = ((min(of_text), max(of_text)) for of_text in zip(*rises, strict=True))
    rise = f"the loss in repeated contexts rises by {least:.2f} to {most:.2f}, to about that of models"
    assert f"at most 0.06 of the gain is left, and {rise}" in COPYING
    assert f"in novel contexts it rises by {low:.2f} to {high:.2f}." in COPYING
    assert all(layer == without for layer, without in unrotated)
    assert "if one of these has no positions, the head is in it." in COPYING
    broken = [row for row in rows if row.layer and "bpe" not in row.setting]
    first = {whole.key: whole.first for whole in copying}
    assert {row.layer for row in broken if row.key in first and row.first - first[row.key] >= 0.5} == {1}


def test_the_heads_on_which_copying_depends_with_bpe_tokens_are_stated():
    rows = [row for row in read_rows(FOLDER / "removed_heads.csv", RemovedHeadRow) if "bpe" in row.setting]
    whole, *heads = [row for row in rows if row.pos == "rope"]
    last, third, *_ = sorted(heads, key=lambda row: row.first - row.second)
    assert (last.layer, third.layer) == (4, 3)
    goes = f"({copied([whole])} to {copied([last])}), and hardly without one of the third ({copied([third])})"
    raised = listed((row.first - whole.first for row in (last, third)), 2)
    assert f"one head of the last layer {goes}, each of which also raises the loss" in COPYING
    assert f"at the first occurrence, by {raised};" in COPYING
    later = [row for row in rows if row.pos == "sinusoidal" and row.layer > 1]
    assert f"({copied([min(later, key=lambda row: row.first - row.second)])} at the least)" in COPYING
