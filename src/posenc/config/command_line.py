"""One-sentence error messages for the command line."""

import codecs
import io
import os
import re
import signal
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

from hydra.errors import ConfigCompositionException, HydraException, MissingConfigException, OverrideParseException
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException
from yaml import MarkedYAMLError

from posenc.config.argument_checks import SYNTAX_HINT, check_arguments, not_a_choice
from posenc.config.files import choices_in
from posenc.config.schema import PACKAGE_LINE
from posenc.config.secrets import check_no_secrets, presentable
from posenc.config.unknown_keys import unknown_key
from posenc.distributed import adopt_srun, report_error, this_rank
from posenc.errors import FAILED, MISUSE, RunError, Stopped, UserError, first_line, missing_package
from posenc.storage.resource_errors import resource_errors

PARSING = (
    "posenc.commands.train", "posenc.train", __name__,
    "posenc.config.compose", "posenc.config.overrides", "posenc.config.argument_checks", "posenc.config.unknown_keys",
)  # fmt: skip
"""Modules that pass the command line to libraries; library errors in other modules are bugs of the program."""

SUBSTITUTES = {"\N{EN DASH}": "-", "\N{NO-BREAK SPACE}": " "}
"""Replacements for characters that the terminal's encoding lacks."""


@contextmanager
def one_sentence_errors(
    arguments: Sequence[str] = (), conf: Path | None = None, advice: str = "add -m"
) -> Iterator[None]:
    """Turn errors that a user can cause into one sentence and an exit code: 2 for invalid input, 1 for a failed run.

    After a signal the exit code is 128 plus its number: 130 for Ctrl-C, 143 for SIGTERM.

    Args:
        arguments: the command line, checked if `conf`, the folder of configuration files, is given.
        advice: what to do if it is a sweep without -m.
    """
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra should raise its errors instead of printing them
    prepare_streams()
    try:
        with resource_errors():
            adopt_srun()
            check_no_secrets(arguments)
            if conf is not None:
                check_working_directory()
                check_arguments(arguments, choices_in(conf), advice)
            yield
            sys.stdout.flush()  # a full disk or a closed pipe is noticed here, not at exit
    except UserError as error:
        leave(str(error), MISUSE)
    except (HydraException, OmegaConfBaseException) as error:
        leave(explain(error, arguments, conf), MISUSE)
    except RunError as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.filename is None:
            discard_stdout()
        leave(str(error), FAILED)
    except Stopped as stopped:
        if not this_rank().is_zero:  # all ranks stop together; only rank 0 reports it
            sys.exit(stopped.exit_code)
        leave(str(stopped), stopped.exit_code)
    except KeyboardInterrupt:
        leave("stopped by Ctrl-C", 128 + signal.SIGINT)
    except BrokenPipeError:
        end = broken_pipe()
        leave(str(end), end.exit_code)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("posenc"):
            raise
        leave(missing_package(error), MISUSE)
    except Exception as error:
        if not _while_reading(error):
            raise
        leave(_of_yaml(error) if isinstance(error, MarkedYAMLError) else first_line(error), MISUSE)


def _of_yaml(error: MarkedYAMLError) -> str:
    """A syntax error in a YAML file, with its place."""
    mark = error.problem_mark
    return f"{mark.name}, line {mark.line + 1}: {error.problem}" if mark else first_line(error)


def prepare_streams() -> None:
    """Replace what stdout cannot encode: a hyphen for a dash, ? for the rest. Closed streams become /dev/null."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - open to the end
    codecs.register_error("plain", _plain)
    if isinstance(sys.stdout, io.TextIOWrapper):  # not in a notebook
        sys.stdout.reconfigure(errors="plain")


def _plain(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    return SUBSTITUTES.get(error.object[error.start], "?"), error.start + 1


def check_working_directory() -> None:
    """
    Raises:
        UserError: if the working directory has been removed, or may not be entered.
    """
    try:
        os.getcwd()
        os.stat(".")
    except OSError as error:
        raise UserError(f"the working directory cannot be used: {error.strerror}; change to another one") from error


def discard_stdout() -> None:
    """Discard what cannot be written to stdout; otherwise Python reports the error again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def broken_pipe() -> Stopped:
    """The error for a broken pipe, as in `train.py | head`."""
    discard_stdout()
    return Stopped(signal.SIGPIPE, "stdout was closed (broken pipe)")


def _while_reading(error: Exception) -> bool:
    """Whether a library raised the error while parsing the command line; otherwise it is a bug of the program."""
    modules = [_module(frame.f_globals) for frame, _ in traceback.walk_tb(error.__traceback__)]
    ours = [name for name in modules if name.startswith(("__main__", "posenc.", "hydra_plugins.posenc"))]
    return modules[-1] != ours[-1] and ours[-1] in PARSING


def _module(namespace: Mapping[str, Any]) -> str:
    """The name of a module, that given after python -m if it is the main one."""
    spec = namespace.get("__spec__")
    return str(spec.name if spec else namespace.get("__name__"))


def leave(sentence: str, code: int) -> NoReturn:
    """Report an error in one sentence, and exit."""
    report_error(presentable(sentence), code)
    sys.exit(code)


def explain(error: BaseException, arguments: Sequence[str], conf: Path | None) -> str:
    """One sentence for an error of Hydra's or OmegaConf's."""
    ours = _user_error(error)
    if ours is not None:
        return str(ours)
    if isinstance(error, OverrideParseException):
        return f"{error.override!r} cannot be read: {SYNTAX_HINT}"
    if isinstance(error, MissingConfigException) and error.missing_cfg_file and error.options:
        group, _, choice = error.missing_cfg_file.rpartition("/")
        return not_a_choice(group, choice, error.options)
    if isinstance(error, ConfigCompositionException):
        with suppress(HydraException):  # a group that is not in the defaults, such as sweep, fails to compose here too
            if conf is not None and (unknown := unknown_key(arguments, conf)):
                return unknown
        if conf and (of_choice := re.match(r"Could not override '([\w.]+)'\.\s+To append to your config", str(error))):
            return f"{of_choice[1]} is not a key of the default choice of its group: use ++{of_choice[1]}="
        if twice := re.match(r"Multiple values for ([\w/]+)\.", str(error)):
            return f"{twice[1]} has a choice already: drop the + of +{twice[1]}="
        why = f": {first_line(error.__cause__)}" if error.__cause__ else ""
        return " ".join(str(error).split()) + why
    if isinstance(error, MissingMandatoryValue):
        return f"{error.full_key} is missing: give {error.full_key}=; {PACKAGE_LINE.format('experiment')}"
    if isinstance(error, OmegaConfBaseException) and error.full_key:
        return f"{error.full_key}={error.child_node} cannot be read: {first_line(error)}"
    first = first_line(error)
    return " ".join(str(error).split()) if first.endswith(":") else first


def _user_error(error: BaseException | None) -> UserError | None:
    """The error itself, or the first of its causes that is one."""
    while error is not None and not isinstance(error, UserError):
        error = error.__cause__ or error.__context__
    return error
