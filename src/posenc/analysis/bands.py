"""Curves over seeds: the mean, its band, and the look that a scheme has in every figure."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from posenc.analysis.comparison import Arm, Panel, common_levels, speed_up_by_level
from posenc.analysis.convergence import mean

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Band:
    """A mean over seeds and its 95 % interval; without one (a single seed), low and high are the mean."""

    x: Array
    middle: Array
    low: Array
    high: Array


@dataclass(frozen=True)
class Look:
    """Colour and dash of a scheme: told apart by colour-blind people (Okabe and Ito 2008) and in grey."""

    colour: str
    dash: str


LOOKS: Mapping[str, Look] = {
    "none": Look("#767676", "dot"),
    "learned": Look("#009E73", "dashdot"),
    "sinusoidal": Look("#0072B2", "dash"),
    "rope": Look("#D55E00", "solid"),
    "alibi": Look("#CC79A7", "solid"),
    "t5": Look("#CC79A7", "dash"),
    "xpos": Look("#E69F00", "solid"),
    "rope_partial": Look("#E69F00", "dash"),
    "rope_bounded": Look("#E69F00", "dot"),
}
_OTHERS = [Look(colour, dash) for dash in ("solid", "dash", "dot", "dashdot") for colour in ("#56B4E9", "#000000")]


def looks(schemes: Sequence[str]) -> dict[str, Look]:
    """The look of each scheme: always the same for those that come with the project, from a list for the rest."""
    others = itertools.cycle(_OTHERS)
    return {scheme: LOOKS.get(scheme) or next(others) for scheme in sorted(set(schemes))}


def band(arm: Arm, measure: str, axis: str = "step") -> Band:
    """A measure over an axis, mean over the arm's seeds at the same steps."""
    steps = sorted(set.intersection(*({int(step) for step in run.curve["step"]} for run in arm.runs)))
    rows = [np.isin(run.curve["step"], steps) for run in arm.runs]
    values = np.stack([run.curve[measure][row] for run, row in zip(arm.runs, rows, strict=True)])
    x = np.mean([run.curve[axis][row] for run, row in zip(arm.runs, rows, strict=True)], axis=0)
    return over_seeds(x, values)


def over_seeds(x: Array, values: Array) -> Band:
    """x (points,), values (seeds, points); a point that some seed lacks is left out."""
    known = np.isfinite(values).all(axis=0)
    estimates = [mean(list(column)) for column in values[:, known].T]
    middle = np.array([estimate.value for estimate in estimates])
    low = np.array([estimate.value if estimate.low is None else estimate.low for estimate in estimates])
    high = np.array([estimate.value if estimate.high is None else estimate.high for estimate in estimates])
    return Band(x[known], middle, low, high)


def speed_up_band(arm: Arm, panel: Panel) -> Band:
    """Speed-up in steps over the baseline against the loss level, where every seed gets to."""
    baseline = next(other for other in panel.arms if other.scheme == panel.baseline)
    levels = common_levels(baseline, panel.budget)
    estimates = speed_up_by_level(arm, baseline, levels)
    kept = [(level, e) for level, e in zip(levels, estimates, strict=True) if not e.missed]
    return Band(
        np.array([level for level, _ in kept]),
        np.array([e.value for _, e in kept]),
        np.array([e.value if e.low is None else e.low for _, e in kept]),
        np.array([e.value if e.high is None else e.high for _, e in kept]),
    )
