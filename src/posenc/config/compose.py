"""Composition of the configuration by Hydra."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict

from posenc.config.instantiate import head_dim, target
from posenc.config.schema import MAX_NAME, MAX_NAME_BYTES


def register_resolvers() -> None:
    """Register the OmegaConf resolvers of the configuration files, such as `${head_dim:width,heads}`.

    Two of OmegaConf's are removed: the one that reads environment variables, since they may be secrets and a value ends
    up in the run's files, and the one with which a value can become a mapping, and so an object that Hydra would build.
    """
    for unsafe in ("oc.env", "oc.create"):
        OmegaConf.clear_resolver(unsafe)
    for name, function in (("head_dim", head_dim), ("bidirectional", _bidirectional), ("name_of", _name_of)):
        OmegaConf.register_new_resolver(name, function, replace=True)


def _bidirectional(objective: str) -> bool:
    """Whether the objective, given by its `_target_`, uses bidirectional attention."""
    return not getattr(target("objective", objective), "causal", True)


def _name_of(default: str, path: Any) -> str:
    """The name of runs on a local text: that of the file or folder, or of the folder of a glob like *.txt."""
    stems = (part.partition(".")[0] for part in reversed(Path(str(path or default)).parts))
    plain = next(filter(None, (re.sub(r"\W+", "_", stem).strip("_") for stem in stems)), default)
    return plain.encode()[:MAX_NAME_BYTES].decode(errors="ignore")[:MAX_NAME]


def composed(conf: Path, overrides: Iterable[str]) -> tuple[DictConfig, dict[str, str]]:
    """The configuration that train.py would use with these overrides, and the choice in each group."""
    configuration = with_hydra(conf, overrides)
    choices = dict(configuration.hydra.runtime.choices)
    with open_dict(configuration):
        del configuration["hydra"]
    return configuration, choices


def with_hydra(conf: Path, overrides: Iterable[str]) -> DictConfig:
    """The same configuration, with Hydra's under the key `hydra`."""
    from hydra import compose, initialize_config_dir

    register_resolvers()
    with initialize_config_dir(str(conf.resolve()), version_base="1.3"):
        return compose("config", overrides=list(overrides), return_hydra_config=True)
