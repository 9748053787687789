"""The jobs of a sweep: what distinguishes them, and a check of their corpora and models before the first one starts."""

import copy
import itertools
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

from posenc.config.compose import composed, with_hydra
from posenc.config.files import choices_in
from posenc.config.instantiate import build
from posenc.config.overrides import overrides_of, parsed, values_of
from posenc.config.schema import check
from posenc.errors import UserError
from posenc.storage.atomic import check_writable

SWEPT_KEYS_VARIABLE = "POSENC_SWEPT_KEYS"
"""Environment variable with the keys that distinguish the jobs of a sweep, separated by commas."""


def job_name(overrides: Iterable[str]) -> str:
    """The name of a job in messages: its overrides of the swept keys."""
    swept = os.environ.get(SWEPT_KEYS_VARIABLE, "").split(",")
    return ",".join(one for one in overrides if one.partition("=")[0].lstrip("+") in swept) or "the only job"


def check_jobs(configurations: Iterable[DictConfig], name: str) -> None:
    """Check the values of some jobs, and build the corpora and models of those that differ in more than the seed.

    Otherwise an error might show up only after hours of training.

    Args:
        name: of the folder in which the runs are compared.

    Raises:
        UserError: on the first job that cannot be trained, or not into the folder of the others.
    """
    first, tried = "", set[str]()
    for config in configurations:
        values: Any = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
        settings = check(values)
        if not first:
            first = settings.name
            check_writable(f"runs={settings.runs}", Path(settings.runs) / first)
        if settings.name != first:
            both = f"{first} and {settings.name}"
            raise UserError(f"the runs would be named {both}: set name=, to compare them in one folder")
        what = json.dumps({**values, "seed": None}, sort_keys=True)
        if what not in tried:
            tried.add(what)
            _build(values)
    if first != name:  # of runs whose text is swept
        raise UserError(f"the runs would be named {first}, but compared in {name}: set name=")


def jobs_of(arguments: Sequence[str], conf: Path) -> tuple[Iterator[DictConfig], str]:
    """The configurations of a sweep's jobs to check, and the name of the folder in which they are compared.

    All combinations of the swept choices, with the first value of every other swept key, and with each other value of
    one of them; of the seeds only the first, but for one combination.
    """
    given = parsed(arguments)
    fixed = [override.input_line or "" for override in given if not override.is_sweep_override()]
    config = with_hydra(conf, fixed)
    overrides = overrides_of(config, [override.input_line or "" for override in given])
    return _combinations(overrides, conf), config.name


def _combinations(overrides: Mapping[str, Override], conf: Path) -> Iterator[DictConfig]:
    fixed = [override.input_line or "" for override in overrides.values() if not override.is_sweep_override()]
    swept = {key: _single(override) for key, override in overrides.items() if override.is_sweep_override()}
    seeds = swept.pop("seed", [])
    groups = [swept.pop(key) for key in [*swept] if key in choices_in(conf)]
    others = [override for of_key in swept.values() for override in of_key[1:]]
    for choices in itertools.product(*groups):
        first, _ = composed(conf, [*fixed, *seeds[:1], *(of_key[0] for of_key in swept.values()), *choices])
        yield first
        yield from _changed(first, others)
    yield from _changed(first, seeds[1:])


def _changed(config: DictConfig, overrides: Sequence[str]) -> Iterator[DictConfig]:
    """The configuration with one other value, for each of the overrides; composing takes ten times as long."""
    for override in parsed(overrides):
        changed = copy.deepcopy(config)
        OmegaConf.update(changed, override.key_or_group, override.value(), force_add=True)
        yield changed


def _single(override: Override) -> list[str]:
    """The overrides of single jobs that a swept one stands for."""
    key, _, _ = str(override.input_line).partition("=")
    return [f"{key}={value}" for value in values_of(override)]


def _build(config: dict[str, Any]) -> None:
    """Build the corpus, and the model on the meta device, which has no memory.

    Raises:
        UserError: if that is impossible.
    """
    import torch

    from posenc.training.experiment import Experiment

    try:
        build(config, "data")
        with torch.device("meta"):
            Experiment.of(config)
    except UserError:
        raise
    except Exception:  # a plug-in that reads the values of its tensors, or a bug: the job itself reports it
        return
