"""The jobs of a sweep: what it varies, their names, and whether each can be trained."""

import copy
import itertools
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

from posenc.config.compose import composed, with_hydra
from posenc.config.files import choices_in
from posenc.config.instantiate import build
from posenc.config.overrides import parsed, values_of
from posenc.config.schema import check

SWEPT = "POSENC_SWEPT_KEYS"
"""Environment variable with the keys that distinguish the jobs of a sweep, separated by commas."""


def job_name(overrides: Iterable[str]) -> str:
    """The name of a job in messages: its overrides of the swept keys."""
    swept = os.environ.get(SWEPT, "").split(",")
    return ",".join(one for one in overrides if one.partition("=")[0].lstrip("+") in swept) or "the only job"


def overrides_of(config: DictConfig, task: Sequence[str]) -> dict[str, Override]:
    """The overrides of a sweep by key: those of the command line, then, for other keys, `hydra.sweeper.params`."""
    params = config.hydra.sweeper.get("params")
    of_file = [f"{key!s}={value}" for key, value in params.items()] if isinstance(params, DictConfig) else []
    return {override.key_or_group: override for override in parsed([*of_file, *task])}


def check_jobs(arguments: Sequence[str], conf: Path) -> None:
    """Check that the corpus and the model of each job can be built, before the first one starts.

    Tries all combinations of the swept choices, and each other swept value with the first one of everything else.

    Raises:
        UserError: if one cannot.
    """
    given = parsed(arguments)
    fixed = [override.input_line or "" for override in given if not override.is_sweep_override()]
    first = [_jobs(override)[0] for override in given if override.is_sweep_override()]
    task = [override.input_line or "" for override in given]
    varied = overrides_of(with_hydra(conf, [*fixed, *first]), task)
    swept = {key: _jobs(override) for key, override in varied.items() if override.is_sweep_override()}
    groups = [key for key in swept if key in choices_in(conf)]
    values = [key for key in swept if key not in groups]
    for choices in itertools.product(*(swept[group] for group in groups)):
        _check(composed(conf, [*fixed, *(swept[key][0] for key in values), *choices])[0])
    config, _ = composed(conf, [*fixed, *(of_key[0] for of_key in swept.values())])
    for key in values:
        for job in swept[key][1:]:
            other = copy.deepcopy(config)
            OmegaConf.update(other, key, parsed([job])[0].value(), force_add=True)  # composing takes ten times as long
            _check(other)


def _jobs(override: Override) -> list[str]:
    """The overrides of single jobs that a swept one stands for."""
    key, _, _ = str(override.input_line).partition("=")
    return [f"{key}={value}" for value in values_of(override)]


def _check(config: DictConfig) -> None:
    import torch

    from posenc.training.experiment import Experiment

    plain: dict[str, object] = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)  # type: ignore[assignment]
    check(plain)
    build(plain, "data")
    # A plug-in's constructor may read the values of its tensors, which have none on this device.
    with torch.device("meta"), suppress(RuntimeError):
        Experiment.of(plain)
