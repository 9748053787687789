"""What goes wrong on a command line, reported in one sentence on stderr."""

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from hydra.errors import ConfigCompositionException, HydraException, MissingConfigException, OverrideParseException
from omegaconf.errors import OmegaConfBaseException

from posenc.config.compose import choices_in
from posenc.config.overrides import check_sweep, not_a_choice, refuse, unknown_key
from posenc.config.secrets import hidden, refuse_secrets
from posenc.distributed import adopt_srun, report_error, this_rank
from posenc.errors import FAILED, MISUSE, RunError, Stopped, UserError, first_line, missing_package

INTERRUPTED = 130


@contextmanager
def one_sentence_errors(arguments: Sequence[str] = (), conf: Path | None = None) -> Iterator[None]:
    """Turn what a user can cause into one sentence and an exit code: 2 for a wrong command, 1 for a run that failed.

    After a signal it is 128 and the signal's number: 130 for Ctrl-C, 143 for SIGTERM.

    Args:
        arguments: the command line, to say which of them is wrong.
        conf: the folder of the configuration, to say what would be right.
    """
    os.environ["HYDRA_FULL_ERROR"] = "1"  # let Hydra raise its errors instead of printing them
    adopt_srun()
    try:
        refuse_secrets(arguments)
        if conf is not None:
            refuse(arguments, choices_in(conf))
            if {"-m", "--multirun"} & set(arguments):
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
    except BrokenPipeError:  # such as `train.py | head`; Python would complain again at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        _leave("nobody reads what is printed any more", FAILED)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("posenc"):
            raise
        _leave(missing_package(error), MISUSE)


class Arguments(argparse.ArgumentParser):
    """A command line of our own, whose mistakes are reported in one sentence too."""

    def error(self, message: str) -> NoReturn:
        _leave(f"{message}; see --help", MISUSE)


def flags_first(arguments: Sequence[str]) -> list[str]:
    """The same command line with options such as -m before the key=value pairs, where Hydra's parser wants them."""
    return sorted(arguments, key=lambda argument: "=" in argument and not argument.startswith("-"))


def _leave(sentence: str, code: int) -> NoReturn:
    # A value may hold what starts a new line or colours a terminal.
    report_error("".join(character if character.isprintable() else " " for character in hidden(sentence)), code)
    sys.exit(code)


def explain(error: BaseException, arguments: Sequence[str], conf: Path | None) -> str:
    """One sentence for an error of Hydra's or OmegaConf's."""
    ours = _cause(error, UserError)
    if ours is not None:
        return str(ours)
    if isinstance(error, OverrideParseException):
        return f"{error.override!r} cannot be read: arguments look like pos=rope or optim.lr=0.001"
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
