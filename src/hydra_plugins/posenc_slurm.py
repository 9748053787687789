"""A Hydra launcher for SLURM that says what became of each job. Hydra finds launchers in packages of this name only."""

import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from omegaconf import DictConfig

from posenc.config.compose import register_resolvers
from posenc.errors import Stopped, UserError, first_line
from posenc.storage.run_directory import FAILED_JOBS, failed_jobs
from posenc.sweeps import slurm
from posenc.sweeps.callback import NOTES, note, progress
from posenc.sweeps.slurm import JobState

try:
    from hydra_plugins.hydra_submitit_launcher.config import BaseQueueConf
    from hydra_plugins.hydra_submitit_launcher.submitit_launcher import SlurmLauncher
except ModuleNotFoundError:  # a machine that submits nothing need not have it; Hydra imports this file everywhere
    SlurmLauncher = Launcher

POLL = 2.0
"""Seconds between looks at the queue."""

LOSSES = 2
"""Times that a job is lost before it is given up."""

LATE = 6.0
"""Seconds after a job's end in which its result may still appear on a file system that other machines write to."""


class Slurm(SlurmLauncher):
    """Submits one job per run and waits for all of them, asking squeue.

    A job that saved its run ahead of its limit puts itself back into the queue; so does SLURM with a preempted one.
    One that ends without a word (its process killed, its node dead) is put back once. Whatever fails is noted, and
    the others continue.
    """

    def setup(self, **given: Any) -> None:
        """Hydra's; before anything is written.

        Raises:
            UserError: if no cluster answers.
        """
        super().setup(**given)
        if not slurm.answers():
            raise UserError("hydra/launcher=slurm cannot submit: SLURM is not here, or does not answer to `squeue`")

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Submit, and wait for the end of the last job.

        Raises:
            UserError: if SLURM does not take the jobs.
            Stopped: on Ctrl-C; the jobs continue.
        """
        jobs = self._submitted(job_overrides, initial_job_idx)
        if callable(signal.getsignal(signal.SIGINT)):  # else Ctrl-C would wait for the jobs to be saved
            signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            print(f"In the queue: {' '.join(one.job.job_id for one in jobs)}", flush=True)
            while waiting := [one for one in jobs if one.outcome is None]:
                time.sleep(POLL)
                states = slurm.job_states(one.job.job_id for one in waiting)
                for one in waiting:
                    one.look(states)
        except KeyboardInterrupt:
            left = " ".join(one.job.job_id for one in jobs if one.outcome is None)
            sentence = (
                f"the jobs continue: {left}; cancel them with: scancel {left}; once they have ended, the same command "
                "compares what there is and trains what is missing"
            )
            raise Stopped(signal.SIGINT, sentence) from None
        return [one.outcome for one in jobs if one.outcome is not None]

    def __call__(self, *arguments: Any) -> JobReturn:
        """One run, inside its job."""
        from submitit import JobEnvironment

        register_resolvers()
        here = JobEnvironment()
        # A file of the job's own: lines that machines append to one file at the same time may be lost.
        os.environ[NOTES] = str(here.paths.folder / FAILED_JOBS)
        try:
            return super().__call__(*arguments)
        except Stopped as stopped:
            if here.global_rank == 0:
                _go_on_later(here.job_id)
                sys.exit(stopped.exit_code)
            sys.exit()  # srun ends the whole job at the first task that fails, and the first rank may still be busy

    def _submitted(self, job_overrides: Sequence[Sequence[str]], first: int) -> list["SubmittedJob"]:
        from hydra.core.singleton import Singleton
        from submitit import AutoExecutor

        given = {**self.params, "setup": [*(self.params["setup"] or []), *_listening(self.params)]}
        folder, timeouts = given.pop("submitit_folder"), given.pop("max_num_timeout")
        shared = set(BaseQueueConf.__dataclass_fields__)
        parameters = {key if key in shared else f"slurm_{key}": value for key, value in given.items()}
        numbers = range(first, first + len(job_overrides))
        arguments = [
            (list(overrides), "hydra.sweep.dir", number, f"job_id_for_{number}", Singleton.get_state())
            for number, overrides in zip(numbers, job_overrides, strict=True)
        ]
        try:
            executor = AutoExecutor(folder, cluster="slurm", slurm_max_num_timeout=timeouts)
            executor.update_parameters(**parameters, slurm_srun_args=["--kill-on-bad-exit=1"])
            with redirect_stderr(StringIO()):  # what sbatch says is in the error
                jobs = executor.map_array(self, *zip(*arguments, strict=True))
        except (NameError, ValueError, RuntimeError) as error:  # an unknown key, a wrong value, no srun, a refusal
            raise UserError(f"hydra/launcher=slurm cannot submit: {first_line(error)}") from error
        names = _apart(job_overrides)
        configured = [self.hydra_context.config_loader.load_sweep_config(self.config, list(o)) for o in job_overrides]
        return [SubmittedJob(*one) for one in zip(jobs, names, configured, strict=True)]


@dataclass
class SubmittedJob:
    """A submitted job.

    Attributes:
        job: submitit's.
        name: what sets its run apart in the sweep.
        configuration: of its run, with Hydra's.
        outcome: what it came to; None before its end.
        lost_on: the nodes that lost it.
    """

    job: Any
    name: str
    configuration: DictConfig
    outcome: JobReturn | None = None
    lost_on: list[str] = field(default_factory=list)
    _over_since: float | None = None

    def look(self, states: Mapping[str, JobState] | None) -> None:
        """Take its result, if there is one; find out whether there will never be one."""
        folder = self.job.paths.folder
        if folder.exists() and self.job.paths.result_pickle.name in os.listdir(folder):  # asks a file server anew
            self._take()
            return
        state = None if states is None else states[self.job.job_id]
        if state is None or not state.over:
            self._over_since = None
        elif self._over_since is None:
            self._over_since = time.monotonic()
        elif time.monotonic() - self._over_since > LATE:
            self._over_since = None
            self._lost(state)

    def _take(self) -> None:
        from submitit.core.utils import UncompletedJobError

        for failure in failed_jobs(self.job.paths.folder):
            self._note(failure["error"])
        try:
            self.outcome = self.job.results()[0]
        except UncompletedJobError:
            self._fail(f"its job {self.job.job_id} ended with an error; see {self.job.paths.stderr}")

    def _lost(self, state: JobState) -> None:
        job, saved = self.job.job_id, progress(self.configuration)
        if state.name == "CANCELLED":
            self._fail(f"job {job} was cancelled; {saved}")
            return
        if state.name != "PREEMPTED":  # where a partition cancels what it preempts, the node is not to blame
            self.lost_on.append(state.node or "an unknown node")
        where = f" on {' and again on '.join(self.lost_on)}" if self.lost_on else ""
        if len(self.lost_on) < LOSSES and slurm.requeue(job):
            again = f"ended without a result ({state.name}) and is in the queue again"
            print(f"{self.name}: job {job} {again}; {saved}")
        else:
            log = self.job.paths.stderr
            self._fail(f"job {job} was lost{where} ({state.name}) and is given up; {saved}; its log is {log}")

    def _fail(self, sentence: str) -> None:
        self._note(sentence)
        self.outcome = JobReturn(status=JobStatus.COMPLETED)  # one that failed would end the sweep

    def _note(self, sentence: str) -> None:
        note(self.name, sentence, Path(self.configuration.hydra.sweep.dir))


def _apart(job_overrides: Sequence[Sequence[str]]) -> list[str]:
    """A name for each job: the overrides that not all of them have."""
    shared = set.intersection(*map(set, job_overrides))
    return [",".join(one for one in given if one not in shared) or "the only job" for given in job_overrides]


def _listening(params: Mapping[str, Any]) -> list[str]:
    """What tells submitit, in a job, to listen to the signal that sbatch is asked for."""
    asked = params["additional_parameters"].get("signal")
    return [f"export SUBMITIT_PREEMPT_SIGNAL={slurm.signal_name(asked)}"] if asked else []


def _go_on_later(job: str) -> None:
    """Back into the queue, if the job was given time before it must leave: SLURM would take its end for the last."""
    states = slurm.job_states([job])
    if states is not None and states[job].name == "RUNNING":
        slurm.requeue(job)
