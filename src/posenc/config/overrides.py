"""What a command line may not say, though Hydra would take it."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override

from posenc.compat import hydra_arguments
from posenc.errors import UserError

HYDRAS_OWN = ("hydra/launcher", "hydra/sweeper", "hydra.launcher.", "hydra.sweeper.")
"""Of Hydra's own keys those that can be set: the others say where it writes, what it logs and what it calls."""

SWEPT = "hydra.sweeper.params."
"""What follows it is a key again, of the jobs."""

ENVIRONMENT = re.compile(r"\$\{\s*oc\.env\b")
"""How a value would be read from the environment, where secrets are."""


def refuse(arguments: Sequence[str], groups: Mapping[str, Collection[str]]) -> None:
    """Refuse what would call, read or write something outside of a run: nothing has been done by then.

    Args:
        arguments: the command line.
        groups: the choices there are in each group.

    Raises:
        UserError: on the first argument that may not be there.
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
            raise UserError(f"{override.input_line!r} cannot be read: arguments look like pos=rope or optim.lr=0.001")
        if key in groups:
            _check_choice(override, groups[key])
        for name in _keys(key, None if override.is_sweep_override() else override.value()):
            _check_key(name)


def parsed(arguments: Sequence[str]) -> list[Override]:
    """The overrides of a command line, without its flags.

    Raises:
        UserError: for a flag that there is not.
        OverrideParseException: if an override cannot be read.
    """

    def told(sentence: str) -> NoReturn:
        raise UserError(f"{sentence}; see --help")

    flags = hydra_arguments()
    setattr(flags, "error", told)  # noqa: B010  it would print a page and leave
    return OverridesParser.create().parse_overrides(flags.parse_args(list(arguments)).overrides)


def not_a_choice(group: str, choice: Any, choices: Collection[str]) -> str:
    """The sentence for a choice that is not there."""
    from posenc.config.schema import nearest

    return (
        f"{group}={choice} is not a choice; {nearest(str(choice), choices, f'{group}=')} "
        f"({group} is one of {', '.join(sorted(choices))})"
    )


def _check_choice(override: Override, choices: Collection[str]) -> None:
    """A choice is the name of a file in its group's folder, and never a way out of it."""
    if override.is_sweep_override() or override.is_delete():
        return
    choice = override.value()
    if not isinstance(choice, str) or re.search(r"(^|/)(\.\.)?(/|$)", choice):
        raise UserError(not_a_choice(override.key_or_group, "" if choice is None else choice, choices))


def _keys(key: str, value: Any) -> Iterator[str]:
    """A key, and those inside its value."""
    yield key
    if isinstance(value, dict):
        for inner, below in value.items():
            yield from _keys(f"{key}.{inner}", below)


def _check_key(key: str) -> None:
    key = key.removeprefix(SWEPT)
    if any(part.startswith("_") for part in key.split(".")):
        raise UserError(f"{key} cannot be set: what is built is chosen, like pos=rope")
    if re.match(r"hydra\b", key) and not key.startswith(HYDRAS_OWN):
        raise UserError(
            f"{key} cannot be set: of Hydra's keys only those of hydra/launcher and hydra/sweeper can, "
            "and runs= says where runs are written"
        )
