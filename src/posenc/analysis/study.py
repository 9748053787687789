"""A study: a plan of runs in results/, and the results of the finished ones as text."""

import itertools
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypeVar

from annotated_types import MinLen
from hydra.errors import HydraException
from typing_extensions import TypedDict  # required by pydantic before Python 3.12

from posenc.analysis.results import (
    CurveRow,
    HeadRow,
    NGramRow,
    Result,
    RunRow,
    curve_rows,
    losses_by_seed,
    read_results,
    result_of,
    table,
)
from posenc.analysis.run_key import (
    Key,
    composed_configuration,
    corpus_of,
    flat_configuration,
    key_of_overrides,
    key_of_run,
)
from posenc.analysis.runs import Run, age, finished_runs
from posenc.bounds import NonNegativeInt, PositiveInt
from posenc.config.instantiate import build
from posenc.config.schema import check
from posenc.errors import UserError, first_line
from posenc.storage.atomic import atomic_write
from posenc.storage.csv_files import read_rows
from posenc.storage.reading import check_types, read_mapping, read_text

_Row = TypeVar("_Row", bound=RunRow | NGramRow)
_RunRow = TypeVar("_RunRow", CurveRow, HeadRow)

Finished = tuple[Run, Result]
"""A finished run, and its row of runs.csv."""


class Study:
    """The folder of a study: plan.yaml, and tables about the finished runs: runs.csv, curves.csv and others.

    Raises:
        UserError: if its plan cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            self.plan = _plan(folder / "plan.yaml")
        except UserError as error:
            raise UserError(f"--results={folder}: {error}") from error
        self.experiment = f"experiment={self.plan['experiment']}"

    def findings(self) -> str:
        """The text that a person has written for the head of the study's page; empty if there is none."""
        file = self.folder / "findings.md"
        return read_text(file).strip() if file.exists() else ""

    def lines(self, blocks: Sequence[Mapping[str, Any]] | None = None) -> Iterator[list[str]]:
        """The arguments of train.py for every run of some blocks of the plan, by default of all, in its order."""
        for block in self.plan["blocks"] if blocks is None else blocks:
            for units, seed, arm in itertools.product(block["units"], block["seeds"], block["arms"].values()):
                budget = (f"steps={units * block['unit']}", f"seed={seed}")
                yield [self.experiment, *arm.split(), f"trainer.precision={self.plan['precision']}", *budget]

    def todo(self, overrides: Sequence[str]) -> Iterator[str]:
        """The arguments of train.py for every run that is missing from runs.csv, in the plan's order."""
        known, corpus = {result.key for result in self.results}, self.corpus(overrides)
        for line in self.lines():
            if (key := self.key([*line, *overrides], corpus)) not in known:
                known.add(key)  # an arm may be in several blocks
                yield shlex.join([*line, *overrides])

    def corpus(self, overrides: Sequence[str]) -> str:
        """The name in runs.csv of the experiment's text with some overrides."""
        config, choices = self.configuration(overrides)
        return corpus_of({"data": choices["data"], "text": build(config, "data").fingerprint()})

    @cached_property
    def results(self) -> tuple[Result, ...]:
        """The rows of runs.csv."""
        return read_results(self.folder / "runs.csv")

    def on(self, corpus: str) -> list[Result]:
        """The rows of runs.csv for a corpus."""
        return [result for result in self.results if result.corpus == corpus]

    def rows(self, name: str, kind: type[_Row], corpus: str) -> list[_Row]:
        """The rows for a corpus in another of the study's tables; none if there is no such file."""
        return [row for row in read_rows(self.folder / name, kind) if row.corpus == corpus]

    def planned(self, corpus: str, blocks: Sequence[Mapping[str, Any]] | None = None) -> list[Result]:
        """The rows of runs.csv for the runs of some blocks of the plan on a corpus, by default of all."""
        wanted = {self.key(line, corpus) for line in self.lines(blocks)}
        return [result for result in self.results if result.key in wanted]

    @property
    def corpora(self) -> tuple[str, ...]:
        """The corpora with results, those that the plan names first, in its order."""
        known = {result.corpus for result in self.results}
        named = [corpus for corpus in self.plan.get("corpora", {}) if corpus in known]
        return (*named, *sorted(known.difference(named)))

    def arm(self, name: str) -> str:
        """The overrides of an arm of the plan.

        Raises:
            UserError: if there is none of that name.
        """
        for block in self.plan["blocks"]:
            if name in block["arms"]:
                return block["arms"][name]
        raise UserError(f"{self.folder / 'plan.yaml'} has no arm {name}")

    @cached_property
    def changes(self) -> Mapping[str, str]:
        """What the first block of the plan with a setting says of it, by setting."""
        found: dict[str, str] = {}
        for block in self.plan["blocks"]:
            arm = next(iter(block["arms"].values()))
            if any(not override.startswith(("pos", "optim.")) for override in arm.split()):  # composing takes long
                setting = self.key((self.experiment, *arm.split()), "").setting
                found.setdefault(setting, str(block.get("what", "")))
        return found

    def title(self, corpus: str) -> str:
        """The title that the plan gives a corpus; by default its name."""
        return self.plan.get("corpora", {}).get(corpus, corpus)

    def curves(self, arm: str, corpus: str) -> dict[int, tuple[list[float], list[float]]]:
        """Steps and losses of an arm's finished runs on a corpus, by seed; the budget is the experiment's."""
        setting = flat_configuration((self.experiment, *arm.split()))
        tokens_per_step = setting["batch_size"] * setting["context"]
        curves = losses_by_seed(self._of_arm(self._curve_rows, arm, corpus))
        return {seed: ([at / tokens_per_step for at in of], [*of.values()]) for seed, of in curves.items()}

    def heads(self, arm: str, corpus: str) -> dict[int, list[float]]:
        """The highest previous-token score of an arm's finished runs on a corpus, by layer, one for each seed."""
        scores: dict[int, list[float]] = {}
        for row in self._of_arm(self._head_rows, arm, corpus):
            scores.setdefault(row.layer, []).append(row.previous_token)
        return scores

    def _of_arm(self, rows: Sequence[_RunRow], arm: str, corpus: str) -> list[_RunRow]:
        """The rows about an arm's runs on a corpus; the budget is the experiment's."""
        of = RunRow(*self.key((self.experiment, *arm.split()), corpus)).arm
        return [row for row in rows if row.arm == of]

    @cached_property
    def _curve_rows(self) -> list[CurveRow]:
        rows = read_rows(self.folder / "curves.csv", CurveRow)
        if self.results and not rows:
            raise UserError(f"{self.folder / 'curves.csv'} has no curves of the runs in runs.csv: restore it")
        return rows

    @cached_property
    def _head_rows(self) -> list[HeadRow]:
        return read_rows(self.folder / "heads.csv", HeadRow)

    def add_runs(self, folders: Sequence[Path]) -> tuple[list[Finished], list[str]]:
        """Add the finished runs in some folders to runs.csv and curves.csv.

        The two files are written one after the other, perhaps by several processes: a call completes what another has
        left out, and drops the curves of runs that are not in runs.csv.

        Returns:
            The finished runs with their rows, and notices for those left out.

        Raises:
            UserError: if runs.csv or curves.csv cannot be read.
        """
        found, notices = self._finished(folders)  # takes seconds, in which another process may add its own
        stored = {result.key: result for result in self.results}
        curves = [row for row in self._curve_rows if row.key in stored]
        with_curve = {row.key for row in curves}
        known = {result.key: result for _, result in sorted(found, key=lambda one: age(one[0]))} | stored
        finished: list[Finished] = []
        for run, result in found:
            if (loss := known[result.key].val_loss) == result.val_loss:
                finished.append((run, result))
                if result.key not in with_curve:
                    with_curve.add(result.key)
                    curves += curve_rows(run, result)
            else:
                notices.append(f"{run.source} ends at {result.val_loss}, this run in runs.csv at {loss}; left out")
        if folders and known:
            self._write("curves.csv", table(CurveRow, curves))
            self._write("runs.csv", table(Result, [known[key] for key in sorted(known)]))
            del self.results, self._curve_rows  # read again from the files
        return finished, notices

    def _write(self, name: str, text: str) -> None:
        """Write a table, unless it is there already."""
        file = self.folder / name
        if not file.exists() or file.read_bytes() != text.encode():
            atomic_write(file, text)

    def _finished(self, folders: Iterable[Path]) -> tuple[list[Finished], list[str]]:
        runs, unreadable = finished_runs(folders)
        found: list[Finished] = []
        notices = list(unreadable)
        for run in runs:
            if (precision := run.setting.get("precision")) != self.plan["precision"]:
                notices.append(f"{run.source} was trained in {precision}, not in {self.plan['precision']}; left out")
                continue
            try:
                row = result_of(run, key_of_run(self.experiment, run, self.plan["search_seeds"]))
                found.append((run, check_types(run.source, vars(row), Result)))  # what is written can be read again
            except (UserError, HydraException, KeyError, TypeError, ValueError) as error:
                reason = f"{type(error).__name__}: {first_line(error)}"
                notices.append(f"{run.source} cannot be added ({reason}); left out")
        return found, notices

    def configuration(self, overrides: Sequence[str]) -> tuple[dict[str, Any], dict[str, str]]:
        """The validated configuration of the experiment with some overrides, and its choices."""
        config, choices = composed_configuration((self.experiment, *overrides))
        check(config)
        return config, choices

    def key(self, overrides: Sequence[str], corpus: str) -> Key:
        """The key of the run of these overrides on a corpus."""
        return key_of_overrides(self.experiment, overrides, corpus, self.plan["search_seeds"])


class _Plan(TypedDict):
    """The keys of every plan."""

    __pydantic_config__ = {"strict": True}  # type: ignore[misc]
    experiment: str
    precision: Literal["32-true", "bf16-mixed"]
    search_seeds: list[int]
    blocks: list[dict[str, Any]]
    corpora: NotRequired[dict[str, str]]


class _Block(TypedDict):
    """The keys of every block; the plan may have the first three for all of its blocks."""

    __pydantic_config__ = {"strict": True}  # type: ignore[misc]
    unit: PositiveInt
    units: Annotated[list[PositiveInt], MinLen(1)]
    seeds: Annotated[list[NonNegativeInt], MinLen(1)]
    arms: Annotated[dict[str | int | float, str], MinLen(1)]
    alternative: NotRequired[str]


def _plan(file: Path) -> dict[str, Any]:
    plan = read_mapping(file)
    check_types(file, plan, _Plan)
    common = {name: plan[name] for name in ("unit", "units", "seeds") if name in plan}
    blocks = [{**common, **block} for block in plan["blocks"]]
    for block in blocks:
        if isinstance(block.get("arms"), list):  # arms without names are named by their overrides
            block["arms"] = {str(arm): arm for arm in block["arms"]}
        check_types(file, block, _Block)
        block["arms"] = {str(name): arm for name, arm in block["arms"].items()}
    return {**plan, "blocks": blocks}
