"""What the jobs of a sweep record: that one failed, and how far its run has come."""

import math
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from posenc.config.command_line import broken_pipe, explain
from posenc.config.secrets import presentable
from posenc.distributed import first_to_report
from posenc.errors import FAILED, RunError, UserError
from posenc.storage import checkpoint_files
from posenc.storage.csv_files import read_numbers
from posenc.storage.failed_jobs import failed_job
from posenc.storage.run_directory import find_run
from posenc.sweeps.jobs import job_name

FAILURES_VARIABLE = "POSENC_FAILED_JOBS"
"""Environment variable with the file in which the jobs of a sweep record failures."""


@contextmanager
def failures_recorded(cfg: DictConfig) -> Iterator[None]:
    """Context for a job of a sweep: prints and records an error, so that the sweep continues with the next job.

    Failures are recorded in a file, since jobs may run in other processes or on other machines.
    """
    try:
        yield
    except BrokenPipeError:
        raise broken_pipe() from None  # the next job could not print either
    except Exception as error:
        expected = isinstance(error, UserError | RunError | OmegaConfBaseException)
        sentence = explain(error, (), None) if expected else f"{type(error).__name__}: {error}"
        if not expected:
            traceback.print_exc()
        if not first_to_report(sentence, FAILED):
            return  # another rank has recorded it
        record_failure(job_name(HydraConfig.get().overrides.task), sentence, unfinished_run(cfg))


def unfinished_run(cfg: DictConfig) -> Path | None:
    """The directory of the run that a failed job was to train; None if it has none."""
    with suppress(OmegaConfBaseException):  # an invalid configuration has no run
        run = find_run(cfg)
        if run and not (run / "summary.json").exists():  # else of another text, or trained before `rerun=true`
            return run
    return None


def diverged(cfg: DictConfig) -> bool:
    """Whether the run of a failed job has diverged."""
    if run := unfinished_run(cfg):
        with suppress(UserError):
            return any(math.isnan(row.get("val_loss", 0.0)) for row in read_numbers(run / "metrics.csv"))
    return False


def record_failure(job: str, error: str, run: Path | None = None) -> None:
    """Print that a job, named by its overrides, failed, and record it in the file that FAILURES_VARIABLE names.

    Args:
        run: its run directory, which another process may be training.
    """
    job, error = presentable(job), presentable(error)
    print(f"{job} failed: {error}", file=sys.stderr, flush=True)
    file = Path(os.environ[FAILURES_VARIABLE])
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as stream:
        stream.write(failed_job(job, error, run, file.parent))


def saved_so_far(cfg: DictConfig) -> str:
    """Description of the progress of a job, given by its configuration with Hydra's part."""
    run = find_run(cfg)
    if run is None:
        return "its run had not started"
    newest = next(iter(checkpoint_files.newest_first(run / "checkpoints")), None)
    return f"{run} is saved up to step {checkpoint_files.step(newest) if newest else 0}"
