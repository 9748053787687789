"""A Hydra sweeper that tunes each scheme first. Hydra finds plugins only in packages of this name."""

import itertools
import json
import math
import os
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict

from posenc.config.overrides import WITHOUT_EFFECT, overrides_of, values_of
from posenc.config.quoting import folder_override
from posenc.config.schema import SHARED
from posenc.errors import RunError, UserError
from posenc.storage.atomic import atomic_write
from posenc.sweeps.callback import JOB_COUNT_VARIABLE
from posenc.sweeps.jobs import SWEPT_KEYS_VARIABLE, check_jobs


class BestAgainstBest(Sweeper):
    """A grid search for each scheme with a separate seed, then the best setting of each scheme with new seeds.

    Keys of the grid that a scheme does not have, such as pos.scale for RoPE, are ignored for it, and one that is given
    on the command line is not searched. The trials are in `search/` inside the sweep's folder, their results in
    `search.json`.

    Args:
        grid: the values to try, by dotted key.
        search_seed: of the trials; must not be one of the seeds compared.
        params: the schemes and seeds to compare, `pos` and `seed`; the command line takes precedence.

    Raises:
        UserError: if one of them is invalid.
    """

    def __init__(self, grid: DictConfig, search_seed: int, params: DictConfig) -> None:
        if type(search_seed) is not int or not 0 <= search_seed < 2**32:
            raise UserError(f"hydra.sweeper.search_seed={search_seed} must be an integer at least 0 and below 2^32")
        if not isinstance(params, DictConfig):
            raise UserError(f"hydra.sweeper.params={params} must be a mapping, like {{seed: '0,1'}}")
        self.search_seed = search_seed
        self.grid: Any = OmegaConf.to_container(grid, resolve=True) if OmegaConf.is_config(grid) else grid
        _check_grid(self.grid)

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.context: HydraContext = hydra_context
        self.configuration: DictConfig = config
        self.launcher: Launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> None:
        """Search, then train the best settings.

        Raises:
            UserError: if anything but pos and seed is swept, a key of the grid is unknown, a trial cannot be trained,
                or the search's seed is also one of those compared.
            RunError: if a trial has no result, so that the best is not known.
        """
        schemes, seeds, fixed = self._requested(arguments)
        trials = [trial for scheme in schemes for trial in self._trials(scheme, fixed)]
        check_jobs((self._composed([*fixed, *_as_arguments(trial)]) for trial in trials), self.configuration.name)
        folder = Path(self.configuration.hydra.sweep.dir)
        folder.mkdir(parents=True, exist_ok=True)
        atomic_write(folder / "multirun.yaml", OmegaConf.to_yaml(self.configuration))

        output = [folder_override("runs", folder), "name=search", folder_override("hydra.sweep.dir", folder)]
        jobs = [[*fixed, *_as_arguments(trial), f"seed={self.search_seed}", *output] for trial in trials]
        print(f"Search: {len(jobs)} runs, then {len(schemes) * len(seeds)} to compare.", flush=True)
        os.environ[JOB_COUNT_VARIABLE] = str(len(jobs) + len(schemes) * len(seeds))
        os.environ[SWEPT_KEYS_VARIABLE] = ",".join(["pos", *self.grid, "seed"])
        losses = [job.return_value for job in self.launcher.launch(jobs, initial_job_idx=0)]
        if failed := losses.count(None):
            raise RunError(f"{failed} of {len(losses)} trials have no result, so the best of each scheme is not known")
        best = _best(trials, losses)
        self._write(folder / "search.json", trials, losses, best, " ".join(sorted(filter(_affects_curve, fixed))))
        for scheme in schemes:
            if scheme not in best:
                print(f"{scheme} is not compared: all of its trials diverged.", file=sys.stderr, flush=True)
        for scheme, trial in best.items():
            edge = ", ".join(_edges(trial, self.grid))
            warning = f" (at the edge of the grid in {edge}: a wider grid may be better)" if edge else ""
            print(f"Best {scheme}: {', '.join(_as_arguments(trial)[1:])}{warning}", flush=True)  # [0] is pos
        final = [[*fixed, *_as_arguments(trial), f"seed={seed}"] for seed in seeds for trial in best.values()]
        self.launcher.launch(final, initial_job_idx=len(jobs))

    def _write(
        self,
        file: Path,
        trials: Sequence[dict[str, Any]],
        losses: Sequence[float],
        best: Mapping[str, dict[str, Any]],
        overrides: str,
    ) -> None:
        """Write this search's trials, after those of other schemes from earlier searches with the same overrides."""
        rows = [
            {
                **trial,
                "seed": self.search_seed,
                "overrides": overrides,
                "val_loss": loss if math.isfinite(loss) else None,
                "best": trial in best.values(),
                "edge": _edges(trial, self.grid) if trial in best.values() else [],
            }
            for trial, loss in zip(trials, losses, strict=True)
        ]
        schemes = {trial["pos"] for trial in trials}
        atomic_write(file, json.dumps([*_of_other_schemes(file, schemes, overrides), *rows], indent=1) + "\n")

    def _requested(self, arguments: Sequence[str]) -> tuple[list[str], list[str], list[str]]:
        """The schemes and seeds to compare, and the overrides of every run; their keys leave the grid."""
        given = overrides_of(self.configuration, arguments)
        for key in ("pos", "seed"):
            if key not in given:
                raise UserError(f"{key} is missing: this search compares pos=none,rope,... over seed=0,1,...")
        schemes, seeds = values_of(given.pop("pos")), values_of(given.pop("seed"))
        if swept := [key for key, override in given.items() if override.is_sweep_override()]:
            raise UserError(f"{swept[0]} cannot be swept here: experiment=tuned compares pos over seed")
        self.grid = {key: tried for key, tried in self.grid.items() if key not in given}
        if str(self.search_seed) in seeds:
            raise UserError(f"seed={self.search_seed} is used by the search: use other seeds, or set search_seed")
        fixed = [override.input_line or "" for override in given.values()]
        others = self.context.config_loader.get_group_options("pos")
        for key in self.grid:  # a typo, if no scheme has it, compared or not
            if not any(key in self._keys(scheme, fixed) for scheme in (*schemes, *others)):
                raise UserError(f"hydra.sweeper.grid: {key} is not a key with any pos")
        return schemes, seeds, fixed

    def _trials(self, scheme: str, fixed: Sequence[str]) -> list[dict[str, Any]]:
        """Every grid point of the keys that this scheme has."""
        keys = self._keys(scheme, fixed)
        points = itertools.product(*(self.grid[key] for key in keys))
        return [{"pos": scheme, **dict(zip(keys, point, strict=True))} for point in points]

    def _keys(self, scheme: str, fixed: Sequence[str]) -> list[str]:
        """The keys of the grid that this scheme has."""
        config = self._composed([*fixed, f"pos={scheme}"])
        absent = object()
        return [key for key in self.grid if OmegaConf.select(config, key, default=absent) is not absent]

    def _composed(self, overrides: Sequence[str]) -> DictConfig:
        """The configuration of a job."""
        config = self.context.config_loader.load_sweep_config(self.configuration, list(overrides))
        with open_dict(config):
            del config["hydra"]
        return config


def _check_grid(grid: Any) -> None:
    if not isinstance(grid, dict) or not all(isinstance(tried, list) and tried for tried in grid.values()):
        raise UserError(f"hydra.sweeper.grid={grid} must list one or more values for each key")
    for key, tried in grid.items():
        if key == "pos" or key.partition(".")[0] in SHARED:
            raise UserError(f"hydra.sweeper.grid={grid} cannot vary {key}")
        for value in tried:
            if not _reads_back(key, value):
                raise UserError(
                    f"hydra.sweeper.grid={grid} cannot have {value!r} for {key}: only numbers, words and lists"
                )


def _reads_back(key: str, value: Any) -> bool:
    """Whether Hydra reads the value back from a command line."""
    try:
        return bool(OverridesParser.create().parse_override(*_as_arguments({key: value})).value() == value)
    except HydraException:
        return False


def _as_arguments(values: Mapping[str, Any]) -> list[str]:
    """Overrides that Hydra reads as these values: a list or null not as Python writes it."""
    return [f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in values.items()]


def _best(trials: Sequence[dict[str, Any]], losses: Sequence[float]) -> dict[str, dict[str, Any]]:
    """The trial with the lowest loss of each scheme; schemes whose trials all diverged are left out."""
    best: dict[str, tuple[float, dict[str, Any]]] = {}
    for trial, loss in zip(trials, losses, strict=True):
        # NaN compares false, and so is never the best.
        if loss < best.get(trial["pos"], (float("inf"), trial))[0]:
            best[trial["pos"]] = (loss, trial)
    return {scheme: trial for scheme, (_, trial) in best.items()}


def _of_other_schemes(file: Path, schemes: Collection[str], overrides: str) -> list[Mapping[str, Any]]:
    """The trials of earlier searches in the same folder with the same overrides, whose best runs are still compared."""
    from posenc.analysis.sweep import read_search

    with suppress(UserError):  # a damaged file is written anew
        return [
            trial for trial in read_search(file) if trial["pos"] not in schemes and trial.get("overrides") == overrides
        ]
    return []


def _affects_curve(override: str) -> bool:
    return re.split(r"[.=]", override.lstrip("+"))[0] not in WITHOUT_EFFECT


def _edges(trial: Mapping[str, Any], grid: Mapping[str, Sequence[Any]]) -> list[str]:
    """The keys whose value is the first or last of the grid."""
    return [key for key in trial if len(grid.get(key, ())) > 2 and trial[key] in (grid[key][0], grid[key][-1])]
