"""The results of finished runs as rows of a study's tables."""

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass, fields
from operator import attrgetter
from pathlib import Path
from typing import Annotated, TypeVar

from annotated_types import Ge, Le, Lt, MinLen
from pydantic import FiniteFloat, Json

from posenc.analysis.attention_heads import ngram_baseline
from posenc.analysis.run_key import BACKBONE, SEARCH, Key
from posenc.analysis.runs import DIVERGED, Run
from posenc.bounds import NonNegativeInt, PositiveInt
from posenc.errors import UserError
from posenc.storage.csv_files import read_numbers, read_rows, to_csv

_Row = TypeVar("_Row", bound="RunRow")


@dataclass(frozen=True)
class RunRow:
    """A row about a run, which these columns identify.

    Attributes:
        corpus, setting, pos, seed, tokens, lr, scale, base: as in `Key`.
    """

    corpus: str
    setting: str
    pos: str
    seed: int
    tokens: PositiveInt
    lr: FiniteFloat
    scale: str
    base: str

    @property
    def key(self) -> Key:
        """Identifies the run."""
        return Key(self.corpus, self.setting, self.pos, self.seed, self.tokens, self.lr, self.scale, self.base)

    @property
    def arm(self) -> tuple[str, str, str, int, float, str, str]:
        """Everything but the seed."""
        return self.corpus, self.setting, self.pos, self.tokens, self.lr, self.scale, self.base

    @property
    def in_default_setting(self) -> bool:
        """Whether its run differs from the experiment only in what is compared, as those of the backbone and trials."""
        return self.setting in (BACKBONE, SEARCH)


@dataclass(frozen=True)
class Result(RunRow):
    """A finished run: a row of runs.csv.

    Attributes:
        val_loss: final validation loss, nats per token.
        val_loss_se: its standard error over validation batches; NaN if it was not measured.
        bigram_loss: of the bigram model on the same validation windows, at which a model without positions plateaus;
            for a masked model, of the unigram model; NaN if it is unknown.
        commit: of the code that trained it.
        hardware: that trained it.
    """

    val_loss: Annotated[FiniteFloat, Ge(0), Lt(DIVERGED)]
    val_loss_se: float
    bigram_loss: float
    commit: str
    hardware: str


@dataclass(frozen=True)
class CurveRow(RunRow):
    """A row of curves.csv."""

    at_tokens: PositiveInt
    val_loss: FiniteFloat


@dataclass(frozen=True)
class AblationRow(RunRow):
    """A row of ablation.csv: a run's loss with one offset masked, 0 for none."""

    masked_offset: NonNegativeInt
    val_loss: FiniteFloat


@dataclass(frozen=True)
class HeadRow(RunRow):
    """A row of heads.csv: the highest previous-token score of a layer's heads at the end of a run; layers from 1."""

    layer: PositiveInt
    previous_token: Annotated[FiniteFloat, Ge(0), Le(1)]


@dataclass(frozen=True)
class CopyingRow(RunRow):
    """A row of copying.csv, as `posenc.evaluation.copying.Copying`."""

    first: FiniteFloat
    second: FiniteFloat
    new: FiniteFloat
    seen: FiniteFloat
    share: Annotated[FiniteFloat, Ge(0), Le(1)]
    own: FiniteFloat
    foreign: FiniteFloat


@dataclass(frozen=True)
class DistanceRow(RunRow):
    """A row of distances.csv: the loss on a passage with a copy that far before it, 0 for none; in tokens."""

    distance: NonNegativeInt
    val_loss: FiniteFloat


@dataclass(frozen=True)
class RemovedHeadRow(RunRow):
    """A row of removed_heads.csv: as in copying.csv, without one attention head; layer and head from 1, 0 for none."""

    layer: NonNegativeInt
    head: NonNegativeInt
    first: FiniteFloat
    second: FiniteFloat
    new: FiniteFloat
    seen: FiniteFloat


@dataclass(frozen=True)
class BlockRow(RunRow):
    """A row of blocks.csv or test.csv: a run's loss on each block of a split (`posenc.evaluation.blocks`)."""

    losses: Json[Annotated[list[FiniteFloat], MinLen(2)]]


@dataclass(frozen=True)
class ShareRow(RunRow):
    """A row of shares.csv: the metric position_share at a run's first and its last validation."""

    first: Annotated[FiniteFloat, Ge(0)]
    last: Annotated[FiniteFloat, Ge(0)]


@dataclass(frozen=True)
class NGramRow:
    """A row of ngrams.csv: the loss of an n-gram model of that order on a corpus."""

    corpus: str
    order: int
    val_loss: FiniteFloat


def result_of(run: Run, key: Key) -> Result:
    """The row of a finished run."""
    summary, ngram = run.summary, ngram_baseline([run])
    return Result(
        *key,
        round(summary["val_loss"], 6),
        round(summary.get("val_loss_se", math.nan), 6),
        round(ngram.loss if ngram else math.nan, 6),
        summary["commit"] or "unknown",
        " and ".join(summary.get("machines", [summary["hardware"]])),
    )


def curve_rows(run: Run, result: Result) -> list[CurveRow]:
    """The validations of a run."""
    measured = zip(run.curve["tokens"], run.curve["val_loss"], strict=True)
    return [CurveRow(*result.key, int(tokens), round(loss, 5)) for tokens, loss in measured]


def head_rows(run: Run, result: Result) -> list[HeadRow]:
    """The attention heads at the end of a run; none if they were not measured."""
    best: dict[int, float] = {}
    for head in run.heads:
        if head["step"] == run.last_step and "1" in head:
            layer = int(head["layer"]) + 1
            best[layer] = max(best.get(layer, 0.0), head["1"])
    return [HeadRow(*result.key, layer, score) for layer, score in best.items()]


def share_rows(run: Run, result: Result) -> list[ShareRow]:
    """The share of the position encoding in a run; none if its scheme adds nothing to the input."""
    measured = [row.get("position_share", math.nan) for row in read_numbers(Path(run.source) / "metrics.csv")]
    shares = [share for share in measured if 0 <= share < math.inf]
    return [ShareRow(*result.key, shares[0], shares[-1])] if shares else []


def read_results(file: Path) -> tuple[Result, ...]:
    """The rows of runs.csv; none if there is no such file.

    Raises:
        UserError: names the row that cannot be read, or repeats a run.
    """
    results = tuple(read_rows(file, Result))
    seen: set[Key] = set()
    for row, result in enumerate(results, 1):
        if result.key in seen:
            raise UserError(f"{file}, row {row} repeats the run of an earlier row")
        seen.add(result.key)
    return results


def table(kind: type[RunRow | NGramRow], rows: Iterable[RunRow | NGramRow]) -> str:
    """Rows of one kind as CSV."""
    return to_csv([column.name for column in fields(kind)], map(vars, rows))


def losses_by_seed(rows: Iterable[CurveRow]) -> dict[int, dict[int, float]]:
    """The validation losses of an arm's runs, by seed, then by tokens."""
    found: dict[int, dict[int, float]] = {}
    for row in rows:
        found.setdefault(row.seed, {})[row.at_tokens] = row.val_loss
    return found


def by_arm(rows: Iterable[_Row]) -> list[list[_Row]]:
    """The rows of each arm, by rising seed."""
    ordered = sorted(rows, key=attrgetter("arm", "seed"))
    return [list(of_arm) for _, of_arm in itertools.groupby(ordered, key=attrgetter("arm"))]
