"""What identifies a run in the tables of a study, from its command line or from its directory.

A key names what differs from the study's experiment, so it needs the experiment's configuration, composed by Hydra.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from omegaconf import OmegaConf

from posenc.analysis.runs import Run, flat
from posenc.config.compose import composed
from posenc.config.files import CONF
from posenc.config.schema import canonical
from posenc.errors import UserError
from posenc.storage.reading import leaves

BACKBONE, SEARCH = "backbone", "search"

FACTORS = (
    "model", "model.layers", "model.width", "model.heads", "model/family", "attention", "objective", "tokenizer",
    "tokenizer.vocab_size", "context", "batch_size", "optim", "optim.betas", "optim.weight_decay", "optim.clip",
    "schedule", "schedule.warmup", "schedule.min_lr_ratio", "eval_windows",
)  # fmt: skip
"""Keys that default to the experiment's value; any other key of a group defaults to that in the file of the choice."""

GROUPS = ("intervention", "model", "model/family", "attention", "objective", "tokenizer", "optim", "schedule")
"""The choices of a run that a setting names, besides its scheme."""

OWN_COLUMNS = ("optim.lr", "pos.scale", "pos.base")
"""Hyperparameters that are no part of a setting."""

NUMBERS = ("steps", "seed", "optim.lr")
"""Numbers on which nothing else of a configuration depends: it is composed once for all of their values."""


class Key(NamedTuple):
    """Identifies a run; the first columns of every table about runs.

    Attributes:
        corpus: name and fingerprint of the corpus.
        setting: overrides of the experiment, BACKBONE if there are none; of a trial it begins with SEARCH.
        pos, seed, tokens: scheme, seed and budget.
        lr, scale, base: hyperparameters; empty if the scheme does not have them.
    """

    corpus: str
    setting: str
    pos: str
    seed: int
    tokens: int
    lr: float
    scale: str
    base: str


def key_of_overrides(experiment: str, overrides: Sequence[str], corpus: str, search_seeds: Sequence[int]) -> Key:
    """The key of the run of some overrides.

    Args:
        experiment: the override that chooses the study's experiment.
        search_seeds: the seeds of trials.

    Raises:
        UserError: if a value from which a number of the key is computed is no number.
    """
    pairs = [override.partition("=") for override in overrides]
    numbers = {name: value for name, _, value in pairs if name in NUMBERS}
    shared = tuple("".join(pair) for pair in pairs if pair[0] not in NUMBERS)
    return _key(experiment, {**flat_configuration(shared), **numbers}, corpus, search_seeds)


def key_of_run(experiment: str, run: Run, search_seeds: Sequence[int]) -> Key:
    """The key of a run that was read from its directory; arguments as in `key_of_overrides`.

    Raises:
        KeyError, TypeError, HydraException, UserError: if its configuration is not one of train.py's.
    """
    configuration = {**run.setting, "pos": run.scheme, "seed": run.seed}
    return _key(experiment, configuration, corpus_of(run.setting), search_seeds)


def corpus_of(configuration: Mapping[str, Any]) -> str:
    """The name of a corpus in runs.csv: its choice, and the start of its text's fingerprint."""
    return f"{configuration['data']}-{configuration['text'][:8]}"


def composed_configuration(overrides: Sequence[str], resolve: bool = True) -> tuple[dict[str, Any], dict[str, str]]:
    """The configuration of train.py as plain data, and its choices."""
    configuration, choices = composed(CONF, overrides)
    config: Any = OmegaConf.to_container(configuration, resolve=resolve)
    return config, choices


@cache
def flat_configuration(overrides: tuple[str, ...]) -> dict[str, Any]:
    """The configuration by dotted key, with its choices, scheme and seed."""
    config, choices = composed_configuration(overrides)
    setting = {key: canonical(value) for key, value in flat({**config, "choices": choices})}
    return {**setting, "pos": choices["pos"], "seed": config["seed"]}


def _choices(configuration: Mapping[str, Any]) -> tuple[str, ...]:
    """The overrides that choose what a flat configuration has chosen; a run from before a group existed has none."""
    return tuple(f"{group}={configuration[group]}" for group in ("pos", *GROUPS) if group in configuration)


@cache
def _defaults(experiment: str, choices: tuple[str, ...]) -> Mapping[str, Any]:
    """The values that are left out of a setting: the experiment's, and those in the files of a run's own choices."""
    config, _ = composed_configuration((experiment, *choices), resolve=False)
    values = dict(leaves({group: config[group] for group in ("pos", *GROUPS) if group in config}))
    follow = {key for key, value in values.items() if str(value).startswith("${") or key.endswith("_target_")}
    own = {key: canonical(value) for key, value in values.items() if key not in {*follow, *FACTORS, *OWN_COLUMNS}}
    of_experiment = flat_configuration((experiment,))
    return {**{name: of_experiment.get(name) for name in FACTORS}, "intervention": "none", **own}


def _key(experiment: str, configuration: Mapping[str, Any], corpus: str, search_seeds: Sequence[int]) -> Key:
    defaults = _defaults(experiment, _choices(configuration))
    values = {name: configuration.get(name, default) for name, default in defaults.items()}
    changed = " ".join(f"{name}={value}" for name, value in values.items() if value != defaults[name])
    seed = _number(configuration, "seed")
    steps, batch_size, context = (_number(configuration, name) for name in ("steps", "batch_size", "context"))
    return Key(
        corpus,
        f"{SEARCH} {changed}".strip() if seed in search_seeds else changed or BACKBONE,
        configuration["pos"],
        seed,
        steps * batch_size * context,
        _number(configuration, "optim.lr", float),
        str(configuration.get("pos.scale", "")),
        str(configuration.get("pos.base", "")),
    )


def _number(configuration: Mapping[str, Any], name: str, kind: type[int] | type[float] = int) -> Any:
    try:
        return kind(configuration[name])
    except ValueError:
        raise UserError(f"{name}={configuration[name]} must be a number here") from None
