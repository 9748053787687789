"""The comparison of our runs with the paper's figures, which have been digitised."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from posenc.analysis.arms import Arm, Threshold, thresholds


@dataclass(frozen=True)
class PaperPoint:
    """A loss that two digitised curves both reach.

    Attributes:
        level: description of the loss.
        rotary, other: thousands of steps to it, rounded.
        ratio: other / rotary, from unrounded values.
    """

    level: str
    rotary: float
    other: float
    ratio: float


@dataclass(frozen=True)
class PaperFigure:
    """Two training curves of a paper's figure, digitised.

    Attributes:
        unlike: how it differs from the runs here.
        choices: configuration choices of runs here that reproduce it, by group.
        scheme: the name of rotary here.
        others: the possible names of the other arm here.
        budget: thousands of steps of the other arm.
        points: losses that both reach.
    """

    source: str
    unlike: str
    choices: Mapping[str, str]
    scheme: str
    others: tuple[str, ...]
    budget: float
    points: tuple[PaperPoint, ...]

    def fractions(self) -> list[float]:
        """The points as fractions of the other arm's budget."""
        return [point.other / self.budget for point in self.points]


ROFORMER = (
    PaperFigure(
        "Su et al. 2021, figure 3, left",
        "one seed; training loss; 110M parameters; the text calls the other encoding sinusoidal, BERT's own is learned",
        {"objective": "masked", "attention": "softmax"},
        "rope",
        ("sinusoidal", "learned"),
        250,
        (
            PaperPoint("loss 4.0", 12.0, 16.4, 1.36),
            PaperPoint("loss 3.0", 22.7, 32.8, 1.45),
            PaperPoint("loss 2.5", 45.6, 72.2, 1.58),
            PaperPoint("its final loss", 114, 250, 2.2),
        ),
    ),
    PaperFigure(
        "Su et al. 2021, figure 3, right",
        "one seed; training loss; 85M parameters; the positions of the other arm are not stated",
        {"attention": "linear", "objective": "causal"},
        "rope",
        ("sinusoidal", "learned", "none"),
        96,
        (PaperPoint("loss 1.5", 21.8, 33.5, 1.54), PaperPoint("its final loss", 43, 96, 2.2)),
    ),
)
"""The paper's two figures; in the second the other arm ends with the figure, at 96,000 steps."""


@dataclass(frozen=True)
class Reproduction:
    """The comparison of runs with the figure they reproduce.

    Attributes:
        points: those of the figure that are not before the baseline's first validation.
        ours: the thresholds of each scheme here after the same fractions of the baseline's budget.
    """

    curves: PaperFigure
    baseline: str
    points: tuple[PaperPoint, ...]
    ours: Mapping[str, Sequence[Threshold]]


def reproduction(arms: Sequence[Arm], baseline: str, budget: int) -> Reproduction | None:
    """The comparison with the figure that the arms reproduce; None if there is none."""
    curves = next((curves for curves in ROFORMER if _repeats(arms, baseline, curves)), None)
    if curves is None:
        return None
    (held,) = (arm.runs for arm in arms if arm.scheme == baseline)
    first = max(float(run.curve["step"][0]) for run in held)
    known = {
        fraction: point
        for fraction, point in zip(curves.fractions(), curves.points, strict=True)
        if fraction * budget >= first
    }
    ours = {arm.scheme: thresholds(arm.runs, held, budget, list(known)) for arm in arms if arm.speed_ups}
    return Reproduction(curves, baseline, tuple(known.values()), ours)


def _repeats(arms: Sequence[Arm], baseline: str, curves: PaperFigure) -> bool:
    """Whether the runs have the choices and the arms of the figure."""
    runs = [run for arm in arms for run in arm.runs]
    chosen = all(run.setting.get(group) == choice for run in runs for group, choice in curves.choices.items())
    return chosen and baseline in curves.others and curves.scheme in [arm.scheme for arm in arms if arm.speed_ups]
