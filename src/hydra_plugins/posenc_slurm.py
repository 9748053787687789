"""A Hydra launcher for SLURM that tracks each job. Hydra finds plugins only in packages of this name."""

import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass, field, fields
from io import StringIO
from typing import Any

from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from omegaconf import DictConfig

from posenc.distributed import adopt_srun
from posenc.distributed.stop_signals import sigterm_ignored
from posenc.errors import Stopped, UserError, first_line
from posenc.storage.failed_jobs import FAILED_JOBS, failed_jobs
from posenc.sweeps import slurm
from posenc.sweeps.failures import FAILURES_VARIABLE, record_failure, saved_so_far, unfinished_run
from posenc.sweeps.jobs import job_name
from posenc.sweeps.slurm import JobState

try:
    from hydra_plugins.hydra_submitit_launcher.config import BaseQueueConf
    from hydra_plugins.hydra_submitit_launcher.submitit_launcher import SlurmLauncher
except ModuleNotFoundError:  # optional; Hydra imports this file on every machine
    SlurmLauncher = Launcher

POLL = 2.0
"""Seconds between queries of the queue."""

MAX_ATTEMPTS = 2
"""How often a job is run if it is lost."""

RESULT_DELAY = 6.0
"""Seconds after the end of a job in which its result may still appear on a network file system."""


class Slurm(SlurmLauncher):
    """Submits one job per run and waits for all of them, polling squeue.

    A job that saved its run before the time limit requeues itself; SLURM requeues preempted jobs. A job that ends
    without a result (process killed, node failure) is requeued once. Failures are recorded, and the others continue.
    """

    def setup(self, **given: Any) -> None:
        """Called by Hydra, before anything is written.

        Raises:
            UserError: if SLURM is not available.
        """
        super().setup(**given)
        if not slurm.available():
            raise UserError("hydra/launcher=slurm cannot submit: SLURM is not installed, or `squeue` does not respond")

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Submit the jobs, and wait for all of them.

        Raises:
            UserError: if SLURM rejects the jobs.
            Stopped: on Ctrl-C; the jobs continue.
        """
        if not job_overrides:  # every trial of a search diverged
            return []
        jobs = self._submit(job_overrides, initial_job_idx)
        if callable(signal.getsignal(signal.SIGINT)):  # the sweep's own would say that the runs are resumed
            signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            print(f"Submitted: {' '.join(one.job.job_id for one in jobs)}", flush=True)
            while waiting := [one for one in jobs if one.outcome is None]:
                time.sleep(POLL)
                states = slurm.job_states(one.job.job_id for one in waiting)
                for one in waiting:
                    one.update(states)
        except KeyboardInterrupt:
            left = " ".join(one.job.job_id for one in jobs if one.outcome is None)
            message = (
                f"the jobs continue: {left}; cancel them with: scancel {left}; once they have ended, the same command "
                "compares the finished runs and trains the missing ones"
            )
            raise Stopped(signal.SIGINT, message) from None
        return [one.outcome for one in jobs if one.outcome is not None]

    def __call__(self, *arguments: Any) -> JobReturn:
        """Train one run inside its job."""
        from submitit import JobEnvironment

        adopt_srun()  # before torch is imported
        environment = JobEnvironment()
        # One file per job, since concurrent appends from several machines may be lost.
        os.environ[FAILURES_VARIABLE] = str(environment.paths.folder / FAILED_JOBS)
        try:
            return super().__call__(*arguments)
        except Stopped as stopped:
            if environment.global_rank == 0:
                # It stops before its time limit: SLURM would consider it complete.
                states = slurm.job_states([environment.job_id])
                if states is not None and states[environment.job_id].name == "RUNNING":
                    with sigterm_ignored():
                        slurm.requeue(environment.job_id)
                sys.exit(stopped.exit_code)
            sys.exit()  # with 0, since srun ends the job when a task fails, and rank 0 may still be busy

    def _submit(self, job_overrides: Sequence[Sequence[str]], first: int) -> list["SubmittedJob"]:
        from hydra.core.singleton import Singleton
        from submitit import AutoExecutor

        given = dict(self.params)
        folder, timeouts = given.pop("submitit_folder"), given.pop("max_num_timeout")
        shared = {one.name for one in fields(BaseQueueConf)}
        parameters = {key if key in shared else f"slurm_{key}": value for key, value in given.items()}
        numbers = range(first, first + len(job_overrides))
        arguments = [
            (list(overrides), "hydra.sweep.dir", number, f"job_id_for_{number}", Singleton.get_state())
            for number, overrides in zip(numbers, job_overrides, strict=True)
        ]
        try:
            executor = AutoExecutor(folder, cluster="slurm", slurm_max_num_timeout=timeouts)
            executor.update_parameters(**parameters, slurm_srun_args=["--kill-on-bad-exit=1"])
            with redirect_stderr(StringIO()):  # sbatch's output is in the error
                jobs = executor.map_array(self, *zip(*arguments, strict=True))
        except (NameError, ValueError, RuntimeError) as error:  # an unknown key, an invalid value, no srun, a rejection
            raise UserError(f"hydra/launcher=slurm cannot submit: {first_line(error)}") from error
        configured = [self.hydra_context.config_loader.load_sweep_config(self.config, list(o)) for o in job_overrides]
        return [SubmittedJob(*one) for one in zip(jobs, map(job_name, job_overrides), configured, strict=True)]


@dataclass
class SubmittedJob:
    """A job, known by submitit, and named by the overrides that distinguish its run in the sweep."""

    job: Any
    name: str
    configuration: DictConfig
    outcome: JobReturn | None = None
    """None while it is running."""
    lost_on: list[str] = field(default_factory=list)
    """The nodes on which it was lost."""
    _over_since: float | None = None

    def update(self, states: Mapping[str, JobState] | None) -> None:
        """Read its result if there is one; otherwise check whether it was lost."""
        folder = self.job.paths.folder
        if folder.exists() and self.job.paths.result_pickle.name in os.listdir(folder):  # listdir bypasses NFS caches
            self._read_result()
            return
        state = None if states is None else states[self.job.job_id]
        if state is None or state.name not in slurm.FINAL:
            self._over_since = None
        elif self._over_since is None:
            self._over_since = time.monotonic()
        elif time.monotonic() - self._over_since > RESULT_DELAY:
            self._over_since = None
            self._handle_loss(state)

    def _read_result(self) -> None:
        from submitit.core.utils import UncompletedJobError

        for failure in failed_jobs(self.job.paths.folder):
            record_failure(self.name, failure["error"], unfinished_run(self.configuration))
        try:
            self.outcome = self.job.results()[0]
        except UncompletedJobError:
            self._fail(f"its job {self.job.job_id} ended with an error; see {self.job.paths.stderr}")

    def _handle_loss(self, state: JobState) -> None:
        job, saved = self.job.job_id, saved_so_far(self.configuration)
        if state.name == "CANCELLED":
            self._fail(f"job {job} was cancelled; {saved}")
            return
        if state.name != "PREEMPTED":  # a partition may cancel preempted jobs, which is not the node's fault
            self.lost_on.append(state.node or "an unknown node")
        where = f" on {' and again on '.join(self.lost_on)}" if self.lost_on else ""
        if len(self.lost_on) < MAX_ATTEMPTS and slurm.requeue(job):
            print(f"{self.name}: job {job} ended without a result ({state.name}) and was requeued; {saved}")
        else:
            log = self.job.paths.stderr
            self._fail(f"job {job} was lost{where} ({state.name}) and is not retried; {saved}; its log is {log}")

    def _fail(self, sentence: str) -> None:
        record_failure(self.name, sentence, unfinished_run(self.configuration))
        self.outcome = JobReturn(status=JobStatus.COMPLETED)  # FAILED would end the sweep
