"""What a command line may not say: keys and choices that are not there, and what Hydra would take but must not."""

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob, IntervalSweep, Override, RangeSweep
from omegaconf import OmegaConf

from posenc.compat import hydra_arguments
from posenc.config.compose import with_hydra, without_hydra
from posenc.config.files import choices_in
from posenc.config.schema import check, nearest
from posenc.errors import UserError, first_line

HYDRAS_OWN = ("hydra/launcher", "hydra/sweeper", "hydra.launcher.", "hydra.sweeper.")
"""Of Hydra's own keys those that can be set: the others say where it writes, what it logs and what it calls."""

LOOKS = """arguments look like pos=rope or optim.lr=0.001, and what is no plain word is quoted twice, 'name="a=b"'"""
"""The end of a sentence."""

MULTIRUN = {"-m", "--multirun"}

LONGEST_SWEEP = 10_000
"""Runs; more are a slip of the hand, and would fill the memory before the first begins."""

SWEPT = "hydra.sweeper.params."
"""What follows it is a key again, of the jobs."""

ENVIRONMENT = re.compile(r"\$\{\s*oc\.env\b")
"""How a value would be read from the environment, where secrets are."""


def parsed(arguments: Sequence[str]) -> list[Override]:
    """The overrides of a command line, without its flags.

    Raises:
        UserError: for a flag that there is not.
        OverrideParseException: if an override cannot be read.
    """

    def refused(sentence: str) -> NoReturn:
        raise UserError(f"{sentence}; see --help")

    flags = hydra_arguments()
    setattr(flags, "error", refused)  # noqa: B010  it would print a page and exit
    return [_parsed(argument) for argument in flags.parse_args(list(arguments)).overrides]


def _parsed(argument: str) -> Override:
    try:
        return OverridesParser.create().parse_overrides([argument])[0]
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, hundreds of brackets
        raise UserError(f"{argument!r} cannot be read: {first_line(error)}") from error


def values_of(override: Override) -> list[str]:
    """The value of an override, or all that it sweeps over, as text.

    Raises:
        UserError: if it sweeps over more than a sweep may have, or over what is nowhere listed.
    """
    if override.is_sweep_override():
        _check_listed(override)
        return list(override.sweep_string_iterator())
    value = override.value()
    return ["" if value is None else str(value)]


def _check_listed(override: Override) -> None:
    swept: Any = override.value()
    if isinstance(swept, Glob | IntervalSweep):
        raise UserError(f"{override.input_line} cannot be swept: list the values, like pos=none,rope")
    if isinstance(swept, RangeSweep):
        if not swept.step or swept.start is None or swept.stop is None:
            raise UserError(f"{override.input_line} never ends: its step must not be 0")
        if (swept.stop - swept.start) / swept.step > LONGEST_SWEEP:
            raise UserError(f"{override.input_line} has too many values: a sweep has at most {LONGEST_SWEEP:,} runs")


def refuse(arguments: Sequence[str], groups: Mapping[str, Collection[str]]) -> None:
    """Refuse what would call, read or write something outside of a run, and choices that are not there.

    Args:
        arguments: the command line.
        groups: the choices there are in each group.

    Raises:
        UserError: on the first argument that may not be there. Nothing has been done by then.
    """
    for argument in arguments:
        if any("\ud800" <= character <= "\udfff" for character in argument):
            raise UserError(f"{argument!r} is not UTF-8")
        if argument.startswith("--experimental-rerun"):
            raise UserError("--experimental-rerun would run what a file says, and is not offered")
        if ENVIRONMENT.search(argument):
            raise UserError(
                f"{argument} would write the environment into the run's files: give the value, if it is no secret"
            )
    for override in parsed(arguments):
        key = override.key_or_group
        if not key:
            raise UserError(f"{override.input_line!r} cannot be read: {LOOKS}")
        swept = values_of(override) if override.is_sweep_override() else []
        if swept and not MULTIRUN & set(arguments):
            value = str(override.input_line).partition("=")[2]
            raise UserError(f"{override.input_line} is a sweep: add -m, or quote it twice, '{key}=\"{value}\"'")
        if key in groups and not override.is_delete():
            for choice in values_of(override):
                # Of Hydra's own groups there are more choices than files here: it says itself which.
                known = re.fullmatch(r"\w+", choice) if key.startswith("hydra/") else choice in groups[key]
                if not known:
                    raise UserError(not_a_choice(key, choice, groups[key]))
        for name in _keys(key, None if override.is_sweep_override() else override.value()):
            _check_key(name)


def not_a_choice(group: str, choice: str, choices: Collection[str]) -> str:
    """The sentence for a choice that is not there."""
    return (
        f"{group}={choice} is not a choice; {nearest(choice, choices, f'{group}=')} "
        f"({group} is one of {', '.join(sorted(choices))})"
    )


def _keys(key: str, value: Any) -> Iterator[str]:
    """A key, and those inside its value."""
    yield key
    if isinstance(value, dict):
        for inner, below in value.items():
            yield from _keys(f"{key}.{inner}", below)


def _check_key(key: str) -> None:
    key = key.removeprefix(SWEPT)
    if any(part.startswith("_") for part in key.split(".")):
        chosen = "what is built is chosen, like pos=rope; a class of your own gets a file in conf/"
        raise UserError(f"{key} cannot be set: {chosen}")
    if re.match(r"hydra\b", key) and not key.startswith(HYDRAS_OWN):
        raise UserError(
            f"{key} cannot be set: of Hydra's keys only those of hydra/launcher and hydra/sweeper can, "
            "and runs= says where runs are written"
        )


def unknown_key(arguments: Sequence[str], conf: Path) -> str | None:
    """Which argument names a key that is not there, and which ones are near it; in a sweep, with each of its choices.

    Raises:
        HydraException: if the choices do not compose.
    """
    overrides, groups = parsed(arguments), choices_in(conf)
    chosen = {
        f"{'+' if override.is_add() else ''}{override.key_or_group}": values_of(override)
        for override in overrides
        if override.key_or_group in groups or override.key_or_group.startswith("hydra/")
    }
    first = {group: choices[0] for group, choices in chosen.items()}
    swept = [(group, choice) for group, choices in chosen.items() if len(choices) > 1 for choice in choices]
    keys: dict[str, set[str]] = {}
    for group, choice in swept or list(first.items())[:1] or [("seed", "0")]:
        config = with_hydra(conf, [f"{key}={value}" for key, value in {**first, group: choice}.items()])
        keys[f"{group}={choice}"] = set(_dotted(OmegaConf.to_container(config)))
    for override in overrides:
        key = override.key_or_group
        if override.is_add() or key in groups or key.startswith(("hydra/", SWEPT)):
            continue
        lacking = [choice for choice, known in keys.items() if key not in known]
        if len(lacking) == len(keys):
            hydras = key.startswith("hydra.")
            known = {name for name in set(groups).union(*keys.values()) if name.startswith("hydra") is hydras}
            return f"{key} is not a key; {nearest(key, known)}"
        if lacking:
            return f"{key} is not a key with {lacking[0]}: sweep it apart"
    return None


def _dotted(tree: object, prefix: str = "") -> Iterator[str]:
    """Every key of a tree of dictionaries, like optim.lr."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            if not str(key).startswith("_"):
                yield f"{prefix}{key}"
                yield from _dotted(value, f"{prefix}{key}.")


def check_single_run(hydra: Any) -> None:
    """Check that one run was meant: a sweep without -m would train one of its runs here, alone and without a word.

    Args:
        hydra: Hydra's own configuration of the run.

    An experiment whose sweep has only the seed left open, since the rest is given, is one run.

    Raises:
        UserError: if a launcher, a sweeper, or values to sweep were chosen.
    """
    given = [*hydra.overrides.hydra, *hydra.overrides.task]
    choices = hydra.runtime.choices
    left_open = set(hydra.sweeper.get("params") or ()) - {one.partition("=")[0] for one in given} - {"seed"}
    if choices["hydra/launcher"] != "basic":
        words = r"hydra/launcher="
    elif choices["hydra/sweeper"] != "basic" or left_open:
        words = r"\+?(sweep|experiment)=|\+?hydra.sweeper"
    else:
        return
    raise UserError(f"{' '.join(one for one in given if re.match(words, one))} is a sweep: add -m")


def check_sweep(arguments: Sequence[str], conf: Path) -> None:
    """Check the keys of a sweep, all that its jobs share, and where it is to be written; of swept groups the first.

    A sweep writes before it looks at its jobs, and would find a mistake after hours of the right ones. But a value that
    is swept may be wrong: its job fails, and the others are trained.

    Raises:
        UserError: if a key is not there, or a value is impossible.
    """
    from posenc.storage.atomic import check_writable

    unknown = unknown_key(arguments, conf)
    if unknown is not None:
        raise UserError(unknown)
    overrides, groups = parsed(arguments), choices_in(conf)
    fixed = [override.input_line or "" for override in overrides if not override.is_sweep_override()]
    runs = math.prod(len(values_of(override)) for override in overrides if override.is_sweep_override())
    if runs > LONGEST_SWEEP:
        raise UserError(f"these are {runs:,} runs: a sweep has at most {LONGEST_SWEEP:,}")
    swept = [override for override in overrides if override.is_sweep_override() and override.key_or_group in groups]
    config = with_hydra(conf, [*fixed, *(f"{override.key_or_group}={values_of(override)[0]}" for override in swept)])
    values: Any = OmegaConf.to_container(without_hydra(config), resolve=True, throw_on_missing=True)
    settings = check(values)
    check_writable(f"runs={settings.runs}", Path(settings.runs) / settings.name)
