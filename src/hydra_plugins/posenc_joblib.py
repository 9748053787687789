"""A Hydra launcher that runs jobs in parallel on this machine. Hydra finds plugins only in packages of this name."""

import multiprocessing
import os
import pickle
import signal
import sys
from collections import deque
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobStatus

from posenc.compat import basic_launcher
from posenc.config.command_line import prepare_streams
from posenc.distributed.stop_signals import end_with_parent
from posenc.errors import Stopped, UserError, needed_for
from posenc.sweeps.failures import record_failure, saved_so_far, unfinished_run
from posenc.sweeps.jobs import job_name

BasicLauncher: Any = basic_launcher()


class Processes(BasicLauncher):
    """Trains each run in its own process; killing a process only affects its own run.

    On the command line it is hydra/launcher=joblib, the name that Hydra users know.

    Args:
        n_jobs: maximum number of parallel runs; -1 for one per core.

    Raises:
        UserError: if n_jobs is invalid, or the package `cloudpickle` is not installed.
    """

    def __init__(self, n_jobs: int = -1) -> None:
        super().__init__()
        with needed_for("hydra/launcher=joblib"):
            import cloudpickle  # noqa: F401
        if type(n_jobs) is not int or not (n_jobs == -1 or n_jobs >= 1):
            raise UserError(f"hydra.launcher.n_jobs={n_jobs} must be at least 1, or -1 for one job per core")
        self.cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self.at_a_time = self.cores if n_jobs == -1 else n_jobs

    def threads(self, runs: int) -> int:
        """Threads of each of so many runs, of which `at_a_time` train in parallel."""
        return max(1, self.cores // min(self.at_a_time, runs))

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Train all runs, and wait for them.

        Raises:
            Stopped: if a run was stopped by Ctrl-C, or stdout was closed; the others are saved in that case.
        """
        import cloudpickle

        waiting = deque(enumerate(job_overrides))
        running: dict[Future[float | None], tuple[int, ProcessPoolExecutor]] = {}
        losses: dict[int, float | None] = {}

        def start(process: ProcessPoolExecutor) -> None:
            number, overrides = waiting.popleft()
            job = cloudpickle.dumps((self, overrides, initial_job_idx + number, Singleton.get_state()))
            running[process.submit(_train, job)] = number, process

        try:
            while waiting or running:
                while waiting and len(running) < self.at_a_time:
                    start(_new_process(self.threads(len(job_overrides))))
                for ended in wait(running, return_when=FIRST_COMPLETED).done:
                    number, process = running.pop(ended)
                    losses[number] = self._loss(ended, job_overrides[number])
                    if waiting and ended.exception() is None:
                        start(process)
                    else:
                        process.shutdown(wait=False)
        except BaseException:
            for child in multiprocessing.active_children():
                child.terminate()  # it saves its run
            raise
        return [_completed(loss) for _, loss in sorted(losses.items())]

    def _loss(self, ended: Future[float | None], overrides: Sequence[str]) -> float | None:
        """The return value of a job; None, as for every failed job, if its process was killed."""
        try:
            return ended.result()
        except BrokenProcessPool:
            reason = "its process was killed"
        except Stopped as stopped:
            if stopped.signum != signal.SIGTERM:
                raise
            reason = str(stopped)
        configuration = self.hydra_context.config_loader.load_sweep_config(self.config, list(overrides))
        error = f"{reason}; {saved_so_far(configuration)}"
        record_failure(job_name(overrides), error, unfinished_run(configuration))
        return None


def _completed(loss: float | None) -> JobReturn:
    job = JobReturn(status=JobStatus.COMPLETED)
    job.return_value = loss
    return job


def _new_process(threads: int) -> ProcessPoolExecutor:
    """A pool with a single process, since a killed process breaks its whole pool."""
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _initialise, (threads,))


def _initialise(threads: int) -> None:
    """Set up a new process, before it imports torch."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    assert parent.pid is not None
    end_with_parent(signal.SIGTERM, parent.pid)
    prepare_streams()
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))


def _train(job: bytes) -> float | None:
    """Train one run in its process; returns its final validation loss."""
    launcher, overrides, number, singletons = pickle.loads(job)
    Singleton.set_state(singletons)  # with OmegaConf's resolvers
    try:
        return BasicLauncher.launch(launcher, [overrides], number)[0].return_value
    except Stopped as stopped:
        parent = multiprocessing.parent_process()
        if parent is None or os.getppid() != parent.pid:  # the parent has exited
            print(stopped, file=sys.stderr, flush=True)
            os._exit(stopped.exit_code)
        raise
