"""Validation's own error, as a table of the claim map's page."""

from collections.abc import Mapping, Sequence

from posenc.analysis.results import BlockRow, Result
from posenc.analysis.validation_error import differences
from posenc.report.formatting import hyperparameters
from posenc.report.tables import Table, markdown


def validation_error(
    backbone: Sequence[Result], alternatives: Mapping[str, Sequence[Result]], rows: Sequence[BlockRow]
) -> list[str]:
    """The paragraphs on the runs of a corpus in blocks.csv, one row per pair of arms, in Markdown.

    Raises:
        UserError: if the runs have different numbers of blocks.
    """
    found = differences(backbone, alternatives, rows)
    if not found:
        return []
    cells = []
    for one in found:
        own, arm = one.pairs[0]
        seeds = ", ".join(str(run.seed) for run, _ in one.pairs)
        precise = "yes" if one.precise else "no"
        cells.append(
            [
                *(own.pos, hyperparameters(own), hyperparameters(arm), f"{own.tokens:,}", seeds),
                *(f"{one.value:+.4f}", f"{one.se:.4f}", precise, f"{one.reported:+.4f}"),
            ]
        )
    head = (
        *("scheme", "its settings", "RoPE's", "tokens", "seeds", "minus RoPE's, nats", "standard error"),
        *("under a tenth", "minus RoPE's in training"),
    )
    return [
        "### Validation error",
        "The final loss on the whole validation split, minus that of RoPE's run of the same seed, mean over seeds. Its "
        f"standard error is that over {len(rows[0].losses):,} blocks of consecutive windows, the same for all runs; it "
        "covers the validation text, not seeds. The last column has the same difference on the windows of the last "
        "validation in training, as in the other tables; these are fewer. The standard error is under a tenth of the "
        f"difference in {sum(one.precise for one in found)} of {len(found)} rows.",
        markdown(Table(head, cells)),
    ]
