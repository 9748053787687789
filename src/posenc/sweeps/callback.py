"""Sweeps: continuing after failed jobs, progress, and the comparison at the end."""

import atexit
import math
import multiprocessing
import os
import secrets
import shlex
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from posenc.config.command_line import one_sentence_errors
from posenc.config.overrides import overrides_of, values_of
from posenc.errors import FAILED, Stopped
from posenc.storage.atomic import PARTIAL, atomic_write
from posenc.storage.failed_jobs import FAILED_JOBS, not_tried_again, unfinished_jobs
from posenc.sweeps.failures import FAILURES_VARIABLE
from posenc.sweeps.jobs import SWEPT_KEYS_VARIABLE

JOB_COUNT_VARIABLE = "POSENC_SWEEP_JOBS"
"""Environment variable with the number of jobs of a sweep."""

LEAD = 1.0
"""Seconds between a Ctrl-C, which reaches the processes of this one too if it comes from a terminal, and the SIGTERM
that they are then sent in case it has not: the first signal is the one that counts."""


class SweepCallback(Callback):
    """Hydra callback: prints the progress of a sweep, and compares its runs at the end.

    Exits with code 1 if a job failed, 2 if there is nothing to compare.
    """

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        folder = Path(config.hydra.sweep.dir).absolute()
        own = folder / f"{FAILED_JOBS}.{secrets.token_hex(4)}{PARTIAL}"  # another sweep may be running in this folder
        os.environ[FAILURES_VARIABLE] = str(own)
        overrides = overrides_of(config, config.hydra.overrides.task)
        os.environ[JOB_COUNT_VARIABLE] = str(math.prod(len(values_of(override)) for override in overrides.values()))
        swept = [key for key, override in overrides.items() if override.is_sweep_override()]
        os.environ[SWEPT_KEYS_VARIABLE] = ",".join(swept)
        self.start = time.time()
        atexit.register(_publish, own, self.start)  # after Ctrl-C
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, lambda *_: _stop(config.rerun))

    def on_job_start(self, config: DictConfig, **_: Any) -> None:
        if JOB_COUNT_VARIABLE not in os.environ:  # not a sweep
            return
        number, runs = config.hydra.job.num, int(os.environ[JOB_COUNT_VARIABLE])
        summaries = Path(config.hydra.sweep.dir).glob("**/seed*/summary.json")
        trained = sum(file.stat().st_mtime > self.start for file in summaries)
        left = (runs - number) * (time.time() - self.start) / max(trained, 1)
        rounded = f"{round(left / 60)} min" if left >= 90 else f"{max(1, round(left))} s"
        estimate = f", about {rounded} left" if trained else ""
        with suppress(BrokenPipeError):  # Hydra would only warn; the run itself reports it
            print(f"Run {number + 1} of {runs}{estimate}", flush=True)

    def on_multirun_end(self, config: DictConfig, **_: Any) -> None:
        folder, own = Path(config.hydra.sweep.dir), Path(os.environ[FAILURES_VARIABLE])
        failures = _publish(own, self.start, over=True)
        untrained = failures and not any(folder.glob("*/seed*"))
        code = 0 if untrained else _exit_code(lambda: _compare(folder))
        if failed := unfinished_jobs(failures, folder):
            _exit_code(lambda: _show_failed(failed, config.rerun))
            code = FAILED
        if code:
            sys.exit(code)


def _exit_code(step: Callable[[], None]) -> int:
    """Report the errors of a step as a command does; Hydra would turn them into warnings and exit with 0."""
    try:
        with one_sentence_errors():
            step()
    except SystemExit as ended:
        return int(ended.code or 0)
    except Exception:
        traceback.print_exc()
        return FAILED
    return 0


def _compare(folder: Path) -> None:
    """Print the comparison and write the report, if their dependencies are installed."""
    try:
        from posenc.report.write import report

        report(str(folder))
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.startswith("posenc"):
            raise
        package = missing.name.partition(".")[0]
        command = f"python -m posenc.report {shlex.quote(str(folder))}"
        print(f"No report, since {package} is not installed; to create it: {command}")


def _publish(own: Path, start: float, over: bool = False) -> str:
    """Add the failures of a sweep to those of its folder, and return them.

    Of those from before its start, the ones of jobs that it has tried again are deleted: all of them once it is over.
    """
    of_folder = own.with_name(FAILED_JOBS)
    failures = own.read_text(errors="replace") if own.exists() else ""
    if of_folder.exists() and of_folder.stat().st_mtime < start:
        kept = "" if over else not_tried_again(of_folder.read_text(errors="replace"), failures)
        if kept:
            atomic_write(of_folder, kept)
        else:
            of_folder.unlink()
    if failures:
        with of_folder.open("a") as stream:
            stream.write(failures)
        own.unlink()
    return failures


def _show_failed(failed: Sequence[Mapping[str, str]], rerun: bool) -> None:
    """Print the failed jobs again.

    With `rerun=true` the same command would train the finished runs again, too.
    """
    for job in failed:
        print(f"failed: {job['job']}: {job['error']}", file=sys.stderr)
    resumable = any(job["run"] for job in failed)  # without a run the configuration may be invalid, as it will be again
    if resumable and not rerun:
        print("The same command tries the missing runs again.", file=sys.stderr)


def _stop(rerun: bool) -> NoReturn:
    """Ctrl-C handler. Runs in processes of this one save when they get the signal; Python waits for them at exit."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C is for processes that are still saving
    if multiprocessing.active_children():
        time.sleep(LEAD)
    resumes = "" if rerun else ": the same command resumes the unfinished runs"
    raise Stopped(signal.SIGINT, f"stopped by Ctrl-C{resumes}")
