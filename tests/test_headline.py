"""The result on README, and the pages that repeat it, have the figures of the committed results."""

import functools
import re
from collections.abc import Iterable, Mapping, Sequence

import pytest

from posenc.analysis.claim_map import Point, advantage, backbone_of, levels_of_arm, off_plateau
from posenc.analysis.results import BlockRow, CopyingRow, RemovedHeadRow, Result
from posenc.analysis.spread import by_seeds, pooled_sd
from posenc.analysis.study import Study
from posenc.analysis.validation_error import Difference, differences
from posenc.report import formatting
from posenc.storage.csv_files import read_rows
from tests.conftest import ROOT

FOLDER = ROOT / "results/claim-map"
STUDY = Study(FOLDER)
CORPUS = STUDY.corpora[0]
LONGEST = 78_643_200
README = " ".join((ROOT / "README.md").read_text().split())
RATIOS = ("docs/results.md", "docs/claims.md")
"""Pages that give a ratio as the tables do; README writes it out."""


def listed(values: Iterable[float], digits: int) -> str:
    """0.029 and 0.031; 3.5, 2.4 and 1.8."""
    *others, last = (f"{value:.{digits}f}" for value in values)
    return f"{', '.join(others)} and {last}" if others else last


@functools.cache
def found(corpus: str) -> tuple[Sequence[Result], Mapping[str, Sequence[Result]]]:
    """The backbone and its alternatives."""
    return backbone_of(STUDY, corpus)


def points(corpus: str) -> Sequence[Point]:
    return advantage(found(corpus)[0], "rope", "sinusoidal")


@pytest.mark.parametrize("corpus", STUDY.corpora)
def test_every_ratio_with_an_interval_is_in_the_headline_and_the_documents(corpus):
    stated = [(point.advantage, point.advantage.interval) for point in points(corpus) if point.advantage.interval]
    assert stated
    for ratio, (low, high) in stated:
        assert re.search(
            rf"{ratio.value:.2f} times fewer( tokens)? \((95 % interval )?{low:.2f} to {high:.2f}\)", README
        )
        for page in RATIOS:
            assert formatting.interval(ratio, 2) in " ".join((ROOT / page).read_text().split()), page


def test_the_ratio_of_the_last_budget_that_rope_wins_is_in_the_headline():
    *_, point, longest = points(CORPUS)
    assert longest.tokens == LONGEST
    assert longest.advantage.value == 0
    assert point.advantage.seeds == 2
    assert f"on {point.tokens / 1e6:.1f}M with {point.advantage.value:.2f} (two seeds)" in README


def paired() -> Sequence[Difference]:
    rows = [row for row in read_rows(FOLDER / "blocks.csv", BlockRow) if row.corpus == CORPUS]
    return [one for one in differences(*found(CORPUS), rows) if one.pairs[0][0].tokens == LONGEST]


def lead(one: Difference) -> str:
    """The baseline's on the whole validation split, by seed."""
    rows = {row.key: row.losses for row in read_rows(FOLDER / "blocks.csv", BlockRow)}
    means = [[sum(rows[run.key]) / len(rows[run.key]) for run in pair] for pair in one.pairs]
    return listed((arm - own for own, arm in means), 3)


def test_the_lead_of_the_sinusoid_is_that_on_the_whole_validation_split():
    searched, halved = sorted(paired(), key=lambda one: -one.pairs[0][1].lr)
    assert halved.pairs[0][1].lr == searched.pairs[0][1].lr / 2
    assert f"the sinusoid ends {-halved.value:.2f} nats lower" in README
    assert f"at the other the sinusoid leads by {-searched.value:.2f}, and with both arms at 0.003" in README
    assert all(f"{one.se:.3f}" == "0.001" for one in (searched, halved))
    page = " ".join((ROOT / "docs/results.md").read_text().split())
    assert f"({lead(searched)} on the whole split)" in page
    assert f"({lead(halved)} with seed 0 on the [whole validation split]" in page


def test_at_equal_learning_rates_the_lead_is_within_the_spread_over_seeds():
    of = {(run.pos, run.lr): run.val_loss for run in STUDY.on(CORPUS) if (run.tokens, run.seed) == (LONGEST, 100)}
    sd, _ = pooled_sd(by_seeds(off_plateau(run for run in found(CORPUS)[0] if run.pos == "rope")))
    assert abs(of["rope", 0.003] - of["sinusoidal", 0.003]) < sd


def test_the_tokens_of_the_sinusoid_to_each_loss_of_rope_are_in_the_headline():
    levels = levels_of_arm(found(CORPUS)[0], "rope", "sinusoidal")
    assert f"[{listed((level.ratio.value for level in levels), 1)} times](results/claim-map#tokens" in README
    assert [level.ratio.seeds for level in levels] == [3, 3, 3, 3, 2, 2, 2]  # "the last three: two seeds"
    backbone, alternatives = found(CORPUS)
    runs = {(run.pos, run.seed, run.tokens): run for run in (*backbone, *alternatives["rope, learning rate 0.003"])}
    *_, last = levels_of_arm([*runs.values()], "rope", "sinusoidal")
    assert f"against RoPE at 0.003, its better rate there, the last is {last.ratio.value:.1f})" in README


def test_what_is_copied_and_the_lead_without_the_context_are_in_the_headline():
    rows = [row for row in read_rows(FOLDER / "copying.csv", CopyingRow) if row.tokens == LONGEST]
    of = {(row.pos, row.lr, row.seed): row for row in rows}
    sinusoids = [of["sinusoidal", 0.0042, seed] for seed in (0, 1)]
    ropes = [of["rope", 0.003, seed] for seed in (0, 1)]
    assert f"{listed((row.first - row.second for row in sinusoids), 2)} nats lower](" in README
    assert all(f"{row.first - row.second:.2f}" == "0.01" for row in rows if row.pos == "rope")
    pairs = list(zip(ropes, sinusoids, strict=True))
    assert f"leads by {listed((rope.own - sinusoid.own for rope, sinusoid in pairs), 3)} nats" in README
    assert f"it is {listed((sinusoid.foreign - rope.foreign for rope, sinusoid in pairs), 3)} behind" in README


def test_what_a_last_layer_without_positions_changes_is_in_the_headline():
    runs = [run for run in STUDY.on(CORPUS) if (run.tokens, run.lr) == (LONGEST, 0.003)]
    of = {(run.pos, run.base, run.seed): run for run in runs}
    hybrid, rope, sinusoid = (of[pos, "10000", 100] for pos in ("nope_hybrid", "rope", "sinusoidal"))
    more, others = (
        [of[pos, base, seed] for seed in (0, 1)] for pos, base in (("nope_hybrid", "10000"), ("rope", "1000"))
    )
    partial = of["rope_partial", "10000", 100]
    ends = (f"{one.val_loss - hybrid.val_loss:.3f} below {name}" for one, name in ((rope, "RoPE"), (sinusoid, "the")))
    assert f"[ends {' and '.join(ends)} sinusoid](docs/results.md#tokens" in README
    below = listed((other.val_loss - one.val_loss for one, other in zip(more, others, strict=True)), 3)
    assert f"and end {below} below RoPE of the same seed, whose base is 1,000" in README
    assert f"and ends {rope.val_loss - partial.val_loss:.3f} below RoPE, the lowest of all runs" in README
    gains = {row.key: row.first - row.second for row in read_rows(FOLDER / "copying.csv", CopyingRow)}
    copying = min(gains[run.key] for run in (hybrid, partial, *more))
    assert copying > 0.3 > 0.02 > max(gains[run.key] for run in (rope, *others))
    ordered = sorted((run for run in STUDY.on(CORPUS) if run.tokens == LONGEST), key=lambda run: run.val_loss)
    lowest, *following = ordered[:4]
    assert lowest == partial
    assert {run.key for run in following} == {run.key for run in (hybrid, *more)}  # "and then ends lowest"


def test_the_one_head_that_copies_is_in_the_headline():
    rows = read_rows(FOLDER / "removed_heads.csv", RemovedHeadRow)
    whole, without = {}, []
    for pos, seed in ("nope_hybrid", 0), ("nope_hybrid", 1), ("nope_hybrid", 100), ("rope_partial", 100):
        all_heads, *heads = [row for row in rows if (row.pos, row.seed) == (pos, seed)]
        ordered = sorted(heads, key=lambda row: row.first - row.second)
        assert ordered[0].layer == 4
        assert all(row.first - row.second > 0.195 for row in ordered[1:])  # no other head alone is needed
        whole[pos, seed] = all_heads.first - all_heads.second
        without.append(ordered[0].first - ordered[0].second)
    assert f"{max(without):.2f}" == "0.02"
    hybrids = listed((whole["nope_hybrid", seed] for seed in (0, 1, 100)), 2)
    assert f"is at most 0.02 nats lower than at the first instead of {hybrids}." in README
