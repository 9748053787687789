"""The claim map of one corpus of a study: its runs sorted by the plan, and N(D) from each kind of them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from posenc.analysis.claim_map import OTHERS, ROPE, SINUSOID, Point, advantage
from posenc.analysis.results import Result
from posenc.analysis.run_key import BACKBONE, SEARCH, Key
from posenc.analysis.study import Study


@dataclass(frozen=True)
class CorpusMap:
    """The claim map of one corpus.

    Attributes:
        results: all runs for which a block of the plan asks.
        backbone, alternatives: as from `backbone_of`.
        points: N(D) of the arm over the baseline.
        against: N(D) of the arm over each of OTHERS.
        instead: N(D) with each alternative to some runs of an arm.
        changed: runs with one difference from the backbone, by setting.
    """

    results: Sequence[Result]
    backbone: Sequence[Result]
    alternatives: Mapping[str, Sequence[Result]]
    points: Sequence[Point]
    against: Mapping[str, Sequence[Point]]
    instead: Mapping[str, Sequence[Point]]
    changed: Mapping[str, Sequence[Result]]

    @property
    def unit(self) -> int:
        """The tokens of the smallest runs; 0 if there are none."""
        return min((result.tokens for result in self.results), default=0)

    @property
    def both(self) -> list[Result]:
        """The backbone's runs of the arm and of the baseline."""
        return [result for result in self.backbone if result.pos in (ROPE, SINUSOID)]

    @property
    def others(self) -> dict[str, list[Result]]:
        """The backbone's runs of every other scheme."""
        schemes = sorted({result.pos for result in self.backbone} - {ROPE, SINUSOID})
        return {pos: [result for result in self.backbone if result.pos == pos] for pos in schemes}


def corpus_map(study: Study, corpus: str) -> CorpusMap:
    """The claim map of a corpus."""
    backbone, alternatives = backbone_of(study, corpus)
    results = study.planned(corpus)
    settings = sorted({result.setting for result in results if not result.setting.startswith(SEARCH)} - {BACKBONE})
    return CorpusMap(
        results,
        backbone,
        alternatives,
        points=advantage(backbone, ROPE, SINUSOID),
        against={other: advantage(backbone, ROPE, other) for other in OTHERS},
        instead={name: advantage_with(backbone, runs) for name, runs in alternatives.items()},
        changed={setting: [result for result in results if result.setting == setting] for setting in settings},
    )


def backbone_of(study: Study, corpus: str) -> tuple[list[Result], dict[str, list[Result]]]:
    """The backbone's results on a corpus, and those of the plan's alternatives to some of them by name.

    A run for which several blocks ask is the backbone's if the first of them is no alternative. A result with
    hyperparameters that no block asks for is in neither.

    An alternative that has both arms in a block, as a replication has, is also one under its own name, with all of its
    blocks: these runs are compared with each other.
    """
    results = [result for result in study.on(corpus) if result.setting == BACKBONE]
    left = {result.key for result in results}
    backbone: set[Key] = set()
    named: dict[str, list[list[Result]]] = {}
    for block in study.plan["blocks"]:
        found = study.planned(corpus, [block])
        keys = {result.key for result in found}
        if "alternative" in block:
            named.setdefault(block["alternative"], []).append(found)
        else:
            backbone |= left & keys
        left -= keys
    alternatives: dict[str, list[Result]] = {}
    for name, blocks in named.items():
        of_name = [result for found in blocks for result in found]
        if any({ROPE, SINUSOID} <= {result.pos for result in found} for found in blocks):
            alternatives[name] = of_name
        for result in of_name:
            alternatives.setdefault(f"{result.pos}, {name}", []).append(result)
    return [result for result in results if result.key in backbone], alternatives


def replaced(backbone: Sequence[Result], alternative: Sequence[Result]) -> list[Result]:
    """The backbone with an alternative to some of its runs; of the baseline only the seeds and budgets of these."""
    at = {(result.seed, result.tokens) for result in alternative}
    results = {(result.pos, result.seed, result.tokens): result for result in (*backbone, *alternative)}
    baseline = _baseline(alternative)
    return [result for result in results.values() if result.pos != baseline or (result.seed, result.tokens) in at]


def advantage_with(backbone: Sequence[Result], alternative: Sequence[Result]) -> tuple[Point, ...]:
    """N(D) with an alternative to some runs of the arm or of the baseline, or over another scheme with these runs."""
    return advantage(replaced(backbone, alternative), ROPE, _baseline(alternative))


def _baseline(alternative: Iterable[Result]) -> str:
    return next((result.pos for result in alternative if result.pos != ROPE), SINUSOID)
