"""What a sweep's folder holds: its runs, and what the sweep left beside them."""

import itertools
import os
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Required, TypeVar

from typing_extensions import TypedDict  # required by pydantic before Python 3.12

from posenc.analysis.runs import Run, at_any_depth, read_runs, sort_out
from posenc.config.schema import canonical
from posenc.errors import UserError
from posenc.storage.failed_jobs import failed_jobs
from posenc.storage.lengths_file import read
from posenc.storage.reading import check_types, leaves, read_json, read_mapping

_T = TypeVar("_T")

NOT_SEARCHED = ("pos", "seed", "val_loss", "best", "edge")
"""Keys of a trial other than the hyperparameters it tried."""


@dataclass(frozen=True)
class Sweep:
    """The runs of a folder.

    Attributes:
        name: of the experiment.
        runs: those that can be compared.
        notices: for each of the others, why not.
        diverged: runs whose loss is NaN or infinite; not part of any mean, but reported.
        search: the trials of `experiment=tuned`, if any.
        command: that started the last sweep, if known.
        source: where they were read from.
    """

    name: str
    runs: tuple[Run, ...]
    notices: tuple[str, ...] = ()
    diverged: tuple[Run, ...] = ()
    search: tuple[Mapping[str, Any], ...] = ()
    command: str = ""
    source: str = ""

    @property
    def searched(self) -> tuple[str, ...]:
        """The hyperparameters of the search."""
        return tuple(dict.fromkeys(key for trial in self.search for key in trial if key not in NOT_SEARCHED))


def read_folder(folder: Path) -> Sweep:
    """Every run in runs/<name>.

    Raises:
        UserError: if there is none with a validation.
    """
    unreadable: list[str] = []
    schemes = _folders_in(folder, unreadable)
    directories = [run for scheme in schemes for run in _folders_in(scheme, unreadable) if run.name.startswith("seed")]
    if not directories and not unreadable:
        known = sorted({str(run.parents[1]) for run in at_any_depth(folder, [])})
        hint = f"; found {', '.join(known)}" if known else "; train some first, with -m pos=..."
        raise UserError(f"no runs in {folder}{hint}")
    runs, diverged, notices = sort_out(read_runs(directories))
    tried, command, others = _notes(folder, {str(Path(run.source).absolute()) for run in diverged})
    notices = (*unreadable, *notices, *others)
    if tried:
        runs, superseded = _best_only(runs, tried)
        notices += superseded
    if not runs:
        raise UserError(f"no run in {folder} can be read yet: {'; '.join(notices)}")
    runs, distrusted = _with_lengths(runs)
    notices += distrusted
    return Sweep(folder.resolve().name, runs, notices, diverged, tried, command, str(folder))


def _folders_in(folder: Path, unreadable: list[str]) -> list[Path]:
    """The folders in a folder; adds a notice if it cannot be read."""
    try:
        return sorted(filter(os.path.isdir, folder.iterdir()))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        unreadable.append(f"{folder} cannot be read: {error.strerror}; left out")
        return []


def _notes(folder: Path, diverged: Collection[str]) -> tuple[tuple[Mapping[str, Any], ...], str, tuple[str, ...]]:
    """The trials of a search, the command of the last sweep, and notices of unreadable files and failed jobs.

    Jobs whose runs diverged are left out: these have a notice of their own.
    """
    notices: list[str] = []

    def attempt(read: Callable[[Path], _T], file: Path, instead: _T) -> _T:
        try:
            return read(file)
        except UserError as error:
            notices.append(str(error))
            return instead

    tried: tuple[Mapping[str, Any], ...] = attempt(_search, folder / "search.json", ())
    command = attempt(_command, folder / "multirun.yaml", "")
    failed: list[dict[str, str]] = attempt(failed_jobs, folder, [])
    others = [job for job in failed if job["run"] not in diverged]
    notices += [f"a job of the last sweep failed: {job['job']}: {job['error']}" for job in others]
    return tried, command, tuple(notices)


class _Trial(TypedDict, total=False):
    """The keys that every trial has."""

    __pydantic_config__ = {"strict": True}  # type: ignore[misc]
    pos: Required[str]
    best: Required[bool]
    val_loss: Required[float | None]
    seed: int
    edge: list[str]


def _search(file: Path) -> tuple[Mapping[str, Any], ...]:
    if not file.exists():
        return ()
    trials = read_json(file)
    check_types(file, trials, list[_Trial])
    return tuple(trials)


def _with_lengths(runs: Sequence[Run]) -> tuple[tuple[Run, ...], tuple[str, ...]]:
    """The runs with their evaluation in longer windows, and a notice for each invalid file."""
    evaluated, notices = [], []
    for run in runs:
        try:
            evaluated.append(replace(run, lengths=read(Path(run.source), run.setting.get("context"))))
        except UserError as error:
            evaluated.append(run)
            notices.append(str(error))
    return tuple(evaluated), tuple(notices)


def _best_only(runs: Sequence[Run], tried: Sequence[Mapping[str, Any]]) -> tuple[tuple[Run, ...], tuple[str, ...]]:
    """The runs at the best of a search, and notices for others, such as those of earlier searches."""
    best = {trial["pos"]: {k: v for k, v in trial.items() if k not in NOT_SEARCHED} for trial in tried if trial["best"]}

    def chosen(run: Run) -> bool:
        return run.scheme in best and all(
            run.setting.get(key) == canonical(value) for key, value in best[run.scheme].items()
        )

    kept, others = [run for run in runs if chosen(run)], [run for run in runs if not chosen(run)]
    return tuple(kept), tuple(f"{run.source} is not at the best of the last search; left out" for run in others)


def _command(file: Path) -> str:
    """The command line of the last sweep in a folder, from Hydra's multirun.yaml."""
    if not file.exists():
        return ""
    sweep = dict(leaves(read_mapping(file)))
    given = [sweep.get(f"hydra.overrides.{part}", []) for part in ("hydra", "task")]
    check_types(file, given, list[list[str]])
    overrides = itertools.chain(*given)
    shown = [str(one) for one in overrides if not str(one).startswith(("hydra.mode=", "runs=", "cache="))]
    return shlex.join(["python", "train.py", "-m", *shown])
