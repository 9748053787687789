"""What the tests share: the real command line, and a small composed configuration."""

import copy
import functools
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from omegaconf import OmegaConf

from posenc.config.compose import composed as config_and_choices
from posenc.storage.csv_files import read_csv
from tests import warm

# Toy models gain nothing from threads, and two test processes of two threads each get in each other's way.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Hypothesis fails an example that takes 200 ms; on a busy machine that says nothing about the code.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

ROOT = Path(__file__).parent.parent
CONF = ROOT / "conf"

CLOCK = ("seconds", "tokens_per_s", "mfu")
"""Columns of metrics.csv that no two runs share."""

LONGEST = ("faults", "slurm", "devices", "rank_ends", "report", "command_line", "run", "loggers", "gpu_figures")
"""Test files of more than a minute."""

HANGUP = pytest.param(
    signal.SIGHUP,
    marks=pytest.mark.skipif(signal.getsignal(signal.SIGHUP) is signal.SIG_IGN, reason="nohup ignores SIGHUP"),
)
"""SIGHUP as a test's parameter."""

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """What a test draws from torch's global generator is the same in every run, so that a failure can be repeated."""
    if torch := sys.modules.get("torch"):  # not imported for a test that does without
        torch.manual_seed(0)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first: a worker that starts on one near the end keeps the others waiting."""
    items.sort(key=lambda item: item.path.stem.removeprefix("test_") not in LONGEST)


def python(
    *arguments: object, cwd: Path = ROOT, env: dict[str, str] | None = None, timeout: float = 240
) -> subprocess.CompletedProcess[str]:
    """Run `python ARGUMENTS` as a user would, in a copy of a warm Python; returns the finished process."""
    return warm.python().run(*arguments, cwd=cwd, env={**clean_environment(), **(env or {})}, timeout=timeout)


def fresh_python(
    *arguments: object, cwd: Path = ROOT, env: dict[str, str] | None = None, timeout: float = 240
) -> subprocess.CompletedProcess[str]:
    """The same in a Python that is started for it, which takes eight seconds more of a processor."""
    command = [sys.executable, *map(str, arguments)]
    environment = {**clean_environment(), **(env or {})}
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=timeout, env=environment)


@pytest.fixture
def train(tmp_path: Path) -> Command:
    """Run `python train.py`, writing to the test's folder; returns the finished process."""

    def run(*arguments: str, python: Command = python, **options: Any) -> subprocess.CompletedProcess[str]:
        # The cache is shared by all tests of a checkout: it is keyed by content, and checked on opening.
        return python("train.py", f"runs={tmp_path}/runs", *arguments, **options)

    return run


def train_here(runs: Path, *overrides: str) -> Path:
    """Train a toy run in this process; returns its directory."""
    from posenc.training.run import run

    run(*config_and_choices(CONF, ("experiment=smoke", "logger=csv", "trainer=cpu", f"runs={runs}", *overrides)))
    return only(runs, "*/*/seed*")


def clean_environment() -> dict[str, str]:
    """The environment without W&B's settings or the hub."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("WANDB_", "HYDRA_"))}
    return {**kept, "HF_HUB_OFFLINE": "1", "NETRC": os.devnull}


def composed(*overrides: str) -> dict:
    """The resolved configuration of a command line."""
    return copy.deepcopy(_composed(overrides))


@functools.cache
def _composed(overrides: tuple[str, ...]) -> dict:
    config = OmegaConf.to_container(config_and_choices(CONF, overrides)[0], resolve=True)
    assert isinstance(config, dict)
    return config


def curve(run: Path) -> list[dict[str, str]]:
    """metrics.csv without what depends on the clock."""
    rows = read_csv(run / "metrics.csv")
    return [{name: cell for name, cell in row.items() if name not in CLOCK} for row in rows]


def only(folder: Path, pattern: str = "*") -> Path:
    """The one entry of a folder that matches."""
    (entry,) = folder.glob(pattern)
    return entry
