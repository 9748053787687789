"""Access to W&B's server and local service with timeouts."""

import logging
import os
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from http.client import HTTPException
from logging.handlers import BufferingHandler
from typing import Any, TypeVar
from urllib.parse import urlsplit

from posenc.compat import wandb_service

_T = TypeVar("_T")

TIMEOUT = 60.0
"""Default seconds to wait for the server when runs are read from it."""

GRACE = 3.0
"""Seconds that W&B's service has to exit before it is killed."""


def load() -> Any:
    """Import wandb.

    Raises:
        ImportError: if it is not installed; a broken installation may raise anything.
    """
    # wandb's error reports go to the same server, and would delay the exit when it is down.
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    import wandb

    return wandb


def listen(wandb: Any) -> list[logging.LogRecord]:
    """Start W&B's service, and collect its warnings instead of printing them."""
    kept, logger = BufferingHandler(capacity=2**20), logging.Logger("wandb", logging.WARNING)
    logger.addHandler(kept)
    quiet = wandb.Settings(silent=True)
    wandb.setup(quiet)
    wandb.termsetup(quiet, logger)
    return kept.buffer


def reach(wandb: Any, timeout: float) -> None:
    """Check that there is an API key, and that the server responds.

    Raises:
        LookupError: if there is no key.
        OSError: if the server does not respond in time.
    """
    listen(wandb)
    if not wandb.login(prompt=False, verify=False):
        raise LookupError("there is no API key: `wandb login`, or WANDB_API_KEY")
    ping(str(wandb.setup().settings.base_url), timeout)


def ping(url: str, timeout: float) -> None:
    """Check that a server responds, with any status.

    Raises:
        OSError: if it does not respond in time.
    """
    try:
        urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=timeout).close()
    except urllib.error.HTTPError:
        return  # a response
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", error)
        if not isinstance(reason, ssl.SSLError):  # a response, with a certificate that W&B may trust although we do not
            server = urlsplit(url).netloc.rpartition("@")[2]
            raise OSError(f"{server} does not respond: {reason}") from error


def within(seconds: float, call: Callable[[], _T]) -> _T:
    """The result of a call, if it finishes in time.

    It runs in a daemon thread, which does not prevent the process from exiting.

    Raises:
        TimeoutError: if it does not finish in time; it may still be running.
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
        if outcome.done():  # raised by the call itself
            raise
        raise TimeoutError(f"timed out after {seconds:g} s") from None


def shut_down(wandb: Any) -> None:
    """Shut down W&B's service, and kill it if it does not exit in time; files that it has written remain."""
    service = wandb_service()
    with suppress(Exception):
        within(GRACE, wandb.teardown)
    if service is not None and service.poll() is None:
        service.kill()
        service.wait()
