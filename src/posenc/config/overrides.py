"""Checks of the command line: unknown keys and choices, and overrides that Hydra would accept but must not."""

import argparse
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob, IntervalSweep, Override, RangeSweep, Transformer
from omegaconf import DictConfig, OmegaConf

from posenc.compat import hydra_arguments
from posenc.config.compose import with_hydra
from posenc.config.files import choices_in
from posenc.config.schema import NOT_IN_IDENTITY, canonical, nearest
from posenc.distributed import this_rank
from posenc.errors import UserError, first_line

HYDRAS_OWN = ("hydra/launcher", "hydra/sweeper", "hydra.launcher.", "hydra.sweeper.")
"""The keys of Hydra that can be set; the others control where it writes, what it logs and what it calls."""

SYNTAX_HINT = """arguments look like pos=rope or optim.lr=0.001; quote special characters twice, 'name="a=b"'"""
"""The end of an error message."""

MAX_RUNS = 10_000
"""Maximum size of a sweep; more runs are probably a typo, and would fill the memory before the first one starts."""

WITHOUT_EFFECT = {*NOT_IN_IDENTITY} - {"trainer", "data"}
"""Keys that do not affect the curve. trainer and data are not among them: precision and text do."""

SWEPT = "hydra.sweeper.params."
"""Prefix of the keys that a sweep varies."""

ENVIRONMENT = re.compile(r"\$\{\s*oc\.env\b")
"""The resolver that reads environment variables, which may be secrets."""


def flags_of(arguments: Sequence[str]) -> argparse.Namespace:
    """Hydra's flags in a command line, and its overrides as text.

    Raises:
        UserError: for an unknown or abbreviated flag.
    """

    def error(message: str) -> NoReturn:
        raise UserError(f"{message}; see --help")

    flags = hydra_arguments()
    setattr(flags, "error", error)  # noqa: B010  the default prints the usage and exits
    flags.allow_abbrev = False  # Hydra accepts --e for --experimental-rerun, which is refused by its full name
    return flags.parse_args(list(arguments))


def parsed(arguments: Sequence[str]) -> list[Override]:
    """The overrides of a command line, without its flags.

    Raises:
        UserError: for an unknown flag.
        OverrideParseException: if an override cannot be parsed.
    """
    return [_parsed(argument) for argument in flags_of(arguments).overrides]


def overrides_of(config: DictConfig, task: Sequence[str]) -> dict[str, Override]:
    """The overrides of a sweep by key: those of the command line, then, for other keys, `hydra.sweeper.params`."""
    params = config.hydra.sweeper.get("params")
    given = params.items() if isinstance(params, DictConfig) else ()
    of_file = [f"{key!s}={'null' if value is None else value}" for key, value in given]
    return {override.key_or_group: override for override in parsed([*of_file, *task])}


def _parsed(argument: str) -> Override:
    try:
        return OverridesParser.create().parse_overrides([argument])[0]
    except (ValueError, RecursionError) as error:  # a number with thousands of digits, hundreds of brackets
        raise UserError(f"{argument!r} cannot be read: {first_line(error)}") from error


def values_of(override: Override) -> list[str]:
    """The value of an override, or all values that it sweeps over, as text.

    Raises:
        UserError: if it has no values, too many, or one twice, or its values are not listed.
    """
    if override.is_sweep_override():
        _check_listed(override)
        values = list(override.sweep_string_iterator())
        distinct = {str(canonical(value)) for value in override.sweep_iterator(Transformer.identity)}
        if len(distinct) < max(1, len(values)):
            raise UserError(f"{override.input_line} has {'duplicates' if values else 'no values'}")
        return values
    value = override.value()
    return ["null" if value is None else str(value)]


def _check_listed(override: Override) -> None:
    swept: Any = override.value()
    if isinstance(swept, Glob | IntervalSweep):
        raise UserError(f"{override.input_line} cannot be swept: list the values, like pos=none,rope")
    if isinstance(swept, RangeSweep):
        if not swept.step or swept.start is None or swept.stop is None:
            raise UserError(f"{override.input_line} is infinite: its step must not be 0")
        with suppress(OverflowError):
            if (swept.stop - swept.start) / swept.step <= MAX_RUNS:  # NaN compares false
                return
        raise UserError(f"{override.input_line} has too many values: a sweep has at most {MAX_RUNS:,} runs")


def check_arguments(arguments: Sequence[str], groups: Mapping[str, Collection[str]], advice: str = "add -m") -> None:
    """Reject unknown choices, and arguments that would call, read or write anything outside of a run.

    Args:
        advice: what to do if they are a sweep without -m.

    Raises:
        UserError: on the first invalid argument, before anything has been done.
    """
    flags = flags_of(arguments)
    _check_flags(flags)
    for argument in arguments:
        _check_text(argument)
    for override in map(_parsed, flags.overrides):
        key = override.key_or_group
        if not key:
            raise UserError(f"{override.input_line!r} cannot be read: {SYNTAX_HINT}")
        if override.is_delete():  # its class may have a default, which no comparison would see
            how = "choose one" if key in groups else "give it a value"
            raise UserError(f"{key} is missing: {how} with {key}=, not {override.input_line}")
        if override.is_sweep_override() and values_of(override) and not flags.multirun:
            value = str(override.input_line).partition("=")[2]
            quote = "" if key in groups else f", or quote it twice, '{key}=\"{value}\"'"
            raise UserError(f"{override.input_line} is a sweep: {advice}{quote}")
        if key in groups:
            _check_choices(override, groups[key])
        for name in (key, *_dotted(None if override.is_sweep_override() else override.value(), f"{key}.")):
            _check_key(name)


def _check_flags(flags: argparse.Namespace) -> None:
    for flag in ("config_name", "config_path", "config_dir"):
        if getattr(flags, flag):
            raise UserError(f"--{flag.replace('_', '-')} is not supported: add files to conf/")
    if flags.package:
        raise UserError("--package is not supported: --cfg job shows all keys")
    if flags.experimental_rerun:
        raise UserError("--experimental-rerun would execute a file's contents, and is not supported")
    if flags.cfg and flags.multirun:
        raise UserError("--cfg shows the configuration of one run: leave out -m, and give each key one value")


def _check_text(argument: str) -> None:
    if any("\ud800" <= character <= "\udfff" for character in argument):
        raise UserError(f"{argument!r} is not UTF-8")
    if ENVIRONMENT.search(argument):
        raise UserError(f"{argument} would write an environment variable into the run's files: pass its value instead")


def _check_choices(override: Override, choices: Collection[str]) -> None:
    group = override.key_or_group
    for choice in values_of(override):
        # Hydra's own groups have more choices than there are files here; it checks them itself, but for null.
        known = re.fullmatch(r"(?!null$)\w+", choice) if group.startswith("hydra/") else choice in choices
        if not known:
            raise UserError(not_a_choice(group, choice, choices))


def not_a_choice(group: str, choice: str, choices: Collection[str]) -> str:
    """The error message for an unknown choice."""
    hint, listed = nearest(choice, choices, f"{group}="), ", ".join(sorted(choices))
    every = "" if hint.startswith("choose from") else f" ({group} is one of {listed})"
    return f"{group}={choice} is not a choice; {hint}{every}"


def _check_key(key: str) -> None:
    if key.startswith(SWEPT):
        raise UserError(f"{key} cannot be set: sweep with -m {key.removeprefix(SWEPT)}=...")
    if any(part.startswith("_") for part in key.split(".")):
        hint = "choose what to build, like pos=rope, or add a file for your own class to conf/"
        raise UserError(f"{key} cannot be set: {hint}")
    if re.match(r"hydra\b", key) and not key.startswith(HYDRAS_OWN):
        raise UserError(
            f"{key} cannot be set: only Hydra's launcher and sweeper keys can; use runs= for the output folder"
        )


def unknown_key(arguments: Sequence[str], conf: Path) -> str | None:
    """The error message for the first unknown key, with suggestions, checked for each choice of a sweep; or None.

    Raises:
        HydraException: if the choices do not compose.
    """
    overrides, groups = parsed(arguments), choices_in(conf)
    keys = _keys_by_choice(overrides, groups, conf)
    for override in overrides:
        key = override.key_or_group
        if override.is_add() or _is_group(override, groups):
            continue
        lacking = [choice for choice, known in keys.items() if key not in known]
        if len(lacking) == len(keys):
            group, choices = key.rpartition(".")[0].replace(".", "/"), _choices_with(key, conf)
            if choices:
                return f"{key} is not a key with this {group}; it is one with {group}={', '.join(choices)}"
            every = set(groups).union(*keys.values())
            settable = {name for name in every if name.startswith(HYDRAS_OWN)}
            ours = {name for name in every if not name.startswith("hydra")}
            return f"{key} is not a key; {nearest(key, settable if key.startswith('hydra.') else ours)}"
        if lacking:
            return f"{key} is not a key with {lacking[0]}: use separate sweeps"
    return None


def _choices_with(key: str, conf: Path) -> list[str]:
    """The choices of a key's group that have it."""
    parent, _, name = key.rpartition(".")
    group = parent.replace(".", "/")
    return [
        choice
        for choice in sorted(choices_in(conf).get(group, ()))
        if name in (OmegaConf.select(with_hydra(conf, [f"{group}={choice}"]), parent) or ())
    ]


def _keys_by_choice(overrides: Sequence[Override], groups: Collection[str], conf: Path) -> dict[str, set[str]]:
    """The keys of the configuration with each choice of each swept group, by group=choice.

    Other groups have their first choice; without a swept group there is one entry.
    """
    given = [one for one in overrides if _is_group(one, groups)]
    config = with_hydra(conf, [f"{_added(one)}={values_of(one)[0]}" for one in given])
    of_file = overrides_of(config, [one.input_line or "" for one in given]).values()
    chosen = {_added(one): values_of(one) for one in of_file if _is_group(one, groups)}
    first = {group: choices[0] for group, choices in chosen.items()}
    swept = [(group, choice) for group, choices in chosen.items() if len(choices) > 1 for choice in choices]
    keys: dict[str, set[str]] = {}
    for group, choice in swept or [("seed", "0")]:
        config = with_hydra(conf, [f"{key}={value}" for key, value in {**first, group: choice}.items()])
        keys[f"{group}={choice}"] = {key for key in _dotted(OmegaConf.to_container(config)) if "._" not in key}
    return keys


def _is_group(override: Override, groups: Collection[str]) -> bool:
    return override.key_or_group in groups or override.key_or_group.startswith("hydra/")


def _added(override: Override) -> str:
    """The key of an override, with the + of a group that is not in the defaults."""
    return f"{'+' if override.is_add() else ''}{override.key_or_group}"


def _dotted(tree: object, prefix: str = "") -> Iterator[str]:
    """Every key of nested dictionaries and of those in lists, such as optim.lr."""
    if isinstance(tree, list):
        for item in tree:
            yield from _dotted(item, prefix)
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield f"{prefix}{key}"
            yield from _dotted(value, f"{prefix}{key}.")


def check_single_run(hydra: Any, advice: str = "add -m") -> None:
    """Check that a single run was intended: a sweep without -m would silently train only one of its runs.

    An experiment that sweeps only over the seed, because everything else is given, counts as a single run.

    Raises:
        UserError: if a launcher, a sweeper, or values to sweep are given.
    """
    overrides: Any = OmegaConf.to_container(hydra.overrides)  # interpolations in them are not resolved
    given = [*overrides["hydra"], *overrides["task"]]
    choices = hydra.runtime.choices
    left_open = set(hydra.sweeper.get("params") or ()) - {one.partition("=")[0] for one in given} - {"seed"}
    if choices["hydra/launcher"] != "basic":
        pattern = r"hydra/launcher="
    elif choices["hydra/sweeper"] != "basic" or left_open:
        pattern = r"\+?(sweep|experiment)=|\+?hydra.sweeper"
    else:
        return
    swept = " ".join(argument for argument in given if re.match(pattern, argument)) or "conf/config.yaml"
    raise UserError(f"{swept} is a sweep: {advice}")


def check_sweep(arguments: Sequence[str], conf: Path) -> None:
    """Check the keys of a sweep; `posenc.sweeps.jobs` checks their values.

    Raises:
        UserError: if a key is unknown or cannot be swept, the runs are too many, or this is a rank of a group.
    """
    if this_rank().world_size > 1:
        raise UserError("a sweep starts the ranks of its runs itself: do not use torchrun or srun")
    if unknown := unknown_key(arguments, conf):
        raise UserError(unknown)
    overrides = parsed(arguments)
    for override in overrides:
        if override.is_sweep_override() and (reason := _not_swept(override.key_or_group)):
            raise UserError(f"{override.input_line} cannot be swept: {reason}")
        if override.key_or_group == "hydra.sweeper.max_batch_size" and re.match(r"0$|-", str(override.value())):
            raise UserError(f"{override.input_line} must be at least 1, or null for all runs")
    runs = math.prod(len(values_of(override)) for override in overrides if override.is_sweep_override())
    if runs > MAX_RUNS:
        raise UserError(f"this sweep has {runs:,} runs; the maximum is {MAX_RUNS:,}")


def _not_swept(key: str) -> str | None:
    """Why a key cannot be swept, or None if it can."""
    if key in ("name", "runs"):
        return "the runs of a sweep are compared in one folder"
    if key.partition(".")[0] in WITHOUT_EFFECT:
        return "it does not affect the curve, so the runs are one"
    if key.startswith("hydra"):
        return "the jobs of a sweep share it"
    return "a sweep is one command" if key == "sweep" else None
