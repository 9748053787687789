"""What goes wrong on a command line, told in one sentence on stderr."""

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from hydra.errors import ConfigCompositionException, HydraException, MissingConfigException, OverrideParseException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from posenc.config.overrides import not_a_choice, parsed, refuse
from posenc.config.schema import check, composed, nearest
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
            # A sweep writes before it looks at its jobs, and would find the mistake after hours of the right ones.
            unknown = _unknown(arguments, conf)
            if unknown is not None:
                raise UserError(unknown)
            _check_first_job(arguments, conf)
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
    """A command line of our own, whose mistakes are told in one sentence too."""

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
    unknown = _unknown(arguments, conf)
    if unknown is not None:
        return unknown
    return first_line(error)


def _cause(error: BaseException | None, kind: type[BaseException]) -> BaseException | None:
    while error is not None and not isinstance(error, kind):
        error = error.__cause__ or error.__context__
    return error


def _unknown(arguments: Sequence[str], conf: Path | None) -> str | None:
    """Which argument names a key or a choice that is not there, and which ones are near it."""
    if conf is None:
        return None
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    # Of Hydra's own groups it has more choices than there are files here, and checks them itself.
    groups = {group: choices for group, choices in choices_in(conf).items() if not group.startswith("hydra")}
    overrides = parsed(arguments)
    chosen = []
    for override in overrides:
        if override.key_or_group in groups:
            choices = override.sweep_string_iterator() if override.is_sweep_override() else [override.value()]
            for choice in map(str, choices):
                if choice not in groups[override.key_or_group]:
                    return not_a_choice(override.key_or_group, choice, groups[override.key_or_group])
                chosen.append(f"{'+' if override.is_add() else ''}{override.key_or_group}={choice}")
    GlobalHydra.instance().clear()
    keys = {}
    with initialize_config_dir(str(conf.resolve()), version_base="1.3"):
        for choice in chosen or ["seed=0"]:
            others = {other.partition("=")[0]: other for other in chosen}
            others[choice.partition("=")[0]] = choice
            try:
                complete = compose("config", overrides=list(others.values()))
            except ConfigCompositionException as error:  # a group that is none of the defaults, such as sweep
                return " ".join(str(error).split())
            keys[choice] = set(_dotted(OmegaConf.to_container(complete)))
    GlobalHydra.instance().clear()
    known = set(groups).union(*keys.values())
    for override in overrides:
        key = override.key_or_group
        if override.is_add() or key in groups or key.startswith("hydra"):
            continue
        if key not in known:
            return f"{key} is not a key; {nearest(key, known)}"
        for choice, there in keys.items():
            if key not in there:
                return f"{key} is not a key with {choice}: sweep it apart"
    return None


def _check_first_job(arguments: Sequence[str], conf: Path | None) -> None:
    """Check what all jobs of a sweep share, and where it is to be written; of what is swept, the first choices.

    A value that is swept may be wrong: its job fails, and the others are trained.

    Raises:
        UserError: if one is impossible.
    """
    if conf is None:
        return
    from hydra.core.global_hydra import GlobalHydra

    from posenc.storage.atomic import check_writable

    overrides = parsed(arguments)
    swept = [override for override in overrides if override.is_sweep_override()]
    groups = {
        o.key_or_group: next(iter(o.sweep_string_iterator())) for o in swept if o.key_or_group in choices_in(conf)
    }
    fixed = [o.input_line for o in overrides if o.input_line and not o.is_sweep_override()]
    GlobalHydra.instance().clear()
    try:
        config, _ = composed(conf, [*fixed, *(f"{group}={choice}" for group, choice in groups.items())])
    finally:
        GlobalHydra.instance().clear()
    values: Any = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    settings = check(values)
    check_writable(f"runs={settings.runs}", Path(settings.runs) / settings.name)


def choices_in(conf: Path) -> dict[str, set[str]]:
    """The choices of each group in a folder of configuration files."""
    groups: dict[str, set[str]] = {}
    for file in conf.glob("*/**/*.yaml"):
        groups.setdefault(str(file.parent.relative_to(conf)), set()).add(file.stem)
    return groups


def _dotted(tree: object, prefix: str = "") -> Iterator[str]:
    """Every key of a tree of dictionaries, like optim.lr."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            if not str(key).startswith("_"):
                yield f"{prefix}{key}"
                yield from _dotted(value, f"{prefix}{key}.")
