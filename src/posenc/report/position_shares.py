"""The share of the position encoding in the input, as a table of the claim map's page."""

from collections.abc import Sequence
from statistics import fmean

from posenc.analysis.results import ShareRow, by_arm
from posenc.report.tables import Table, section


def position_shares(rows: Sequence[ShareRow]) -> list[str]:
    """The paragraphs on the runs of a corpus in shares.csv, one row per arm, in Markdown."""
    cells = []
    for runs in by_arm(rows):
        _, setting, pos, tokens, lr, scale, base = runs[0].arm
        named = (setting, pos, scale, base, f"{lr:g}", f"{tokens:,}", ", ".join(str(run.seed) for run in runs))
        cells.append((*named, f"{fmean(run.first for run in runs):.2f}", f"{fmean(run.last for run in runs):.2f}"))
    head = ("setting", "scheme", "amplitude", "base", "learning rate", "tokens", "seeds", "first", "last")
    return section(
        Table(head, cells),
        "### Share of the position encoding",
        "The share of the first norm's input variance that is due to an additive position encoding, at the first and "
        "the last validation of a run, mean over seeds. `shares.csv` has that of each seed.",
    )
