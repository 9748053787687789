"""Redraw the figures of these results from their curves.csv: `python results/kjv-tiny-cpu/redraw.py`.

The run directories are not kept. Of what a figure needs, curves.csv lacks the loss of the n-gram model alone; it is
given here as the READMEs have it.
"""

from pathlib import Path

import numpy as np

from posenc.analysis.comparison import compare
from posenc.analysis.runs import AXES, MEASURES, Run
from posenc.analysis.sweep import Sweep
from posenc.report import figures
from posenc.storage.csv_files import read_csv

TUNED = ("amplitude", "roformer-performer-tuned")
"""The folders whose sinusoid has an amplitude of its own."""

BIGRAM, UNIGRAM = {"bigram_loss": 2.38}, {"unigram_loss": 2.81}


def runs(folder: Path) -> tuple[Run, ...]:
    """The runs of one curves.csv."""
    rows: dict[tuple[str, str, int], list[dict[str, str]]] = {}
    for row in read_csv(folder / "curves.csv"):
        rows.setdefault((row["setting"], row["scheme"], int(row["seed"])), []).append(row)
    ngram = UNIGRAM if folder.name == "roformer-mlm" else BIGRAM
    found = []
    for (setting, scheme, seed), own in rows.items():
        curve = {name: np.array([float(row[name]) for row in own]) for name in (*AXES, *MEASURES)}
        overrides = dict(word.split("=") for word in setting.split())
        # A table has the last two; no figure does.
        summary = {"val_loss": float(curve["val_loss"][-1]), **ngram, "tokens_per_s": 1, "parameters": 1}
        found.append(Run(str(folder), scheme, seed, int(curve["step"][-1]), overrides, curve, summary))
    return tuple(found)


if __name__ == "__main__":
    for file in sorted(Path(__file__).parent.glob("*/curves.csv")):
        swept = runs(file.parent)
        baseline = "sinusoidal" if file.parent.name in TUNED else "sinusoidal_matched"
        figures.save_all(compare(Sweep(file.parent.name, swept), baseline), file.parent)
