"""Runs, read back from a sweep's folder."""

import itertools
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Required

import numpy as np
from numpy.typing import NDArray
from typing_extensions import TypedDict  # pydantic takes no other before Python 3.12

from posenc.config.schema import NOT_THE_CURVE, check_plain
from posenc.errors import UserError, first_line
from posenc.storage.csv_files import read_numbers
from posenc.storage.lengths_file import Lengths, read
from posenc.storage.reading import check_types, leaves, read_json, read_mapping
from posenc.storage.run_directory import failed_jobs, read_summary

AXES = ("step", "tokens", "seconds")
"""What a curve can be drawn against."""

NOT_SEARCHED = ("pos", "seed", "val_loss", "best", "edge")
"""What a trial of a search has beside the values it tried."""

DIVERGED = 1e6
"""Nats per token that no model which has learnt anything, or nothing, comes to."""

MEASURES = ("val_loss", "previous_token", "induction")
"""What a validation measures, of METRICS; the last two are the best attention head's."""


@dataclass(frozen=True)
class Run:
    """One finished or unfinished run.

    Attributes:
        source: where it was read.
        scheme, seed: its place in the comparison.
        budget: steps it was to be trained for.
        setting: what else made it what it is, by dotted key; equal settings differ in scheme and seed only.
        curve: AXES and MEASURES, each (validations,); NaN where something was not measured.
        summary: what it wrote at its end; empty while it is being trained.
        heads: every attention head after every validation, as read from attention.csv.
        lengths: the finished model in longer windows, if it was evaluated there.
    """

    source: str
    scheme: str
    seed: int
    budget: int
    setting: Mapping[str, Any]
    curve: Mapping[str, NDArray[np.float64]]
    summary: Mapping[str, Any] = field(default_factory=dict)
    heads: tuple[Mapping[str, float], ...] = ()
    lengths: Lengths | None = None

    @property
    def finished(self) -> bool:
        return bool(self.summary)

    @property
    def last_step(self) -> int:
        return int(self.curve["step"][-1])

    @property
    def last_loss(self) -> float:
        return float(self.curve["val_loss"][-1])

    def until(self, step: int) -> "Run":
        """The same run, cut after a step."""
        inside = self.curve["step"] <= step
        return replace(self, curve={name: values[inside] for name, values in self.curve.items()})

    @property
    def name(self) -> str:
        return f"{self.scheme}, seed {self.seed}"


@dataclass(frozen=True)
class Sweep:
    """What a folder holds.

    Attributes:
        name: of the experiment.
        runs: those that can be compared.
        notices: a sentence for each that cannot, and why.
        diverged: those whose loss is NaN or infinite; they are in no mean, and must not be forgotten.
        search: what `experiment=tuned` tried before, if it did: a mapping a trial.
        command: how the last sweep of these was started, as far as it is known.
        source: where they were read.
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
        """The keys that a search tried values of."""
        return tuple(dict.fromkeys(key for trial in self.search for key in trial if key not in NOT_SEARCHED))


def read_folder(folder: Path) -> Sweep:
    """Every run below runs/<experiment>.

    Raises:
        UserError: if there is none with a validation.
    """
    directories, unreadable = _directories(folder)
    if not directories and not unreadable:
        known = sorted({str(run.parents[1]) for run in _at_any_depth(folder)})
        there = f"; there are {', '.join(known)}" if known else "; train some with `python train.py -m pos=...`"
        raise UserError(f"no runs in {folder}{there}")
    runs, diverged, notices = sort_out(_attempts(directories))
    tried, command, damaged = _notes(folder)
    notices = (*unreadable, *notices, *damaged)
    if tried:
        runs, superseded = _best_only(runs, tried)
        notices += superseded
    if not runs:
        raise UserError(f"no run in {folder} can be read yet: {'; '.join(notices)}")
    runs, distrusted = _with_lengths(runs)
    notices += distrusted
    return Sweep(folder.resolve().name, runs, notices, diverged, tried, command, str(folder))


def _directories(folder: Path) -> tuple[list[Path], list[str]]:
    """Those of the runs below runs/<experiment>, and a sentence for each folder that cannot be read."""
    found: list[Path] = []
    notices = []
    for scheme in sorted(filter(os.path.isdir, _entries(folder))):
        try:
            found += sorted(run for run in scheme.iterdir() if run.name.startswith("seed") and run.is_dir())
        except OSError as error:
            notices.append(f"{scheme} cannot be read: {error.strerror}; left out")
    return found, notices


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise UserError(f"{folder} cannot be read: {error.strerror}") from error


def _at_any_depth(folder: Path, failed: Callable[[OSError], object] | None = None) -> list[Path]:
    """The runs below a folder; `failed` is told of each folder that cannot be read."""
    places = (Path(place) for place, _, files in os.walk(folder, onerror=failed) if "config.yaml" in files)
    return sorted(place for place in places if place.name.startswith("seed"))


def finished_runs(folders: Iterable[Path]) -> tuple[tuple[Run, ...], tuple[str, ...]]:
    """Every finished run below some folders, at any depth and of any budget, and a sentence for what was left out."""
    unreadable: list[str] = []

    def failed(error: OSError) -> None:
        unreadable.append(f"{error.filename} cannot be read: {error.strerror}; left out")

    found = {folder: _at_any_depth(folder, failed) for folder in folders}
    empty = [f"no runs in {folder}" for folder, runs in found.items() if not runs and not unreadable]
    runs, _, notices = sort_out(_attempts([*itertools.chain(*found.values())]))
    return tuple(run for run in runs if run.finished), (*unreadable, *empty, *notices)


def _notes(folder: Path) -> tuple[tuple[Mapping[str, Any], ...], str, tuple[str, ...]]:
    """The trials of a sweep's search, the command of the last sweep, and a sentence for each job that failed in it.

    And one for each file that cannot be read.
    """
    notices = []
    tried: tuple[Mapping[str, Any], ...] = ()
    command = ""
    try:
        tried = _search(folder / "search.json")
    except UserError as error:
        notices.append(str(error))
    try:
        command = _command(folder / "multirun.yaml")
    except UserError as error:
        notices.append(str(error))
    try:
        notices += [f"a job of the last sweep failed: {job['job']}: {job['error']}" for job in failed_jobs(folder)]
    except UserError as error:
        notices.append(str(error))
    return tried, command, tuple(notices)


class _Trial(TypedDict, total=False):
    """What every trial has beside the values it tried."""

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
    """The runs with what was evaluated in longer windows, and a sentence for each file that is not to be trusted."""
    evaluated, notices = [], []
    for run in runs:
        try:
            evaluated.append(replace(run, lengths=read(Path(run.source))))
        except UserError as error:
            evaluated.append(run)
            notices.append(str(error))
    return tuple(evaluated), tuple(notices)


def _best_only(runs: Sequence[Run], tried: Sequence[Mapping[str, Any]]) -> tuple[tuple[Run, ...], tuple[str, ...]]:
    """Without the runs of an earlier search, whose best was another."""
    best = {trial["pos"]: {k: v for k, v in trial.items() if k not in NOT_SEARCHED} for trial in tried if trial["best"]}

    def chosen(run: Run) -> bool:
        wanted = best.get(run.scheme, {})
        return all(run.setting.get(key) == canonical(value) for key, value in wanted.items())

    kept, others = [run for run in runs if chosen(run)], [run for run in runs if not chosen(run)]
    return tuple(kept), tuple(f"{run.source} is of an earlier search; left out" for run in others)


def sort_out(attempts: Iterator[Run | str]) -> tuple[tuple[Run, ...], tuple[Run, ...], tuple[str, ...]]:
    """The sound runs, the diverged ones, and a sentence for all that was left out."""
    runs: list[Run] = []
    diverged, notices = [], []
    for attempt in attempts:
        if isinstance(attempt, str):
            notices.append(attempt)
            continue
        lost = ~(np.abs(attempt.curve["val_loss"]) < DIVERGED)  # NaN compares false
        if lost.any():
            step = int(attempt.curve["step"][lost][0])
            value = attempt.curve["val_loss"][lost][0]
            notices.append(
                f"{attempt.name}: the validation loss is {value} from step {step} on; left out ({attempt.source})"
            )
            diverged.append(attempt)
        else:
            runs.append(attempt)
    return tuple(runs), tuple(diverged), tuple(notices)


def _attempts(directories: list[Path]) -> Iterator[Run | str]:
    for directory in directories:
        try:
            yield _read_run(directory)
        except UserError as error:
            yield f"{error}; left out"
        except (OSError, KeyError, ValueError, TypeError, AttributeError) as error:
            yield f"{directory} cannot be read ({type(error).__name__}: {first_line(error)}); left out"


def _read_run(directory: Path) -> Run | str:
    config = read_mapping(directory / "config.yaml")
    if not (isinstance(config["choices"]["pos"], str) and type(config["seed"]) is type(config["steps"]) is int):
        raise UserError(f"{directory / 'config.yaml'} is not one that this program writes")
    check_plain("pos", config["choices"]["pos"])
    measured = [row for row in read_numbers(directory / "metrics.csv") if "val_loss" in row]
    if not measured:
        return f"{directory} has no validation yet; left out"
    finished = directory / "summary.json"
    summary = read_summary(finished) if finished.exists() else {}
    return run_of(str(directory), config, measured, summary, _heads(directory / "attention.csv"))


def _heads(file: Path) -> tuple[Mapping[str, float], ...]:
    rows = read_numbers(file)
    if not all(row.get(name, np.nan).is_integer() for row in rows for name in ("layer", "head")):
        raise UserError(f"{file} cannot be read: a row has no layer, or no head")
    return tuple(rows)


def run_of(
    source: str,
    config: Mapping[str, Any],
    rows: list[dict[str, Any]],
    summary: Mapping[str, Any],
    heads: tuple[Mapping[str, float], ...] = (),
) -> Run:
    """A run from its configuration, the rows of its validations and its summary.

    Raises:
        UserError: if the rows are not in order.
    """
    curve = {name: np.array([_number(row.get(name)) for row in rows]) for name in (*AXES, *MEASURES)}
    for axis in AXES:
        if not (np.isfinite(curve[axis]).all() and (np.diff(curve[axis]) > 0).all()):
            raise UserError(f"{source} cannot be read: {axis} do not grow from validation to validation")
    setting = {key: canonical(value) for key, value in flat(config)}
    if "precision" in summary:
        setting["precision"] = summary["precision"]
    return Run(source, config["choices"]["pos"], config["seed"], config["steps"], setting, curve, summary, heads)


def canonical(value: Any) -> Any:
    """One form for a value that can be written in several: 10000.0 is 10000."""
    if isinstance(value, list):
        return [canonical(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _number(value: Any) -> float:
    return float(value) if value not in (None, "") else np.nan


def flat(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """What two runs of a comparison must share, by dotted key; a group's choice stands under the group's name."""
    aside = {*NOT_THE_CURVE, "seed", "choices", "attention_every", "log_every"} - {"data"}
    chosen = {
        group: choice for group, choice in config["choices"].items() if group not in {*aside, "experiment", "pos"}
    }
    yield from chosen.items()
    rest = leaves({key: value for key, value in config.items() if key not in aside})
    yield from ((key, value) for key, value in rest if not key.endswith("_target_"))


def _command(file: Path) -> str:
    """The command line of the last sweep in a folder, from the multirun.yaml that Hydra writes."""
    if not file.exists():
        return ""
    sweep = dict(leaves(read_mapping(file)))
    given = [sweep.get(f"hydra.overrides.{part}", []) for part in ("hydra", "task")]
    check_types(file, given, list[list[str]])
    overrides = itertools.chain(*given)
    shown = [str(one) for one in overrides if not str(one).startswith(("hydra.mode=", "runs=", "cache="))]
    return " ".join(["python train.py -m", *map(_quoted, shown)])


def _quoted(override: str) -> str:
    return override if re.fullmatch(r"[\w./,=+~@:-]+", override) else shlex.quote(override)
