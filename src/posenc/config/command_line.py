"""What goes wrong on a command line, reported in one sentence on stderr."""

import argparse
import codecs
import io
import os
import re
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from hydra.errors import ConfigCompositionException, HydraException, MissingConfigException, OverrideParseException
from omegaconf.errors import OmegaConfBaseException

from posenc.config.files import choices_in
from posenc.config.overrides import LOOKS, MULTIRUN, check_sweep, not_a_choice, refuse, unknown_key
from posenc.config.secrets import hidden, refuse_secrets
from posenc.distributed import adopt_srun, report_error, this_rank
from posenc.errors import FAILED, MISUSE, RunError, Stopped, UserError, first_line, missing_package, printable

INTERRUPTED = 130

READERS = ("posenc.commands.train", __name__, "posenc.config.compose", "posenc.config.overrides")
"""The modules that have libraries read the command line; a library that others call fails by a fault of theirs."""

PLAIN = {"\N{EN DASH}": "-", "\N{NO-BREAK SPACE}": " "}
"""What stands for a character on a terminal that does not know it."""

LONG_WORD = re.compile(r"(\S{200})\S{200,}(\S{100})")


@contextmanager
def one_sentence_errors(arguments: Sequence[str] = (), conf: Path | None = None) -> Iterator[None]:
    """Turn what a user can cause into one sentence and an exit code: 2 for a wrong command, 1 for a run that failed.

    After a signal it is 128 and the signal's number: 130 for Ctrl-C, 143 for SIGTERM.

    Args:
        arguments: the command line, to say which of them is wrong.
        conf: the folder of the configuration, to say what would be right.
    """
    os.environ["HYDRA_FULL_ERROR"] = "1"  # let Hydra raise its errors instead of printing them
    print_anywhere()
    try:
        adopt_srun()
        refuse_secrets(arguments)
        if conf is not None:
            check_working_directory()
            refuse(arguments, choices_in(conf))
            if MULTIRUN & set(arguments):
                if this_rank().world_size > 1:
                    raise UserError("a sweep starts the ranks of its runs itself: leave torchrun or srun away")
                check_sweep(arguments, conf)
        yield
    except UserError as error:
        _leave(str(error), MISUSE)
    except (HydraException, OmegaConfBaseException) as error:
        _leave(explain(error, arguments, conf), MISUSE)
    except RunError as error:
        _leave(str(error), FAILED)
    except Stopped as stopped:
        if not this_rank().is_zero:  # all stop together, and one says so
            sys.exit(stopped.exit_code)
        _leave(str(stopped), stopped.exit_code)
    except KeyboardInterrupt:
        _leave("stopped", INTERRUPTED)
    except BrokenPipeError:
        end = unread()
        _leave(str(end), end.exit_code)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("posenc"):
            raise
        _leave(missing_package(error), MISUSE)
    except Exception as error:
        if not _while_reading(error):
            raise
        _leave(first_line(error), MISUSE)


def print_anywhere() -> None:
    """Have a terminal that knows ASCII or Latin-1 only show what it can: a hyphen for a dash, ? for the rest."""
    codecs.register_error("plain", _plain)
    if isinstance(sys.stdout, io.TextIOWrapper):  # a notebook has something else
        sys.stdout.reconfigure(errors="plain")


def _plain(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    return PLAIN.get(error.object[error.start], "?"), error.start + 1


def check_working_directory() -> None:
    """
    Raises:
        UserError: if the folder in which the command was given has been removed: nothing relative could be found.
    """
    try:
        os.getcwd()
    except OSError as error:
        raise UserError(f"the working directory cannot be used: {error.strerror}; cd into another") from error


def unread() -> Stopped:
    """The end of a program in `train.py | head`, whose output nobody reads any more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python would complain again at its end
    return Stopped(signal.SIGPIPE, "nobody reads what is printed any more")


def _while_reading(error: Exception) -> bool:
    """Whether a library raised an error while it read the command line: one of the program itself is a fault in it."""
    modules = [str(frame.f_globals.get("__name__")) for frame, _ in traceback.walk_tb(error.__traceback__)]
    ours = [name for name in modules if name.startswith(("__main__", "posenc.", "hydra_plugins.posenc"))]
    return modules[-1] != ours[-1] and ours[-1] in READERS


class Arguments(argparse.ArgumentParser):
    """A command line of our own, whose mistakes are reported in one sentence too."""

    def error(self, message: str) -> NoReturn:
        _leave(f"{message}; see --help", MISUSE)


def flags_first(arguments: Sequence[str]) -> list[str]:
    """The same command line with options such as -m before the key=value pairs, where Hydra's parser wants them.

    A value that begins with ~/ is a file at home, as for a shell.
    """
    home = os.path.expanduser("~")
    at_home = [re.sub(r"^([\w.+/]+=)~(?=/)", lambda key: f"{key[1]}{home}", argument) for argument in arguments]
    return sorted(at_home, key=lambda argument: "=" in argument and not argument.startswith("-"))


def _leave(sentence: str, code: int) -> NoReturn:
    report_error(LONG_WORD.sub(r"\1...\2", printable(hidden(sentence))), code)
    sys.exit(code)


def explain(error: BaseException, arguments: Sequence[str], conf: Path | None) -> str:
    """One sentence for an error of Hydra's or OmegaConf's."""
    ours = _cause(error, UserError)
    if ours is not None:
        return str(ours)
    if isinstance(error, OverrideParseException):
        return f"{error.override!r} cannot be read: {LOOKS}"
    if isinstance(error, MissingConfigException) and error.missing_cfg_file and error.options:
        group, _, choice = error.missing_cfg_file.rpartition("/")
        return not_a_choice(group, choice, error.options)
    if isinstance(error, ConfigCompositionException):
        with suppress(HydraException):  # a group that is none of the defaults, such as sweep, composes no better here
            if conf is not None and (unknown := unknown_key(arguments, conf)):
                return unknown
        return " ".join(str(error).split())
    return first_line(error)


def _cause(error: BaseException | None, kind: type[BaseException]) -> BaseException | None:
    while error is not None and not isinstance(error, kind):
        error = error.__cause__ or error.__context__
    return error
