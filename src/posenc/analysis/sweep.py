"""What a sweep's folder holds: its runs, and what the sweep left beside them."""

import itertools
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Required, TypeVar

from typing_extensions import TypedDict  # required by pydantic before Python 3.12

from posenc.analysis.runs import Run, read_run, read_runs, run_directories
from posenc.config.schema import SHARED, canonical
from posenc.errors import UserError
from posenc.storage.failed_jobs import failed_jobs
from posenc.storage.lengths_file import read
from posenc.storage.reading import check_types, leaves, read_json, read_mapping

_T = TypeVar("_T")


class _Trial(TypedDict, total=False):
    """A trial of a search, besides the hyperparameters that it tried."""

    __pydantic_config__ = {"strict": True}  # type: ignore[misc]
    pos: Required[str]
    best: Required[bool]
    val_loss: Required[float | None]
    seed: int
    overrides: str
    edge: list[str]


@dataclass(frozen=True)
class Sweep:
    """The runs of a folder.

    Attributes:
        name: of the experiment.
        runs: those that can be compared.
        notices: for each of the others, why not.
        diverged: runs whose loss is NaN, or at least DIVERGED; not part of any mean, but reported.
        search: the trials of a hyperparameter search (`hydra/sweeper: best_against_best`), if any.
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
        """The hyperparameters of the search, without what an earlier version did not refuse to search."""
        keys = dict.fromkeys(key for trial in self.search for key in trial if key not in _Trial.__annotations__)
        return tuple(key for key in keys if key.partition(".")[0] not in SHARED)


def read_folder(folder: Path) -> Sweep:
    """Every run in runs/<name>.

    Raises:
        UserError: if there is none with a validation.
    """
    unreadable: list[str] = []
    schemes = _folders_in(folder, unreadable)
    directories = [run for scheme in schemes for run in _folders_in(scheme, unreadable) if run.name.startswith("seed")]
    if not directories and not unreadable:
        known = sorted({str(run.parents[1]) for run in run_directories(folder, [])})
        hint = f"; found {', '.join(known)}" if known else "; train some first, with -m pos=..."
        raise UserError(f"no runs in {folder}{hint}")
    runs, diverged, left_out = read_runs((str(directory), partial(read_run, directory)) for directory in directories)
    notices = [*unreadable, *left_out]
    tried: tuple[Mapping[str, Any], ...] = _attempt(partial(read_search, folder / "search.json"), (), notices)
    command = _attempt(partial(_command, folder / "multirun.yaml"), "", notices)
    failed: list[dict[str, str]] = _attempt(partial(failed_jobs, folder), [], notices)
    lost = {os.path.abspath(run.source) for run in diverged}  # these have a notice
    notices += [
        f"a job of the last sweep failed: {job['job']}: {job['error']}" for job in failed if job["run"] not in lost
    ]
    if tried:
        runs, superseded = _best_only(runs, tried)
        notices += superseded
    if not runs:
        raise UserError(f"no run in {folder} can be read yet: {'; '.join(notices)}")
    lengths = [_attempt(partial(read, Path(run.source), run.setting.get("context")), None, notices) for run in runs]
    runs = tuple(replace(run, lengths=of_run) for run, of_run in zip(runs, lengths, strict=True))
    return Sweep(folder.resolve().name, runs, tuple(notices), diverged, tried, command, str(folder))


def _folders_in(folder: Path, unreadable: list[str]) -> list[Path]:
    """The folders in a folder; adds a notice if it cannot be read."""
    try:
        return sorted(filter(os.path.isdir, folder.iterdir()))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        unreadable.append(f"{folder} cannot be read: {error.strerror}; left out")
        return []


def _attempt(read: Callable[[], _T], instead: _T, notices: list[str]) -> _T:
    """What `read` returns; if its file cannot be read, `instead`, and a notice."""
    try:
        return read()
    except UserError as error:
        notices.append(str(error))
        return instead


def read_search(file: Path) -> tuple[Mapping[str, Any], ...]:
    """The trials of a folder's last search of each scheme; none if there is no such file.

    Raises:
        UserError: if it cannot be read.
    """
    if not file.exists():
        return ()
    trials = read_json(file)
    check_types(file, trials, list[_Trial])
    return tuple(trials)


def _best_only(runs: Sequence[Run], tried: Sequence[Mapping[str, Any]]) -> tuple[tuple[Run, ...], tuple[str, ...]]:
    """The runs at the best of a search, and notices for others, such as those of earlier searches."""
    best = {
        trial["pos"]: {k: v for k, v in trial.items() if k not in _Trial.__annotations__}
        for trial in tried
        if trial["best"]
    }

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
