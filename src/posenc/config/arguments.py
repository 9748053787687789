"""The command lines of the commands other than train.py, which Hydra does not parse."""

import argparse
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

from posenc.config.command_line import leave, one_sentence_errors
from posenc.errors import MISUSE, Stopped

_N = TypeVar("_N", int, float)


class Arguments(argparse.ArgumentParser):
    """An argument parser that reports errors in one sentence."""

    @contextmanager
    def parsed(self, arguments: Sequence[str] | None) -> Iterator[argparse.Namespace]:
        """Context for a command: yields its arguments, those of the process if None, and reports its errors."""
        arguments = sys.argv[1:] if arguments is None else arguments
        sys.argv[0] = self.prog  # errors name the command
        with one_sentence_errors(arguments), stopped_by_signals():
            # Python 3.11's parse_intermixed_args drops `--`, after which a name may begin with a hyphen.
            yield self.parse_args(arguments) if "--" in arguments else self.parse_intermixed_args(arguments)

    def print_help(self, file: Any = None) -> None:
        print(self.format_help(), end="", file=file, flush=True)  # so that a full disk is noticed

    def error(self, message: str) -> NoReturn:
        leave(f"{message}; see --help", MISUSE)


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Context in which SIGTERM and SIGHUP raise Stopped, so that temporary files are removed, as after Ctrl-C."""

    def stop(signum: int, _: Any) -> NoReturn:
        raise Stopped(signum, f"stopped by {signal.Signals(signum).name}")

    handled = [one for one in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(one) is signal.SIG_DFL]
    for one in handled:  # not one that nohup ignores
        signal.signal(one, stop)
    try:
        yield
    finally:
        for one in handled:
            signal.signal(one, signal.SIG_DFL)


def bounded(kind: type[_N], low: _N, high: _N) -> Callable[[str], _N]:
    """The type of an argument of `Arguments` that is a number from `low` to `high`."""

    def number(text: str) -> _N:
        value = kind(text)
        if not low <= value <= high:  # NaN compares false
            raise argparse.ArgumentTypeError(f"{text} must be between {low} and {high}")
        return value

    number.__name__ = kind.__name__  # argparse names it if the text is not a number
    return number
