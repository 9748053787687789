"""W&B's server, and its service on this machine: neither may keep a process waiting."""

import os
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from http.client import HTTPException
from typing import Any, TypeVar
from urllib.parse import urlsplit

from posenc.compat import wandb_service

_T = TypeVar("_T")

GRACE = 3.0
"""Seconds that W&B's service has to end by itself."""


NAMES = {
    "train_loss": "train/loss",
    "val_loss": "val/loss",
    "val_loss_se": "val/loss_se",
    "learning_rate": "train/learning_rate",
    "gradient_norm": "train/gradient_norm",
    "tokens_per_s": "speed/tokens_per_s",
    "mfu": "speed/mfu",
    "previous_token": "heads/previous_token",
    "induction": "heads/induction",
    "position_share": "heads/position_share",
}
"""Columns of metrics.csv as W&B has them, where a panel's group is what stands before the slash."""


def to_wandb(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of metrics.csv under W&B's names."""
    return {NAMES.get(column, column): value for column, value in row.items()}


def from_wandb(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of W&B's under the names of metrics.csv, which runs of earlier versions have there, too."""
    columns = {name: column for column, name in NAMES.items()}
    return {columns.get(name, name): value for name, value in row.items()}


class Warnings(list[str]):
    """What W&B has to say, kept instead of printed."""

    def __bool__(self) -> bool:
        """W&B would pass over a logger that is false, as an empty list is."""
        return True

    def info(self, message: str) -> None:
        """Nobody needs it."""

    def warning(self, message: str) -> None:
        self.append(message)

    error = warning


def load() -> Any:
    """The module.

    Raises:
        ImportError: if it is not installed, or whatever else a broken one raises.
    """
    # Its reports about itself would go to the same server, and hold up the end of the process when that is down.
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    import wandb

    return wandb


def listen(wandb: Any) -> Warnings:
    """Start W&B's service, and have it tell us what it would have printed."""
    warnings = Warnings()
    quiet = wandb.Settings(silent=True)
    wandb.setup(quiet)
    wandb.termsetup(quiet, warnings)
    return warnings


def reach(wandb: Any, timeout: float) -> None:
    """Return if there is a key, and a server that answers.

    Raises:
        LookupError: if there is no key.
        OSError: if nothing answers in time.
    """
    listen(wandb)
    if not wandb.login(prompt=False, verify=False):
        raise LookupError("there is no API key: `wandb login`, or WANDB_API_KEY")
    ask(str(wandb.setup().settings.base_url), timeout)


def ask(url: str, timeout: float) -> None:
    """Return once something has answered, with whatever status.

    Args:
        url: where.
        timeout: seconds to wait.

    Raises:
        OSError: if nothing answers in time.
    """
    try:
        urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=timeout).close()
    except urllib.error.HTTPError:
        return  # it answered
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", error)
        if not isinstance(reason, ssl.SSLError):  # it answered, with a certificate that W&B may know and we do not
            server = urlsplit(url).netloc.rpartition("@")[2]
            raise OSError(f"{server} does not answer: {reason}") from error


def within(seconds: float, call: Callable[[], _T]) -> _T:
    """What a call returns or raises, if it does so in time.

    It is made in a thread of its own, which does not keep the process from ending.

    Raises:
        TimeoutError: if it does not; it may still go on.
    """
    outcome: Future[_T] = Future()

    def attempt() -> None:
        try:
            outcome.set_result(call())
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=attempt, daemon=True).start()
    try:
        return outcome.result(seconds)
    except TimeoutError:
        if outcome.done():  # the call's own
            raise
        raise TimeoutError(f"no end within {seconds:g} s") from None


def shut_down(wandb: Any) -> None:
    """End W&B's service, by force if it does not end by itself; what it has written stays."""
    service = wandb_service()
    with suppress(Exception):
        within(GRACE, wandb.teardown)
    if service is not None and service.poll() is None:
        service.kill()
        service.wait()
