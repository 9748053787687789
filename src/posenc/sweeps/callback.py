"""What a sweep does beside its jobs: it continues after a failed one, and compares what there is at the end."""

import json
import math
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from posenc.config.command_line import broken_pipe
from posenc.config.overrides import parsed, values_of
from posenc.distributed import first_to_report
from posenc.errors import FAILED, RunError, UserError
from posenc.storage import checkpoint_files
from posenc.storage.run_directory import FAILED_JOBS, HOLDER, failed_jobs, find_run

NOTES = "POSENC_FAILED_JOBS"
"""The environment variable that tells the jobs of a sweep, wherever they run, where to note what went wrong."""


RUNS = "POSENC_RUNS"
"""The environment variable that tells the jobs of a sweep how many they are."""


@contextmanager
def failures_noted() -> Iterator[None]:
    """Inside a job of a sweep: tell and write down what went wrong, so that the next job gets its turn.

    It goes through a file, a line a failure, since jobs may run in processes or on machines of their own.
    """
    try:
        yield
    except BrokenPipeError:
        raise broken_pipe() from None  # the next job could not print either
    except Exception as error:
        hydra = HydraConfig.get()
        expected = isinstance(error, UserError | RunError)
        sentence = str(error) if expected else f"{type(error).__name__}: {error}"
        if not expected:
            traceback.print_exc()
        if not first_to_report(sentence, FAILED):
            return  # another rank has noted it
        note(hydra.job.override_dirname or "the only job", sentence, Path(hydra.sweep.dir))


def note(job: str, error: str, folder: Path) -> None:
    """Tell that a job failed, and write it down.

    Args:
        job: its name.
        error: a sentence.
        folder: of the sweep, where it is noted if the environment names no other file.
    """
    print(f"{job} failed: {error}", file=sys.stderr, flush=True)
    noted = Path(os.environ.get(NOTES) or folder / FAILED_JOBS)
    noted.parent.mkdir(parents=True, exist_ok=True)
    with noted.open("a") as stream:
        stream.write(json.dumps({"job": job, "error": error}) + "\n")


def progress(cfg: DictConfig) -> str:
    """How far a job has come, in words.

    Args:
        cfg: as composed for the job, with Hydra's part.
    """
    run = find_run(cfg)
    if run is None:
        return "its run had not begun"
    newest = next(iter(checkpoint_files.newest_first(run / "checkpoints")), None)
    return f"{run} is saved up to step {checkpoint_files.step(newest) if newest else 0}"


SAVING = 10.0
"""Seconds that runs in other processes get for saving themselves."""


class Comparison(Callback):
    """Hydra's callback around a sweep: the comparison and the report at its end.

    Leaves with exit code 1 if a job failed, 2 if there is nothing to compare.
    """

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        noted = (Path(config.hydra.sweep.dir) / FAILED_JOBS).absolute()
        noted.unlink(missing_ok=True)
        os.environ[NOTES] = str(noted)
        os.environ[RUNS] = str(_runs(config))
        self.begun = time.time()
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, lambda *_: _wait_for_savings(noted.parent))

    def on_job_start(self, config: DictConfig, **_: Any) -> None:
        if RUNS not in os.environ:  # one run alone
            return
        number, runs = config.hydra.job.num, int(os.environ[RUNS])
        summaries = Path(config.hydra.sweep.dir).glob("**/seed*/summary.json")
        trained = sum(file.stat().st_mtime > self.begun for file in summaries)
        left = (runs - number) * (time.time() - self.begun) / max(trained, 1)
        say = f", about {max(1, round(left / 60))} min left" if trained else ""
        with suppress(BrokenPipeError):  # Hydra would warn of it; the run ends of it, and says so
            print(f"Run {number + 1} of {runs}{say}", flush=True)

    def on_multirun_end(self, config: DictConfig, **_: Any) -> None:
        from posenc.config.command_line import one_sentence_errors

        folder = Path(config.hydra.sweep.dir)
        code = 0
        try:
            with one_sentence_errors():
                _compare(folder)
        except SystemExit as ended:
            code = int(ended.code or 0)
        except Exception:  # Hydra would make a warning of it, and the sweep would end with 0
            traceback.print_exc()
            code = FAILED
        failed = failed_jobs(folder)
        for job in failed:
            print(f"failed: {job['job']}: {job['error']}", file=sys.stderr)
        if failed:
            print("The same command trains what is missing.", file=sys.stderr)
        if failed or code:
            sys.exit(FAILED if failed else code)


def _runs(config: DictConfig) -> int:
    """How many runs Hydra's own sweeper makes of the values to sweep: every combination."""
    params = [f"{key}={value}" for key, value in (config.hydra.sweeper.get("params") or {}).items()]
    given = {override.key_or_group: override for override in parsed([*params, *config.hydra.overrides.task])}
    return math.prod(len(values_of(override)) for override in given.values())


def _compare(folder: Path) -> None:
    """Print the comparison and write the report, where what they need is installed: the runs are whole without."""
    try:
        from posenc.report.write import report

        report(str(folder))
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.startswith("posenc"):
            raise
        package = missing.name.partition(".")[0]
        print(f"No report here, {package} is not installed: elsewhere, python -m posenc.report {folder}")


def _wait_for_savings(folder: Path) -> None:
    """What Ctrl-C does between jobs: runs in other processes have had it too, and are killed after this returns."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a second one does not wait
    until = time.monotonic() + SAVING
    while any(folder.glob(f"*/*/{HOLDER}")) and time.monotonic() < until:
        time.sleep(0.05)
    raise KeyboardInterrupt
