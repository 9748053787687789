"""Update and plot the claim map: `python -m posenc.claim_map runs/claim_map`."""

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from posenc.commands.study import Study, command_line
from posenc.config.command_line import Arguments

if TYPE_CHECKING:
    from posenc.analysis.results import Result

ARM, BASELINE, OTHERS = "rope", "sinusoidal", ("learned", "t5", "alibi", "none")

ORDERS = (2, 3, 4, 5)
"""Orders of the n-gram models on the upper axis."""


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = Arguments(prog="posenc claim_map", description=__doc__)
    parser.add_argument(
        "--ngrams",
        metavar="KEY=VALUE",
        nargs="*",
        help="measure n-gram models of the text given by these overrides",
    )
    with command_line(parser, Path("results/claim-map"), arguments) as (given, study):
        if given.ngrams is not None:
            measure_ngrams(study, given.ngrams)
        if given.todo is None:
            draw(study)
            print(f"Results: {study.folder / 'README.md'}")


def measure_ngrams(study: Study, overrides: Sequence[str]) -> None:
    """Write the losses of n-gram models on the runs' validation windows to ngrams.csv.

    Args:
        study: its experiment determines the windows.
        overrides: of the experiment, such as the text.

    Raises:
        UserError: if the text cannot be read.
    """
    from posenc.config.instantiate import build
    from posenc.objectives.ngram import ngram_losses
    from posenc.storage.atomic import atomic_write
    from posenc.storage.csv_files import read_csv, to_csv
    from posenc.training.experiment import Experiment

    config, choices = study.configuration(overrides)
    experiment = Experiment.of(config)
    prepared = experiment.prepare(build(config, "data"), choices["data"])
    windows, _ = experiment.validation(prepared)
    losses = ngram_losses(prepared.train.ids, windows.numpy(), ORDERS, experiment.tokenizer.vocab_size)
    name = study.corpus(overrides)
    others = [row for row in read_csv(study.folder / "ngrams.csv") if row["corpus"] != name]
    rows = [{"corpus": name, "order": order, "val_loss": round(loss, 5)} for order, loss in losses.items()]
    atomic_write(study.folder / "ngrams.csv", to_csv(list(rows[0]), [*others, *rows]))


def draw(study: Study) -> None:
    """Plot the claim map of every corpus in runs.csv, and write README.md."""
    from posenc.analysis.search import searches
    from posenc.report import claim_map, figures, search
    from posenc.storage.atomic import atomic_write

    text = ["# The claim map", claim_map.INTRODUCTION]
    for corpus in study.corpora:
        results = [result for result in study.results if result.corpus == corpus]
        text += [f"## {study.title(corpus)}", *_plot_backbone(study, corpus, results)]
        text += _schemes(study, corpus)
        for tokens, trials in searches(results).items():
            name = f"search-{corpus}-{tokens}.png"
            figures.save(search.figure(trials), study.folder / name)
            text += [f"### Hyperparameter search with {tokens:,} tokens per run"]
            text += [search.table(trials), f"![Expected best of k trials]({name})"]
    atomic_write(study.folder / "README.md", "\n\n".join(text) + "\n")


def backbone_of(study: Study, corpus: str) -> "tuple[list[Result], dict[str, list[Result]]]":
    """The backbone's results on a corpus, and those of the plan's alternatives to the baseline by name."""
    from posenc.analysis.results import BACKBONE

    alternatives: dict[str, list[Result]] = {}
    for block in study.plan["blocks"]:
        if "alternative" in block:
            name = f"{BASELINE}, {block['alternative']}"
            alternatives.setdefault(name, []).extend(study.of_block(block, corpus))
    apart = {result.key for result in itertools.chain(*alternatives.values())}
    results = (result for result in study.results if result.corpus == corpus and result.setting == BACKBONE)
    return [result for result in results if result.key not in apart], alternatives


def _plot_backbone(study: Study, corpus: str, results: "Sequence[Result]") -> list[str]:
    """Plot N over the tokens of one corpus, with all of its results; returns the paragraphs on it."""
    from posenc.analysis.claim_map import advantage
    from posenc.analysis.results import BACKBONE, SEARCH
    from posenc.report import budgets, claim_map, figures
    from posenc.storage.csv_files import read_csv

    backbone, alternatives = backbone_of(study, corpus)
    arm = [result for result in backbone if result.pos == ARM]
    points = advantage(backbone, ARM, BASELINE)
    others = {other: advantage(backbone, ARM, other) for other in OTHERS}
    others = {other: found for other, found in others.items() if len(found) > 1}  # the others are in the scheme table
    others |= {name: advantage([*arm, *found], ARM, BASELINE) for name, found in alternatives.items()}
    written = claim_map.write_up(results, points, others)
    if not any(0 < value < math.inf for point in points for value in point.by_seed.values()):
        return written
    rows = [row for row in read_csv(study.folder / "ngrams.csv") if row["corpus"] == corpus]
    ngrams = {int(row["order"]): float(row["val_loss"]) for row in rows}
    settings = sorted({result.setting for result in results} - {BACKBONE, SEARCH})
    factors = {
        setting: advantage([result for result in results if result.setting == setting], ARM, BASELINE)
        for setting in settings
    }
    figures.save(claim_map.figure(points, others, factors, BASELINE, ngrams), study.folder / f"{corpus}.png")
    both = [result for result in backbone if result.pos in (ARM, BASELINE)]
    figures.save(budgets.figure(both, points, ARM, BASELINE), study.folder / f"losses-{corpus}.png")
    drawn = f"![Final loss over the tokens of a run](losses-{corpus}.png)"
    return [drawn, *written, f"![N over the baseline's tokens]({corpus}.png)"]


def _schemes(study: Study, corpus: str) -> list[str]:
    """The paragraphs on the budgets with other schemes than the two of the map."""
    from posenc.report import schemes

    backbone, _ = backbone_of(study, corpus)
    unit = min((result.tokens for result in backbone), default=0)
    text = []
    for tokens in sorted({result.tokens for result in backbone if result.pos not in (ARM, BASELINE)}):
        text += [f"### Every scheme with {tokens:,} tokens per run", schemes.table(backbone, ARM, tokens, unit)]
    return text


if __name__ == "__main__":
    main()
