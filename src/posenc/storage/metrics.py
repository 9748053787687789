"""The registry of metrics: name, unit, definition, measurement and display of each."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Metric:
    """One metric.

    Attributes:
        name: its column in metrics.csv or table.csv.
        title: its name in tables and on axes.
        share: whether it is between 0 and 1.
        section: its panel section in W&B and TensorBoard; empty: none.
    """

    name: str
    title: str
    unit: str
    definition: str
    measured: str
    share: bool = False
    section: str = ""

    @property
    def logged_as(self) -> str:
        """Its key in W&B and TensorBoard: val/loss for val_loss."""
        return f"{self.section}/{self.name.removeprefix(f'{self.section}_')}" if self.section else self.name

    @property
    def label(self) -> str:
        """Title and unit, for an axis or a column header."""
        return f"{self.title}, {self.unit}" if self.unit else self.title


LOGGED = (
    Metric("step", "step", "", "optimiser updates so far", "counted from 1"),
    Metric("tokens", "tokens", "", "tokens trained on so far", "steps times tokens per batch, over all devices"),
    Metric(
        "seconds", "training time", "s", "wall-clock time of the training steps so far",
        "without validation, checkpoints and interruptions",
    ),
    Metric(
        "train_loss", "training loss", "nats per token", "cross-entropy of the training batches",
        "mean over the steps since the previous row and over all devices",
        section="train",
    ),
    Metric(
        "val_loss", "validation loss", "nats per token", "cross-entropy of held-out text",
        "mean over fixed windows, the same at the same steps for every run",
        section="val",
    ),
    Metric("learning_rate", "learning rate", "", "the optimiser's learning rate", "at this step", section="train"),
    Metric(
        "gradient_norm", "gradient norm", "", "L2 norm of the gradient of all parameters",
        "before clipping, at this step",
        section="train",
    ),
    Metric(
        "tokens_per_s", "throughput", "tokens/s", "tokens trained on per second of training time",
        "since the previous row, over all devices; for a run, over all of it; for a scheme, the median of its runs",
        section="speed",
    ),
    Metric(
        "mfu", "model FLOPs utilisation", "", "the model's FLOPs per second as a fraction of the chip's peak",
        "FLOPs per token of the forward and backward pass, times tokens/s, over the peak; empty if that is unknown",
        share=True,
        section="speed",
    ),
    Metric(
        "previous_token", "previous-token score", "",
        "attention weight on the previous token (previous-token head, Olsson et al. 2022)",
        "mean over the second half of fixed validation windows, for the highest-scoring head; uniform attention over n "
        "tokens scores 1/n",
        share=True,
        section="heads",
    ),
    Metric(
        "induction", "induction score", "",
        "attention weight on the token that followed the current token earlier (prefix matching, Olsson "
        "et al. 2022)",
        "mean over the second half of repeated random sequences, for the highest-scoring head; tokens recur within a "
        "half, so even a head that finds all of them scores below 1, and lower with a smaller vocabulary",
        share=True,
        section="heads",
    ),
    Metric(
        "position_share", "share of the position encoding", "",
        "variance of an additive position encoding relative to that of the first norm's input, to which it is added",
        "variance over the channels, mean over the tokens of fixed validation windows; includes what is added equally "
        "at every position, and can exceed 1; empty if nothing is added",
        section="heads",
    ),
    Metric(
        "val_loss_se", "standard error of the validation loss", "nats per token",
        "uncertainty of the mean over the validation windows as an estimate for the whole validation split",
        "standard deviation over validation batches, over the square root of their number; all runs use the same "
        "windows, so differences between runs are more precise than this",
        section="val",
    ),
)  # fmt: skip
"""The columns of metrics.csv."""

DERIVED = (
    Metric(
        "bits_per_byte", "bits per byte", "", "validation loss per byte of text, comparable across tokenizers",
        "nats per token, divided by ln 2 times the bytes per token of the validation text",
    ),
    Metric(
        "steps", "steps to a loss", "", "the first step at which the running minimum of the validation loss is at or "
        "below that loss",
        "interpolated between validations; not reached if it never is",
    ),
    Metric(
        "speed_up_steps", "speed-up in steps", "",
        "the baseline's steps to a loss divided by the scheme's: how many times fewer steps the scheme needs",
        "seed by seed at the baseline's own loss; geometric mean, Student's interval on the logarithms",
    ),
    Metric(
        "speed_up_seconds", "wall-clock speed-up", "", "the baseline's training time to a loss divided by the scheme's",
        "as for the speed-up in steps",
    ),
)  # fmt: skip
"""Columns that a comparison adds in table.csv."""

LOGGED_AS = {metric.name: metric.logged_as for metric in LOGGED}
"""The keys of W&B and TensorBoard by column of metrics.csv."""

METRICS: Mapping[str, Metric] = {metric.name: metric for metric in (*LOGGED, *DERIVED)}
COLUMNS = tuple(metric.name for metric in LOGGED)


def as_logged(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of metrics.csv under the names of W&B and TensorBoard."""
    return {LOGGED_AS.get(column, column): value for column, value in row.items()}
