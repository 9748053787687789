"""Keep and draw the claim map: `python -m posenc.claim_map runs/claim_map`."""

import itertools
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from posenc.config.command_line import Arguments, one_sentence_errors
from posenc.config.files import CONF

RESULTS = Path("results/claim-map")
EXPERIMENT = "experiment=claim_map"
ARM, BASELINE, OTHERS = "rope", "sinusoidal", ("learned", "t5", "alibi", "none")


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = Arguments(prog="posenc claim_map", description=__doc__)
    parser.add_argument("folders", nargs="*", type=Path, help="runs to take in: finished ones, at any depth")
    parser.add_argument(
        "--results", type=Path, default=RESULTS, help="holds plan.yaml and runs.csv; default: %(default)s"
    )
    parser.add_argument("--todo", metavar="KEY=VALUE", nargs="*", help="print the runs that are missing, for train.py")
    arguments = sys.argv[1:] if arguments is None else arguments
    with one_sentence_errors(arguments):
        given = parser.parse_args(arguments)
        take_in(given.folders, given.results)
        if given.todo is None:
            draw(given.results)
        else:
            print(*todo(given.results, given.todo), sep="\n")


def take_in(folders: Sequence[Path], results: Path) -> None:
    """Add the finished runs of some folders to runs.csv and their curves to curves.csv; what is there stays.

    Raises:
        UserError: if a file cannot be read.
    """
    from posenc.analysis.claim_map import curve_rows, read_results, result_of, rows
    from posenc.analysis.runs import finished_runs
    from posenc.storage.atomic import atomic_write
    from posenc.storage.csv_files import read_csv, to_csv

    known = {result.key: result for result in read_results(results / "runs.csv")}
    curves: list[Mapping[str, Any]] = list(read_csv(results / "curves.csv"))
    backbone, search_seeds = _settings([EXPERIMENT]), _plan(results)["search_seeds"]
    for run in (run for folder in folders for run in finished_runs(folder)):
        result = result_of(run, backbone, search_seeds)
        if result.key not in known:
            known[result.key] = result
            curves += curve_rows(run, result)
    if folders and known:
        table = rows(known.values())
        atomic_write(results / "runs.csv", to_csv(list(table[0]), table))
        atomic_write(results / "curves.csv", to_csv(list(curves[0]), curves))


def todo(results: Path, overrides: Sequence[str] = ()) -> Iterator[str]:
    """The arguments of train.py for every run of the plan that runs.csv does not have, in the plan's order."""
    from posenc.analysis.claim_map import key_of, read_results

    plan = _plan(results)
    known = {result.key for result in read_results(results / "runs.csv")}
    backbone = _settings([EXPERIMENT])
    for block in plan["blocks"]:
        for units, seed, arm in itertools.product(block["units"], block["seeds"], block["arms"]):
            line = [EXPERIMENT, *arm.split(), f"steps={units * plan['unit']}", f"seed={seed}", *overrides]
            setting = _settings(line)
            corpora = {key[0] for key in known}
            keys = {key_of(setting, corpus, backbone, plan["search_seeds"]) for corpus in corpora}
            if not keys & known:
                yield shlex.join(line)


def draw(results: Path) -> None:
    """Draw the claim map of every corpus in runs.csv, and write it up in README.md."""
    from posenc.analysis.claim_map import BACKBONE, advantage, read_results
    from posenc.report import claim_map
    from posenc.storage.atomic import atomic_write

    every = read_results(results / "runs.csv")
    text = ["# The claim map", claim_map.INTRODUCTION]
    for corpus in sorted({result.corpus for result in every}):
        here = [result for result in every if result.corpus == corpus]
        backbone = [result for result in here if result.setting == BACKBONE]
        points = advantage(backbone, ARM, BASELINE)
        others = {other: advantage(backbone, ARM, other) for other in OTHERS}
        text += [f"## {corpus}", *claim_map.write_up(here, points)]
        if any(point.by_seed for point in points):
            name = f"{corpus}.png"
            claim_map.figure(points, others, BASELINE, {}).savefig(results / name, dpi=160)
            text.append(f"![N over the baseline's tokens]({name})")
    atomic_write(results / "README.md", "\n\n".join(text) + "\n")
    print(f"Results: {results / 'README.md'}")


def _settings(overrides: Sequence[str]) -> dict[str, Any]:
    """The configuration that train.py would be given, flat, with the choices made."""
    from omegaconf import OmegaConf

    from posenc.analysis.runs import canonical, flat
    from posenc.config.compose import composed

    configuration, choices = composed(CONF, overrides)
    config: Any = OmegaConf.to_container(configuration, resolve=True)
    setting = {key: canonical(value) for key, value in flat({**config, "choices": choices})}
    return {**setting, "pos": choices["pos"], "seed": config["seed"]}


def _plan(results: Path) -> dict[str, Any]:
    import yaml

    from posenc.errors import UserError

    try:
        return dict(yaml.safe_load((results / "plan.yaml").read_text()))
    except (OSError, yaml.YAMLError, TypeError, ValueError) as error:
        raise UserError(f"--results={results}: plan.yaml cannot be read: {error}") from error


if __name__ == "__main__":
    main()
