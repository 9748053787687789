"""A run on Weights & Biases, which may fail in any way and at any time without harm to ours."""

import html
import os
import textwrap
from collections.abc import Callable, Mapping
from typing import Any

from lightning.pytorch.loggers import Logger

from posenc.config.secrets import hidden
from posenc.errors import first_line
from posenc.storage.checkpoint_files import newest_first
from posenc.storage.csv_files import read_numbers
from posenc.storage.run_directory import RunDirectory
from posenc.tracking.client import listen, load, reach, shut_down, to_wandb, within
from posenc.tracking.wandb_segments import NONE, last_step

CURVES = ("metrics.csv", "attention.csv", "config.yaml", "summary.json")
"""What an artifact has beside the checkpoints."""

PARTING = 2.0
"""Seconds that W&B gets when the run was stopped or has failed."""


class WeightsAndBiases(Logger):
    """One run there.

    The first failure is printed in a line; from then on nothing more is asked of W&B. Its service has by
    then written down what it was given, so that `wandb sync` can upload it.

    A session that was killed may have logged rows past its last checkpoint, and may have lost some before they were
    written down. The next one leaves out the former and hands over the latter, so that W&B has each step once.

    Args:
        wandb: the module.
        run: as W&B gives it.
        warnings: what its service says.
        directory: ours, with the curve so far.
        held: the last step that W&B has already.
        upload: seconds to wait at the end.
        artifact: whether the last checkpoint, the best and the curves are uploaded too.
    """

    def __init__(
        self,
        wandb: Any,
        run: Any,
        warnings: list[str],
        directory: RunDirectory,
        held: int,
        upload: float,
        artifact: bool,
    ) -> None:
        super().__init__()
        self.wandb, self.run, self.warnings, self.upload = wandb, run, warnings, upload
        self.directory, self.held, self.wants_best = directory, held, artifact
        self.files = os.path.relpath(os.path.dirname(run.dir))
        # A run that was resumed has a segment a session, and all of them make the whole.
        self.sync = (
            f"wandb sync {'' if run.offline else '--no-skip-online '}{os.path.dirname(self.files)}/*run-*-{run.id}"
        )
        self.hint = ""
        self._healthy, self._caught_up = True, False

    @property
    def name(self) -> str:
        return str(self.run.project)

    @property
    def version(self) -> str:
        return str(self.run.id)

    def log_hyperparams(self, *_: Any, **__: Any) -> None:
        """They were given at the beginning."""

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:  # noqa: ARG002
        """Hand over a row; the service takes it from there, so that no step waits for the server."""
        if self._caught_up:
            self._log(metrics)
        else:  # this row is in the file by now, after those of earlier sessions
            self._caught_up = True
            for row in read_numbers(self.directory.path / "metrics.csv"):
                self._log(row)

    def _log(self, row: Mapping[str, float]) -> None:
        step = int(row["step"])
        if step > self.held:
            self._attempt(lambda: self.run.log(to_wandb(row), step=step, commit=True))

    def finish(self, sample: str, summary: Mapping[str, Any]) -> None:
        """Hand over the sample and the whole summary: the report can be made from it."""
        self._attempt(lambda: self.run.summary.update(dict(summary)))
        self._attempt(lambda: self.run.log({"sample": self.wandb.Html(f"<pre>{html.escape(sample)}</pre>")}))
        if self.wants_best:
            self._attempt(self._upload_files)

    def _upload_files(self) -> None:
        artifact = self.wandb.Artifact(f"run-{self.run.id}", type="model")
        for file in (*newest_first(self.directory.checkpoints)[:1], *map(self.directory.path.joinpath, CURVES)):
            artifact.add_file(str(file))
        for file in newest_first(self.directory.best):
            artifact.add_file(str(file), name=f"best/{file.name}")
        self.run.log_artifact(artifact)

    def close(self, failed: bool) -> None:
        """End the run within bounded time, and with it the service, so that nothing is left for the process's end."""
        limit = PARTING if failed else self.upload
        self._attempt(lambda: within(limit, lambda: self.run.finish(exit_code=int(failed))))
        if any("wandb sync" in warning for warning in self.warnings):
            self._give_up("it refused a part")
        if self._healthy and self.hint:
            print(self.hint, flush=True)
        self._healthy = False
        shut_down(self.wandb)

    def _attempt(self, call: Callable[[], Any]) -> None:
        if self._healthy:
            try:
                call()
            except Exception as error:
                self._give_up(_reason(error))

    def _give_up(self, reason: str) -> None:
        if self._healthy:
            self._healthy = False
            print(f"W&B has not everything of this run ({reason}): upload it with `{self.sync}`.", flush=True)


def _reason(error: BaseException) -> str:
    """Of a failure, without keys; a server's whole page is not meant for this place."""
    return textwrap.shorten(hidden(first_line(error)), 150, placeholder=" ...")


def begin(
    directory: RunDirectory, settings: Mapping[str, Any], timeout: float, upload: float, artifact: bool
) -> WeightsAndBiases | None:
    """Begin a run: online if there is a key and the server answers in time, offline otherwise. Says so in a line.

    Where a run online is to be seen is said at once; how one offline gets there, at its end.

    Args:
        directory: the run's.
        settings: what `wandb.init` is given.
        timeout: seconds to wait for the server, once to ask whether it is there and once to begin the run.
        upload: seconds to wait for it at the end.
        artifact: whether the last checkpoint, the best and the curves are uploaded too.

    Returns:
        The run; None if W&B is missing or broken.
    """
    try:
        wandb = load()
    except Exception as error:
        missing = isinstance(error, ImportError) and error.name == "wandb"
        _cannot_be_used("is not installed" if missing else f"cannot be used ({_reason(error)})")
        return None
    mode, why = os.environ.get("WANDB_MODE", "online"), ""
    mode = {"dryrun": "offline", "run": "online"}.get(mode, mode)  # as they were called once
    try:
        if mode == "online":
            try:
                reach(wandb, timeout)
                return _begin(wandb, directory, settings, mode, timeout, upload, artifact)
            except Exception as error:  # whatever the network does, the run goes on
                mode, why = "offline", f" ({_reason(error)})"
                shut_down(wandb)
        logger = _begin(wandb, directory, settings, mode, timeout, upload, artifact)
    except BaseException as error:
        shut_down(wandb)
        if not isinstance(error, Exception):  # stopped while W&B was asked
            raise
        _cannot_be_used(f"cannot be used ({_reason(error)})")
        return None
    if mode == "offline":
        look = f"wandb leet {logger.files}"
        logger.hint = f"W&B is offline{why}: look at this run with `{look}`, upload it with `{logger.sync}`."
    return logger


def _begin(
    wandb: Any,
    directory: RunDirectory,
    settings: Mapping[str, Any],
    mode: str,
    timeout: float,
    upload: float,
    artifact: bool,
) -> WeightsAndBiases:
    held = NONE if mode == "online" else last_step(directory.path)
    warnings = listen(wandb)
    quiet = wandb.Settings(
        silent=True,
        console="off",
        reinit="create_new",  # a run of our own, whatever another job of this process has left behind
        disable_git=True,  # it would upload what is not committed, whatever that holds; the summary has the commit
        init_timeout=timeout,
    )
    run = within(3 * timeout + 30, lambda: wandb.init(**settings, mode=mode, settings=quiet))
    for metric in ("step", "tokens"):
        run.define_metric(metric)
    run.define_metric("*", step_metric="step")
    if mode == "online":
        held = run.step - 1  # the server says where a resumed run continues
        print(f"W&B: {run.url}", flush=True)
    return WeightsAndBiases(wandb, run, warnings, directory, held, upload, artifact)


def _cannot_be_used(why: str) -> None:
    print(f"W&B {why}: the curve goes to metrics.csv alone.", flush=True)
