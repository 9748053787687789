"""What models gain where a window repeats itself, as a table."""

from collections.abc import Sequence

from posenc.analysis.results import CopyingRow, DistanceRow, RemovedHeadRow, by_arm
from posenc.report.claim_map.tables import ARM_COLUMNS, arm_cells
from posenc.report.tables import Table, section


def copying(rows: Sequence[CopyingRow]) -> list[str]:
    """The paragraphs on what models gain where a window repeats itself, one row per arm, in Markdown."""
    cells = []
    for own in by_arm(rows):
        arm = own[0]
        cells.append(
            [
                *arm_cells(arm, [run.seed for run in own]),
                ", ".join(f"{run.second - run.first:+.2f}" for run in own),
                ", ".join(f"{run.new:.3f}" for run in own),
                ", ".join(f"{run.seen:.3f}" for run in own),
                f"{arm.share:.0%}",
                ", ".join(f"{run.own:.3f}" for run in own),
                ", ".join(f"{run.foreign:.3f}" for run in own),
            ]
        )
    head = (
        *(*ARM_COLUMNS, "second minus first occurrence"),
        *("novel context", "repeated context", "share", "own text before", "other text before"),
    )
    return section(
        Table(head, cells),
        "### Copying from the context",
        "A model with induction heads (Olsson et al. 2022) predicts a token better if the tokens before it have "
        "occurred before. Second minus first occurrence: the loss on text that is repeated in the window, at its "
        "second occurrence, minus that at its first. Novel and repeated context: the loss on the validation windows, "
        "for targets whose three preceding tokens have not occurred before in the window, and for the rest "
        "(their share is given). Own and other text before: the loss on the targets in the last quarter of these "
        "windows, as they are, and with all but the last eighth of a window before that quarter replaced by text from "
        "elsewhere in the split. In nats per token, by seed.",
    )


def distances(rows: Sequence[DistanceRow]) -> list[str]:
    """The paragraphs on what a copy gains at each distance, one row per arm, in Markdown; contexts may differ."""
    apart = sorted({row.distance for row in rows} - {0})
    cells = []
    for own in by_arm(rows):
        losses = {(row.distance, row.seed): row.val_loss for row in own}
        seeds = sorted({row.seed for row in own})
        gains = [[losses[far, seed] - losses[0, seed] for seed in seeds if (far, seed) in losses] for far in apart]
        cells.append(
            [*arm_cells(own[0], seeds), *(", ".join(f"{gain:+.2f}" for gain in of_distance) for of_distance in gains)]
        )
    head = (*ARM_COLUMNS, *(f"{far} back" for far in apart))
    return section(
        Table(head, cells),
        "The same passage, with a copy of it at several distances: the loss on the second half of the last eighth of "
        "each validation window with a copy of that eighth so many tokens earlier, minus that without it. "
        "In nats per token, by seed; only for runs whose checkpoints still existed when this measure was added.",
    )


def removed_heads(rows: Sequence[RemovedHeadRow]) -> list[str]:
    """The paragraphs on what models copy without the head that matters most for it, one row per arm, in Markdown."""
    cells = []
    for own in by_arm(rows):
        seeds = sorted({row.seed for row in own if row.layer})
        whole = [row for row in own if not row.layer and row.seed in seeds]
        ordered = [
            sorted((row for row in own if row.seed == seed and row.layer), key=lambda row: row.first - row.second)
            for seed in seeds
        ]
        most, following = [heads[0] for heads in ordered], [head for heads in ordered for head in heads[1:2]]
        cells.append(
            [
                *arm_cells(own[0], seeds),
                *(", ".join(f"{row.second - row.first:+.2f}" for row in found) for found in (whole, most, following)),
                ", ".join(f"{row.layer}.{row.head}" for row in most),
                *(", ".join(f"{row.new:.3f}" for row in found) for found in (whole, most)),
                *(", ".join(f"{row.seen:.3f}" for row in found) for found in (whole, most)),
            ]
        )
    head = (
        *(*ARM_COLUMNS, "second minus first occurrence"),
        *("without one head", "without another", "that head", "novel context", "without that head"),
        *("repeated context", "without that head"),
    )
    return section(
        Table(head, cells),
        "Heads removed at evaluation: the columns of the first table, on fewer windows, with all heads and with the "
        "output of one attention head set to zero. That head (layer.head, from 1) is the one without which the second "
        "occurrence gains least; 'another' is the next such head. In nats per token, by seed; only for runs whose "
        "checkpoints still existed when this measure was added. `removed_heads.csv` has every head.",
    )
