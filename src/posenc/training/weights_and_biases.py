"""A run on Weights & Biases, which may fail in any way and at any time without harm to ours."""

import html
import os
import textwrap
from collections.abc import Callable, Mapping
from typing import Any

from lightning.pytorch.loggers import Logger

from posenc.wandb_server import Heard, address, ask, let_go, listen, load, within

PARTING = 2.0
"""Seconds that W&B gets when the run was stopped or has failed."""


class WeightsAndBiases(Logger):
    """One run there.

    The first thing that goes wrong is told in a line; from then on nothing more is asked of W&B. Its service has by
    then written down what it was given, so that `wandb sync` can upload it.

    Args:
        wandb: the module.
        run: as W&B gives it.
        heard: what its service says.
        upload: seconds to wait at the end.
    """

    def __init__(self, wandb: Any, run: Any, heard: Heard, upload: float) -> None:
        super().__init__()
        self.wandb, self.run, self.heard, self.upload = wandb, run, heard, upload
        self.files = os.path.relpath(os.path.dirname(run.dir))
        self._going_on = True

    @property
    def name(self) -> str:
        return str(self.run.project)

    @property
    def version(self) -> str:
        return str(self.run.id)

    def log_hyperparams(self, *_: Any, **__: Any) -> None:
        """They were given at the beginning."""

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Hand over a row; the service takes it from there, so that no step waits for the server."""
        self._attempt(lambda: self.run.log(dict(metrics), step=step, commit=True))

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
                self._give_up(first_line(error))

    def _give_up(self, reason: str) -> None:
        if self._going_on:
            self._going_on = False
            print(f"W&B has not everything of this run ({reason}): upload it with `wandb sync {self.files}`.", flush=True)


def first_line(error: BaseException) -> str:
    """What an error says, in one line; a server's whole page is not meant for this place."""
    return textwrap.shorten((str(error).strip() or type(error).__name__).splitlines()[0], 150, placeholder=" ...")


def begin(settings: Mapping[str, Any], timeout: float, upload: float) -> WeightsAndBiases | None:
    """Begin a run: online if there is a key and the server answers in time, offline otherwise. Says which, in a line.

    Args:
        settings: what `wandb.init` is given.
        timeout: seconds to wait for the server, once to ask whether it is there and once to begin the run.
        upload: seconds to wait for it at the end.

    Returns:
        The run; None if W&B is missing or broken.
    """
    try:
        wandb = load()
    except ImportError:
        print("W&B is not installed: the curve goes to metrics.csv alone (logger=csv says so without this line).")
        return None
    except Exception as error:
        print(f"W&B cannot be used ({first_line(error)}): the curve goes to metrics.csv alone.", flush=True)
        return None
    mode, why = os.environ.get("WANDB_MODE", "online"), ""
    try:
        if mode == "online":
            try:
                return _online(wandb, settings, timeout, upload)
            except Exception as error:  # whatever the network does, the run goes on
                mode, why = "offline", f" ({first_line(error)})"
                let_go(wandb)
        return _begun(wandb, settings, mode, why, timeout, upload)
    except Exception as error:
        let_go(wandb)
        print(f"W&B cannot be used ({first_line(error)}): the curve goes to metrics.csv alone.", flush=True)
        return None


def _online(wandb: Any, settings: Mapping[str, Any], timeout: float, upload: float) -> WeightsAndBiases:
    listen(wandb)
    if not wandb.login(prompt=False, verify=False):
        raise LookupError("there is no API key")
    ask(address(wandb), timeout)
    return _begun(wandb, settings, "online", "", timeout, upload)


def _begun(
    wandb: Any, settings: Mapping[str, Any], mode: str, why: str, timeout: float, upload: float
) -> WeightsAndBiases:
    heard = listen(wandb)
    # A run of our own, whatever another job of this process has left behind.
    quiet = wandb.Settings(silent=True, console="off", reinit="create_new", init_timeout=timeout)
    logger = WeightsAndBiases(
        wandb, within(3 * timeout + 30, lambda: wandb.init(**settings, mode=mode, settings=quiet)), heard, upload
    )
    logger.run.define_metric("step")
    logger.run.define_metric("tokens")
    logger.run.define_metric("*", step_metric="step")
    if mode == "offline":
        look, send = f"wandb leet {logger.files}", f"wandb sync {logger.files}"
        print(f"W&B is offline{why}: look at this run with `{look}`, upload it with `{send}`.", flush=True)
    elif mode == "online":
        print(f"W&B: {logger.run.url}", flush=True)
    return logger
