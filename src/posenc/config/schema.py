"""The configuration as a contract: types, ranges, and which keys make a run what it is.

The signature of what a `_target_` names is the schema of its group; that of `Settings` is the schema of the rest.
"""

import difflib
import inspect
import json
import math
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, is_dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from omegaconf import DictConfig, OmegaConf, open_dict

from posenc.config.targets import ROOMS, target
from posenc.errors import UserError

SUPPLIED = {
    "model": {"vocab_size", "context", "scheme", "attention", "causal", "seed"},
    "objective": {"vocab_size"},
    "logger": {"directory", "config"},
}
"""Arguments that the program supplies to a group's constructor, not the configuration."""

NOT_THE_CURVE = ("name", "rerun", "runs", "cache", "logger", "checkpoint_seconds", "trainer", "data")
"""What may differ between two runs that give the same curve; the text itself and the precision still count."""


LIGHT = ("data", "tokenizer", "logger")
"""Groups that are looked at first: their modules do not import torch, so what is wrong there is told at once."""

MOST_STEPS = 10**9 - 1
"""What fits into the names of checkpoints."""

PLAIN = re.compile(r"\w[\w.+=-]{0,99}")


def register_resolvers() -> None:
    """Make `${head_dim:width,heads}` and `${bidirectional:objective}` known to the configuration files."""
    OmegaConf.register_new_resolver("head_dim", _head_dim, replace=True)
    OmegaConf.register_new_resolver("bidirectional", _bidirectional, replace=True)


def composed(conf: Path, overrides: Iterable[str]) -> tuple[DictConfig, dict[str, str]]:
    """What train.py would be given for the same overrides: the configuration, and the choice made in each group.

    Args:
        conf: the folder of the configuration files.
        overrides: as on the command line.
    """
    from hydra import compose, initialize_config_dir

    register_resolvers()
    with initialize_config_dir(str(conf.resolve()), version_base="1.3"):
        configuration = compose("config", overrides=list(overrides), return_hydra_config=True)
    choices = dict(configuration.hydra.runtime.choices)
    with open_dict(configuration):
        del configuration["hydra"]
    return configuration, choices


def _head_dim(width: Any, heads: Any) -> int:
    for key, value in (("model.width", width), ("model.heads", heads)):
        if not (type(value) is int and value > 0):
            raise UserError(f"{key}={value} must be a whole number, at least 1")
    if width % heads:
        raise UserError(f"model.width={width} must be a multiple of model.heads={heads}")
    return width // heads


def _bidirectional(objective: str) -> bool:
    """Whether the objective, given by its `_target_`, lets a token see what comes after it."""
    return not getattr(target("objective", objective), "causal", True)


@dataclass(frozen=True)
class Settings:
    """The keys of config.yaml that belong to no group; each is explained there.

    Raises:
        UserError: if a value is out of range, or two contradict each other.
    """

    seed: int
    steps: int
    batch_size: int
    context: int
    eval_every: int
    eval_windows: int
    attention_every: int
    log_every: int
    checkpoint_seconds: float
    name: str
    rerun: bool
    runs: str
    cache: str

    def __post_init__(self) -> None:
        for key in ("steps", "batch_size", "eval_every", "eval_windows", "attention_every", "log_every"):
            if getattr(self, key) < 1:
                raise UserError(f"{key}={getattr(self, key)} must be at least 1")
        if self.context < 4:
            raise UserError(f"context={self.context} must be at least 4")
        if not 0 <= self.seed < 2**63:
            raise UserError(f"seed={self.seed} must be between 0 and 2^63 - 1")
        if not self.checkpoint_seconds >= 0:
            raise UserError(f"checkpoint_seconds={self.checkpoint_seconds} must not be negative")
        for key, of in (("steps", "eval_every"), ("attention_every", "eval_every"), ("eval_every", "log_every")):
            if getattr(self, key) % getattr(self, of):
                raise UserError(f"{key}={getattr(self, key)} must be a multiple of {of}={getattr(self, of)}")
        if self.steps > MOST_STEPS:
            raise UserError(f"steps={self.steps} must be at most {MOST_STEPS}")
        check_plain("name", self.name)
        for key in ("runs", "cache"):
            folder = getattr(self, key)
            if not folder or not folder.isprintable():
                raise UserError(f"{key}={folder!r} must be the name of a folder")


def check_plain(key: str, value: str) -> None:
    """Check that a value can name a folder inside another, on any file system.

    Raises:
        UserError: if it cannot, or might lead out of it.
    """
    if not PLAIN.fullmatch(value) or len(value.encode()) > 200:
        raise UserError(
            f"{key}={value} must be a plain folder name: letters, digits and _ . + = -, at most 100, a letter first"
        )


def check(config: Mapping[str, Any]) -> Settings:
    """Check the type of every value in a resolved configuration, and the range of those in `Settings`.

    Raises:
        UserError: on the first unknown key or impossible value, naming the key, the value and what is allowed.
    """
    hints = typing.get_type_hints(Settings)
    loose = {key: value for key, value in config.items() if key in hints or not isinstance(value, Mapping)}
    _check_types("", loose, hints)
    for key in hints.keys() - loose.keys():
        raise UserError(f"{key} is missing; see --cfg job for its default")
    settings = Settings(**loose)
    groups = [group for group in ROOMS if "." not in group]
    check_groups(config, [*groups, *(key for key in config.keys() - loose.keys() if key not in groups)])
    return settings


def check_groups(config: Mapping[str, Any], groups: Iterable[str]) -> None:
    """Check that these groups are there, and the type of every value in them.

    Raises:
        UserError: on the first that is not there, unknown key or impossible value.
    """
    for group in sorted(groups, key=lambda group: group not in LIGHT):
        if not isinstance(config.get(group), Mapping):
            raise UserError(f"{group} is missing: choose one with {group}=")
        _check_group(group, config[group])


def _check_group(group: str, values: Mapping[str, Any]) -> None:
    """The keys of a group, and those of the groups inside it."""
    built = target(group, values.get("_target_"))
    hints = _parameters(built)
    known = {key: hints[key] for key in hints.keys() - SUPPLIED.get(group, set())}
    inner = {key: value for key, value in values.items() if key in known and isinstance(value, Mapping)}
    plain = {key: value for key, value in values.items() if key != "_target_" and key not in inner}
    _check_types(f"{group}.", plain, known)
    for key, value in inner.items():
        _check_group(f"{group}.{key}", value)
    missing = sorted(_required(built) & known.keys() - values.keys())
    if missing:
        raise UserError(f"{group}.{missing[0]} is missing; see --cfg job for its default")


def _parameters(built: Any) -> dict[str, Any]:
    """Names and types of what a class, with its parents, or a function takes."""
    return {name: hint for function in reversed(_constructors(built)) for name, hint in _named(function).items()}


def _required(built: Any) -> set[str]:
    """The arguments that must be given; a constructor with **settings also wants what its parent's does."""
    names: set[str] = set()
    for function in _constructors(built):
        arguments = inspect.signature(function).parameters.values()
        names |= {argument.name for argument in arguments if argument.default is inspect.Parameter.empty}
        if all(argument.kind is not inspect.Parameter.VAR_KEYWORD for argument in arguments):
            break
    return names


def _constructors(built: Any) -> list[Callable[..., Any]]:
    """What is called: a function, or the constructors of a class and its parents."""
    callables = [vars(parent).get("__init__") for parent in built.__mro__] if inspect.isclass(built) else [built]
    return [function for function in callables if inspect.isfunction(function)]


def _named(function: Callable[..., Any]) -> dict[str, Any]:
    """Names and types of the arguments that a function names, unlike self, *args and **settings."""
    rest = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    names = {name for name, argument in inspect.signature(function).parameters.items() if argument.kind not in rest}
    return {name: hint for name, hint in typing.get_type_hints(function).items() if name in names and name != "self"}


def _check_types(prefix: str, values: Mapping[str, Any], hints: Mapping[str, Any]) -> None:
    for key, value in values.items():
        if key not in hints:
            raise UserError(f"{prefix}{key} is not a key; {nearest(key, hints, prefix)}")
        if any(is_dataclass(option) for option in (hints[key], *typing.get_args(hints[key]))):
            raise UserError(f"{prefix}{key} is a group: choose one with {prefix.replace('.', '/')}{key}={value}")
        if not _fits(value, hints[key]):
            raise UserError(f"{prefix}{key}={value} must be {_in_words(hints[key])}{_close(value, hints[key])}")


def _fits(value: Any, hint: Any) -> bool:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return True
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, option) for option in inner)
    if origin is Literal:
        return value in inner
    if origin is tuple:
        return isinstance(value, list) and len(value) == len(inner) and all(map(_fits, value, inner))
    if origin is list:
        return isinstance(value, list) and all(_fits(item, inner[0]) for item in value)
    if hint is float:
        return type(value) in (int, float) and math.isfinite(value)
    return type(value) is (type(None) if hint is None else hint)


def _in_words(hint: Any) -> str:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(map(_in_words, inner))
    if origin is Literal:
        return " or ".join(map(str, inner))
    if origin is tuple:
        return f"{len(inner)} numbers, like [0.9,0.95]"
    if origin is list:
        return "a list, like [a,b]"
    names = {
        int: "a whole number",
        float: "a finite number",
        bool: "true or false",
        str: "text",
        type(None): "null",
    }
    return names.get(hint, str(hint))


def _close(value: Any, hint: Any) -> str:
    choices = [str(choice) for choice in typing.get_args(hint)] if typing.get_origin(hint) is Literal else []
    close = difflib.get_close_matches(str(value), choices, n=1)
    return f"; did you mean {close[0]}?" if close else ""


def nearest(key: str, known: Iterable[str], prefix: str = "") -> str:
    """'did you mean a or b?', or what there is to choose from, for a key that is not known."""
    known = sorted(known)
    last = key.rpartition(".")[2]
    same_ending = [name for name in known if name.rpartition(".")[2] == last]
    close = same_ending[:3] or difflib.get_close_matches(key, known, n=3, cutoff=0.5)
    if close:
        return f"did you mean {' or '.join(prefix + name for name in close)}?"
    if len(known) > 12:
        return "see --help and --cfg job for those there are"
    return f"there are {', '.join(prefix + name for name in known)}"


def identity(config: Mapping[str, Any], text: str, precision: str) -> str:
    """Eight digits that two runs share exactly when their curves are to be the same.

    Args:
        config: the resolved configuration.
        text: the corpus's fingerprint, so that a text that has changed under its path is another run.
        precision: the one in use, where the configuration may say "auto".
    """
    kept = {key: value for key, value in config.items() if key not in NOT_THE_CURVE}
    return sha256(json.dumps({**kept, "text": text, "precision": precision}, sort_keys=True).encode()).hexdigest()[:8]
