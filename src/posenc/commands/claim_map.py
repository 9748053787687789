"""Update and plot the claim map: `python -m posenc.claim_map runs/claim_map`."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posenc.commands.study import CACHE, add_evaluations, add_rows, command_line, only
from posenc.config.arguments import Arguments
from posenc.config.quoting import folder_override, quoted
from posenc.errors import printable

if TYPE_CHECKING:
    from posenc.analysis.study import Finished, Study

ORDERS = (2, 3, 4, 5)
"""Orders of the n-gram models on the upper axis, as far as the vocabulary allows."""

MEASURES = {
    "--copying": "measure how much finished models copy from their context",
    "--heads": "measure how much finished models copy with each of their attention heads removed",
    "--paired": "evaluate finished models in the default setting on the whole validation split, for the "
    "standard errors of differences",
    "--test": "evaluate finished models in the default setting, except trials, on the test split",
}


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = Arguments(prog="posenc claim_map", description=__doc__, parents=[CACHE])
    parser.add_argument(
        "--ngrams",
        metavar="KEY=VALUE",
        nargs="*",
        type=quoted,
        help="measure n-gram models of the text given by these overrides",
    )
    with command_line(parser, Path("results/claim-map"), MEASURES, arguments) as (given, study, finished):
        from posenc.analysis.results import ShareRow, share_rows

        add_rows(study, finished, "shares.csv", ShareRow, share_rows)
        if given.ngrams is not None:
            measure_ngrams(study, [*given.ngrams, folder_override("cache", given.cache.absolute())])
        if given.copying or given.heads or given.paired or given.test:
            measure_models(study, finished, given)
        if given.todo is None:
            from posenc.report.claim_map.page import write

            if left_out := unplanned(study):
                notice = f"No block of plan.yaml asks for these runs, which the map leaves out: {'; '.join(left_out)}"
                print(printable(notice), file=sys.stderr)
            print(f"Results: {write(study)}")


def unplanned(study: "Study") -> list[str]:
    """The runs with a setting, hyperparameters, a seed or a budget that no block of the plan has."""
    from posenc.analysis.run_key import BACKBONE

    planned = {result.key for corpus in study.corpora for result in study.planned(corpus)}
    runs = []
    for result in study.results:
        if result.key not in planned:
            chosen = {"optim.lr": f"{result.lr:g}", "pos.scale": result.scale, "pos.base": result.base}
            overrides = " ".join(f"{name}={value}" for name, value in chosen.items() if value)
            setting = "" if result.setting == BACKBONE else f"{result.setting} "
            run = f"{setting}pos={result.pos} {overrides} seed={result.seed}"
            runs.append(f"{result.corpus} {run}, {result.tokens:,} tokens")
    return runs


def measure_ngrams(study: "Study", overrides: Sequence[str]) -> None:
    """Write the losses of n-gram models on the validation windows of the experiment with overrides to ngrams.csv.

    They are printed too.
    """
    from posenc.analysis.results import NGramRow, table
    from posenc.config.instantiate import build
    from posenc.objectives.ngram import KEY_BITS, ngram_losses
    from posenc.storage.atomic import atomic_write
    from posenc.storage.csv_files import read_rows
    from posenc.training.experiment import Experiment

    config, choices = study.configuration(overrides)
    experiment = Experiment.of(config)
    prepared = experiment.prepare(build(config, "data"), choices["data"])
    windows, _ = experiment.validation(prepared)
    vocab_size = experiment.tokenizer.vocab_size
    orders = [order for order in ORDERS if order * (vocab_size - 1).bit_length() <= KEY_BITS]
    losses = ngram_losses(prepared.train.ids, windows.numpy(), orders, vocab_size)
    name = study.corpus(overrides)
    others = [row for row in read_rows(study.folder / "ngrams.csv", NGramRow) if row.corpus != name]
    rows = [NGramRow(name, order, round(loss, 5)) for order, loss in losses.items()]
    atomic_write(study.folder / "ngrams.csv", table(NGramRow, [*others, *rows]))
    printed = ", ".join(f"{row.val_loss:.3f} for n = {row.order}" for row in rows)
    print(f"Nats per token of n-gram models on {study.title(name)}: {printed}.", file=sys.stderr)


def measure_models(study: "Study", finished: "Sequence[Finished]", given: Any) -> None:
    """Add what the options ask for of each finished run to the study's tables."""
    from posenc.analysis.results import BlockRow, CopyingRow, DistanceRow, RemovedHeadRow
    from posenc.analysis.run_key import BACKBONE
    from posenc.evaluation import ablation, blocks, copying

    def add(name: str, kind: Any, evaluate: Any, runs: "Sequence[Finished]" = finished, split: str = "valid") -> None:
        add_evaluations(study, runs, given.cache, name, kind, evaluate, split)

    def by_block(*of: Any) -> list[tuple[list[float]]]:
        return [([round(loss, 4) for loss in blocks.block_losses(*of)],)]

    if given.copying:
        add("copying.csv", CopyingRow, lambda *of: [copying.copying(*of)])
        add("distances.csv", DistanceRow, lambda *of: copying.at_distances(*of).items())
    if given.heads:
        add("removed_heads.csv", RemovedHeadRow, ablation.copying_without_heads)
    if given.paired:
        add("blocks.csv", BlockRow, by_block, only(finished, "--paired", lambda result: result.in_default_setting))
    if given.test:
        add("test.csv", BlockRow, by_block, only(finished, "--test", lambda result: result.setting == BACKBONE), "test")


if __name__ == "__main__":
    main()
