"""A run on Weights & Biases, which may fail in any way and at any time without harm to ours."""

import html
import os
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lightning.pytorch.loggers import Logger

from posenc.config.secrets import hidden
from posenc.errors import first_line
from posenc.storage.csv_files import read_csv
from posenc.storage.run_directory import RunDirectory
from posenc.tracking.client import Heard, address, ask, let_go, listen, load, within
from posenc.tracking.wandb_segments import NONE, last_step

PARTING = 2.0
"""Seconds that W&B gets when the run was stopped or has failed."""


class WeightsAndBiases(Logger):
    """One run there.

    The first thing that goes wrong is told in a line; from then on nothing more is asked of W&B. Its service has by
    then written down what it was given, so that `wandb sync` can upload it.

    A session that was killed may have logged rows past its last checkpoint, and may have lost some before they were
    written down. The next one leaves out the former and hands over the latter, so that W&B has each step once.

    Args:
        wandb: the module.
        run: as W&B gives it.
        heard: what its service says.
        directory: ours, with the curve so far.
        held: the last step that W&B has already.
        upload: seconds to wait at the end.
    """

    def __init__(self, wandb: Any, run: Any, heard: Heard, directory: RunDirectory, held: int, upload: float) -> None:
        super().__init__()
        self.wandb, self.run, self.heard, self.upload = wandb, run, heard, upload
        self.directory, self.held = directory, held
        self.files = os.path.relpath(os.path.dirname(run.dir))
        self.sync = f"wandb sync {'' if run.offline else '--no-skip-online '}{self.files}"
        self._going_on, self._caught_up = True, False

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
            for row in read_csv(self.directory.path / "metrics.csv"):
                self._log({name: float(text) for name, text in row.items() if text})

    def _log(self, row: Mapping[str, float]) -> None:
        step = int(row["step"])
        if step > self.held:
            self._attempt(lambda: self.run.log(dict(row), step=step, commit=True))

    def finish(self, sample: str, summary: Mapping[str, Any]) -> None:
        """Hand over the sample and the whole summary: the report can be made from it."""
        self._attempt(lambda: self.run.summary.update(dict(summary)))
        self._attempt(lambda: self.run.log({"sample": self.wandb.Html(f"<pre>{html.escape(sample)}</pre>")}))

    def close(self, failed: bool) -> None:
        """End the run within bounded time, and with it the service, so that nothing is left for the process's end."""
        limit = PARTING if failed else self.upload
        self._attempt(lambda: within(limit, lambda: self.run.finish(exit_code=int(failed))))
        if any("wandb sync" in warning for warning in self.heard.warnings):
            self._give_up("it refused a part")
        self._going_on = False
        let_go(self.wandb)

    def _attempt(self, call: Callable[[], Any]) -> None:
        if self._going_on:
            try:
                call()
            except Exception as error:
                self._give_up(_reason(error))

    def _give_up(self, reason: str) -> None:
        if self._going_on:
            self._going_on = False
            print(f"W&B has not everything of this run ({reason}): upload it with `{self.sync}`.", flush=True)


def _reason(error: BaseException) -> str:
    """Of a failure, without keys; a server's whole page is not meant for this place."""
    return textwrap.shorten(hidden(first_line(error)), 150, placeholder=" ...")


@dataclass(frozen=True)
class Wanted:
    """What is to be begun.

    Attributes:
        directory: the run's.
        settings: what `wandb.init` is given.
        timeout: seconds to wait for the server, once to ask whether it is there and once to begin the run.
        upload: seconds to wait for it at the end.
    """

    directory: RunDirectory
    settings: Mapping[str, Any]
    timeout: float
    upload: float

    def begin(self) -> WeightsAndBiases | None:
        """Begin a run: online if there is a key and the server answers in time, offline otherwise. Says so in a line.

        Returns:
            The run; None if W&B is missing or broken.
        """
        try:
            wandb = load()
        except ImportError as error:
            missing = error.name == "wandb"
            why = "W&B is not installed" if missing else f"W&B cannot be used ({_reason(error)})"
            print(f"{why}: the curve goes to metrics.csv alone (logger=csv says so without this line).", flush=True)
            return None
        except Exception as error:
            _cannot_be_used(error)
            return None
        mode, why = os.environ.get("WANDB_MODE", "online"), ""
        try:
            if mode == "online":
                try:
                    return self._online(wandb)
                except Exception as error:  # whatever the network does, the run goes on
                    mode, why = "offline", f" ({_reason(error)})"
                    let_go(wandb)
            return self._begun(wandb, mode, why)
        except Exception as error:
            let_go(wandb)
            _cannot_be_used(error)
            return None
        except BaseException:  # stopped while W&B was asked
            let_go(wandb)
            raise

    def _online(self, wandb: Any) -> WeightsAndBiases:
        listen(wandb)
        if not wandb.login(prompt=False, verify=False):
            raise LookupError("there is no API key")
        ask(address(wandb), self.timeout)
        return self._begun(wandb, "online", "")

    def _begun(self, wandb: Any, mode: str, why: str) -> WeightsAndBiases:
        held = NONE if mode == "online" else last_step(self.directory.path)
        heard = listen(wandb)
        quiet = wandb.Settings(
            silent=True,
            console="off",
            reinit="create_new",  # a run of our own, whatever another job of this process has left behind
            disable_git=True,  # it would upload what is not committed, whatever that holds; the summary has the commit
            init_timeout=self.timeout,
        )
        run = within(3 * self.timeout + 30, lambda: wandb.init(**self.settings, mode=mode, settings=quiet))
        held = run.step - 1 if mode == "online" else held  # the server says where a resumed run goes on
        run.define_metric("step")
        run.define_metric("tokens")
        run.define_metric("*", step_metric="step")
        logger = WeightsAndBiases(wandb, run, heard, self.directory, held, self.upload)
        if mode == "offline":
            look = f"wandb leet {logger.files}"
            print(f"W&B is offline{why}: look at this run with `{look}`, upload it with `{logger.sync}`.", flush=True)
        elif mode == "online":
            print(f"W&B: {run.url}", flush=True)
        return logger


def _cannot_be_used(error: BaseException) -> None:
    print(f"W&B cannot be used ({_reason(error)}): the curve goes to metrics.csv alone.", flush=True)
