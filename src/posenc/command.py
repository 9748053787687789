"""What goes wrong on a command line, told in one sentence on stderr."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from posenc.config import nearest
from posenc.errors import UserError

MISUSE = 2
INTERRUPTED = 130


@contextmanager
def one_sentence_errors(arguments: Sequence[str] = (), conf: Path | None = None) -> Iterator[None]:
    """Turn what a user can cause into one sentence and exit code 2 (130 for Ctrl-C).

    Args:
        arguments: the command line, to say which of them is wrong.
        conf: the folder of the configuration, to say what would be right.
    """
    os.environ["HYDRA_FULL_ERROR"] = "1"  # let Hydra raise its errors instead of printing them
    try:
        yield
    except UserError as error:
        _leave(str(error), MISUSE)
    except (HydraException, OmegaConfBaseException) as error:
        _leave(explain(error, arguments, conf), MISUSE)
    except KeyboardInterrupt:
        _leave("stopped; the same command goes on from the last checkpoint", INTERRUPTED)


def flags_first(arguments: Sequence[str]) -> list[str]:
    """The same command line with options such as -m before the key=value pairs, where Hydra's parser wants them."""
    return sorted(arguments, key=lambda argument: "=" in argument and not argument.startswith("-"))


def _leave(sentence: str, code: int) -> None:
    print(f"train.py: {sentence}", file=sys.stderr)
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
        options = ", ".join(sorted(error.options))
        return f"{group}={choice} is not a choice; {nearest(choice, error.options, f'{group}=')} ({group} is one of {options})"
    unknown = _unknown_key(arguments, conf)
    if unknown is not None:
        return unknown
    return " ".join(str(error).split()) or type(error).__name__


def _cause(error: BaseException | None, kind: type[BaseException]) -> BaseException | None:
    while error is not None and not isinstance(error, kind):
        error = error.__cause__ or error.__context__
    return error


def _unknown_key(arguments: Sequence[str], conf: Path | None) -> str | None:
    """Which argument sets a key that is not there, and which keys are near it."""
    if conf is None:
        return None
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.override_parser.overrides_parser import OverridesParser

    groups = {folder.name for folder in conf.iterdir() if folder.is_dir()}
    plain = [argument for argument in arguments if not argument.startswith("-")]
    overrides = OverridesParser.create().parse_overrides(plain)
    chosen = [
        f"{o.key_or_group}={o.value()}"
        for o in overrides
        if o.key_or_group in groups and not o.is_sweep_override()
    ]
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(conf.resolve()), version_base="1.3"):
        config = compose("config", overrides=chosen)
    known = set(_dotted(OmegaConf.to_container(config))) | groups
    for override in overrides:
        key = override.key_or_group
        if key not in known and not override.is_add() and not key.startswith("hydra"):
            return f"{key} is not a key; {nearest(key, known)} See --help and --cfg job"
    return None


def _dotted(tree: object, prefix: str = "") -> Iterator[str]:
    """Every key of a tree of dictionaries, like optim.lr."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            if not str(key).startswith("_"):
                yield f"{prefix}{key}"
                yield from _dotted(value, f"{prefix}{key}.")
