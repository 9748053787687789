"""Checks of a command line: what Hydra would accept but must not, and what cannot be swept."""

import argparse
import math
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import Override
from omegaconf import OmegaConf

from posenc.config.overrides import MAX_RUNS, WITHOUT_EFFECT, flags_of, parsed, values_of
from posenc.config.schema import nearest
from posenc.config.unknown_keys import HYDRAS_OWN, dotted, unknown_key
from posenc.distributed import this_rank
from posenc.errors import UserError

SYNTAX_HINT = """arguments look like pos=rope or optim.lr=0.001; quote special characters twice, 'name="a=b"'"""
"""The end of an error message."""

SWEPT = "hydra.sweeper.params."
"""Prefix of the keys that a sweep varies."""

ENVIRONMENT = re.compile(r"\$\{\s*oc\.env\b")
"""The resolver that reads environment variables, which may be secrets."""


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
    for override in parsed(arguments):
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
        for name in (key, *dotted(None if override.is_sweep_override() else override.value(), f"{key}.")):
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
    """Check the keys of a sweep, except that composing its jobs, in `posenc.sweeps.jobs`, finds other unknown ones.

    Raises:
        UserError: if a key cannot be swept, or is unknown and begins with ++, the runs are too many, or this is a rank
            of a group.
    """
    if this_rank().world_size > 1:
        raise UserError("a sweep starts the ranks of its runs itself: do not use torchrun or srun")
    overrides = parsed(arguments)
    if any(override.is_force_add() for override in overrides) and (unknown := unknown_key(arguments, conf)):
        raise UserError(unknown)
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
