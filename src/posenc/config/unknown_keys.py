"""Unknown keys on a command line, with suggestions."""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from hydra.core.override_parser.types import Override
from omegaconf import OmegaConf

from posenc.config.compose import with_hydra
from posenc.config.files import choices_in
from posenc.config.overrides import overrides_of, parsed, values_of
from posenc.config.schema import nearest

HYDRAS_OWN = ("hydra/launcher", "hydra/sweeper", "hydra.launcher.", "hydra.sweeper.")
"""The keys of Hydra that can be set; the others control where it writes, what it logs and what it calls."""


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
        keys[f"{group}={choice}"] = {key for key in dotted(OmegaConf.to_container(config)) if "._" not in key}
    return keys


def _is_group(override: Override, groups: Collection[str]) -> bool:
    return override.key_or_group in groups or override.key_or_group.startswith("hydra/")


def _added(override: Override) -> str:
    """The key of an override, with the + of a group that is not in the defaults."""
    return f"{'+' if override.is_add() else ''}{override.key_or_group}"


def dotted(tree: object, prefix: str = "") -> Iterator[str]:
    """Every key of nested dictionaries and of those in lists, such as optim.lr."""
    if isinstance(tree, list):
        for item in tree:
            yield from dotted(item, prefix)
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield f"{prefix}{key}"
            yield from dotted(value, f"{prefix}{key}.")
