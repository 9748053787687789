"""One run, read from its directory or from elsewhere, in the form in which runs are compared."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Lt
from numpy.typing import NDArray
from typing_extensions import TypedDict  # required by pydantic before Python 3.12

from posenc.config.schema import NOT_IN_IDENTITY, canonical, check_plain
from posenc.errors import UserError, first_line
from posenc.storage.csv_files import read_numbers
from posenc.storage.lengths_file import Lengths
from posenc.storage.reading import check_types, leaves, read_mapping
from posenc.storage.run_directory import Summary

AXES = ("step", "tokens", "seconds")
"""The x axes of a curve."""

MEASURABLE = (1e-6, 1e15)
"""Range of the steps, tokens and seconds of a validation: a microsecond, and more tokens than there are of text."""

DIVERGED = 1e6
"""Nats per token, far above the loss of an untrained model."""

SCORES = ("previous_token", "induction")
"""Of the best attention head, between 0 and 1."""

MEASURES = ("val_loss", *SCORES)
"""The METRICS of a validation."""


@dataclass(frozen=True)
class Run:
    """One finished or unfinished run.

    Attributes:
        source: where it was read from.
        scheme, seed: identify it within the comparison.
        budget: number of steps of the full run.
        setting: the rest of its configuration, by dotted key; runs with equal settings differ only in scheme and seed.
        curve: AXES and MEASURES, each (validations,); NaN where a value was not measured.
        summary: written at its end; empty while it is being trained.
        heads: every attention head after every validation, from attention.csv.
        lengths: evaluation in longer windows, if there is one.
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
        """The same run, truncated after a step."""
        inside = self.curve["step"] <= step
        heads = tuple(head for head in self.heads if head["step"] <= step)
        return replace(self, curve={name: values[inside] for name, values in self.curve.items()}, heads=heads)

    @property
    def name(self) -> str:
        return f"{self.scheme}, seed {self.seed}"


def run_directories(folder: Path, notices: list[str]) -> list[Path]:
    """The run directories in a folder, recursively and through links, each once.

    Adds a notice for each folder that cannot be read.
    """

    def unreadable(error: OSError) -> None:
        notices.append(f"{error.filename} cannot be read: {error.strerror}; left out")

    found, seen = [], set()
    for path, folders, files in os.walk(folder, onerror=unreadable, followlinks=True):
        if (real := os.path.realpath(path)) in seen:
            folders.clear()
        elif "config.yaml" in files and os.path.basename(real).startswith("seed"):
            found.append(Path(path))
        seen.add(real)
    return sorted(found)


def age(run: Run) -> tuple[str, int]:
    """What orders finished runs from the oldest to the newest."""
    # Of one time: directories differ in the number at the end of their names, and W&B lists older runs first.
    return run.summary.get("date", ""), len(run.source)


def finished_runs(folders: Iterable[Path]) -> tuple[tuple[Run, ...], tuple[str, ...]]:
    """Every finished run in some folders, at any depth and with any budget, and notices for what was left out."""
    directories: list[Path] = []
    left_out: list[str] = []
    for folder in folders:
        unreadable: list[str] = []
        found = run_directories(folder, unreadable)
        directories += found
        left_out += unreadable or ([] if found else [f"no runs in {folder}"])
    runs, _, notices = read_runs((str(directory), partial(read_run, directory)) for directory in directories)
    return tuple(run for run in runs if run.finished), (*left_out, *notices)


def read_runs(
    readers: Iterable[tuple[str, Callable[[], Run]]],
) -> tuple[tuple[Run, ...], tuple[Run, ...], tuple[str, ...]]:
    """The valid runs, the diverged ones, and a notice for each that was left out.

    Args:
        readers: the name of each run in a notice, and what reads it.
    """
    runs: list[Run] = []
    diverged, notices = [], []
    for source, read in readers:
        try:
            run = read()
        except UserError as error:
            notices.append(f"{error}; left out")
            continue
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            notices.append(f"{source} cannot be read ({type(error).__name__}: {first_line(error)}); left out")
            continue
        lost = ~(np.abs(run.curve["val_loss"]) < DIVERGED)  # NaN compares false
        if lost.any():
            step, value = int(run.curve["step"][lost][0]), run.curve["val_loss"][lost][0]
            notices.append(f"{run.name} diverged: its loss is {value} from step {step} on; left out ({run.source})")
            diverged.append(run)
        else:
            runs.append(run)
    return tuple(runs), tuple(diverged), tuple(notices)


class _Config(TypedDict):
    """The keys read from a configuration, besides the setting."""

    __pydantic_config__ = {"strict": True}  # type: ignore[misc]
    choices: dict[str, str | None]
    seed: Annotated[int, Ge(0), Lt(2**63)]
    steps: Annotated[int, Ge(1), Lt(10**9)]


def read_run(directory: Path) -> Run:
    """The run in a directory.

    Raises:
        UserError: if a file cannot be read, or the run has no validation yet.
    """
    try:
        config = read_mapping(directory / "config.yaml")
        measured = [row for row in read_numbers(directory / "metrics.csv") if "val_loss" in row]
        if not measured:
            raise UserError(f"{directory} has no validation yet")
        finished = directory / "summary.json"
        summary = read_mapping(finished) if finished.exists() else None
        heads = _heads(directory / "attention.csv")
    except OSError as error:  # of `exists`
        raise UserError(f"{directory} cannot be read: {error.strerror}") from error
    return run_of(str(directory), config, measured, summary, heads)


def _heads(file: Path) -> tuple[Mapping[str, float], ...]:
    rows = read_numbers(file)
    places = ("step", "layer", "head")
    if not all(row.get(name, np.nan).is_integer() for row in rows for name in places):
        raise UserError(f"{file} cannot be read: a row has no step, layer or head")
    if not all(0 <= value <= 1 for row in rows for name, value in row.items() if name not in places):
        raise UserError(f"{file} cannot be read: attention must be between 0 and 1")
    return tuple(rows)


def run_of(
    source: str,
    config: Mapping[str, Any],
    rows: list[dict[str, Any]],
    summary: Mapping[str, Any] | None,
    heads: tuple[Mapping[str, float], ...] = (),
) -> Run:
    """A run from its configuration, validation rows and summary (None while unfinished).

    Raises:
        UserError: if a value is missing or invalid, or the rows are not in order, or beyond the run's steps.
    """
    check_types(f"the configuration of {source}", config, _Config)
    check_plain(f"{source}: pos", config["choices"]["pos"])
    if summary is not None:
        check_types(f"the summary of {source}", summary, Summary)
    curve = {name: np.array([row.get(name) for row in rows], float) for name in (*AXES, *MEASURES)}
    for axis in AXES:
        low, high = MEASURABLE
        if not ((curve[axis] >= low) & (curve[axis] <= high)).all() or not (np.diff(curve[axis]) > 0).all():
            raise UserError(f"{source} cannot be read: {axis} must increase from validation to validation")
    if curve["step"][-1] > config["steps"]:
        raise UserError(f"{source} cannot be read: it has more steps than steps={config['steps']}")
    for score in SCORES:
        if ((curve[score] < 0) | (curve[score] > 1)).any():
            raise UserError(f"{source} cannot be read: {score} must be between 0 and 1")
    final = curve["val_loss"][-1]  # NaN is divergence, which has its own notice
    if summary and (curve["step"][-1] != config["steps"] or not (np.isnan(final) or final == summary["val_loss"])):
        raise UserError(f"{source} cannot be read: its summary does not belong to the end of its curve")
    setting = {key: canonical(value) for key, value in flat(config)}
    if summary and "precision" in summary:
        setting["precision"] = summary["precision"]
    return Run(source, config["choices"]["pos"], config["seed"], config["steps"], setting, curve, summary or {}, heads)


def flat(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The configuration that runs of a comparison must share, by dotted key; choices are under their group's name."""
    ignored = {*NOT_IN_IDENTITY, "seed", "choices", "attention_every", "log_every"}
    # A corpus is its name, and `text` for its contents, wherever its files are.
    unnamed = {*ignored, "experiment", "sweep", "pos"} - {"data"}
    yield from ((group, choice) for group, choice in config["choices"].items() if group not in unnamed)
    # On W&B's server, the agent of a sweep has replaced the group that it varies by the choice.
    chosen = {group for group in config["choices"] if isinstance(config.get(group), str)}
    rest = leaves({key: value for key, value in config.items() if key not in ignored | chosen})
    yield from ((key, value) for key, value in rest if not key.endswith("_target_"))
