"""Overrides on a command line, parsed by Hydra."""

import argparse
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NoReturn

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob, IntervalSweep, Override, RangeSweep, Transformer
from omegaconf import DictConfig

from posenc.compat import hydra_arguments
from posenc.config.schema import NOT_IN_IDENTITY, canonical
from posenc.errors import UserError, first_line

MAX_RUNS = 10_000
"""Maximum size of a sweep; more runs are probably a typo, and would fill the memory before the first one starts."""

WITHOUT_EFFECT = {*NOT_IN_IDENTITY} - {"trainer", "data"}
"""Keys that do not affect the curve. trainer and data are not among them: precision and text do."""


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
