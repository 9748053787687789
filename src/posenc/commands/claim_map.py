"""Update and plot the claim map: `python -m posenc.claim_map runs/claim_map`."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posenc.commands.study import CACHE, add_evaluations, add_rows, command_line, in_default_setting
from posenc.config.command_line import Arguments, folder_override, quoted
from posenc.errors import printable

if TYPE_CHECKING:
    from posenc.analysis.study import Finished, Study

ORDERS = (2, 3, 4, 5)
"""Orders of the n-gram models on the upper axis, as far as the vocabulary allows."""

MEASURED = {
    "--copying": "measure what finished models gain where a window repeats itself",
    "--heads": "measure what finished models copy without each of their attention heads",
    "--paired": "evaluate finished models on the whole validation split, for the errors of differences",
    "--test": "evaluate finished models, except those of trials, on the test split",
}
"""What is measured on models, beside their final loss, by option."""


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
    for option, measured in MEASURED.items():
        parser.add_argument(option, action="store_true", help=f"also {measured}")
    with command_line(parser, Path("results/claim-map"), arguments) as (given, study, finished):
        from posenc.analysis.results import ShareRow, share_rows
        from posenc.analysis.run_key import BACKBONE

        add_rows(study, finished, "shares.csv", ShareRow, share_rows)
        if given.ngrams is not None:
            measure_ngrams(study, [*given.ngrams, folder_override("cache", given.cache.absolute())])
        if given.copying:
            measure_copying(study, finished, given.cache)
        if given.heads:
            measure_heads(study, finished, given.cache)
        if given.paired:
            measure_blocks(study, in_default_setting(finished), given.cache, "blocks.csv", "valid")
        if given.test:
            final = [(run, result) for run, result in finished if result.setting == BACKBONE]
            measure_blocks(study, final, given.cache, "test.csv", "test")
        if given.todo is None:
            from posenc.report.claim_map import write

            if left_out := unplanned(study):
                notice = f"No block of plan.yaml asks for these runs, which the map leaves out: {'; '.join(left_out)}"
                print(printable(notice), file=sys.stderr)
            print(f"Results: {write(study)}")


def unplanned(study: "Study") -> list[str]:
    """The runs in the backbone's setting with hyperparameters, a seed or a budget that no block of the plan has."""
    from posenc.analysis.corpus_map import corpus_map

    drawn = {result.key for corpus in study.corpora for result in corpus_map(study, corpus).results}
    runs = []
    for result in study.results:
        if result.key not in drawn:
            chosen = {"optim.lr": f"{result.lr:g}", "pos.scale": result.scale, "pos.base": result.base}
            overrides = " ".join(f"{name}={value}" for name, value in chosen.items() if value)
            runs.append(f"{result.corpus} pos={result.pos} {overrides} seed={result.seed}, {result.tokens:,} tokens")
    return runs


def measure_ngrams(study: "Study", overrides: Sequence[str]) -> None:
    """Write the losses of n-gram models on the validation windows of the experiment with overrides to ngrams.csv."""
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


def measure_copying(study: "Study", finished: "Sequence[Finished]", cache: Path) -> None:
    """Add what each finished run gains where its window repeats itself to copying.csv and distances.csv."""
    from posenc.analysis.results import CopyingRow, DistanceRow
    from posenc.evaluation.copying import at_distances, copying

    add_evaluations(study, finished, cache, "copying.csv", CopyingRow, lambda *of: [astuple(copying(*of))])
    add_evaluations(study, finished, cache, "distances.csv", DistanceRow, lambda *of: at_distances(*of).items())


def measure_heads(study: "Study", finished: "Sequence[Finished]", cache: Path) -> None:
    """Add what each finished run copies without each of its attention heads to removed_heads.csv."""
    from posenc.analysis.results import RemovedHeadRow
    from posenc.evaluation.ablation import copying_without_heads

    def measured(*of: Any) -> Iterator[tuple[float, ...]]:
        return ((*head, *losses) for head, losses in copying_without_heads(*of).items())

    add_evaluations(study, finished, cache, "removed_heads.csv", RemovedHeadRow, measured)


def measure_blocks(study: "Study", finished: "Sequence[Finished]", cache: Path, name: str, split: str) -> None:
    """Add the loss of each finished run on each block of a split to a table."""
    from posenc.analysis.results import BlockRow
    from posenc.evaluation.blocks import block_losses

    def measured(*of: Any) -> list[tuple[list[float]]]:
        return [([round(loss, 4) for loss in block_losses(*of)],)]

    add_evaluations(study, finished, cache, name, BlockRow, measured, split)


if __name__ == "__main__":
    main()
