"""Every metric of the project, once: its name, its unit, what it is, how it is measured, how it is shown."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """One metric.

    Attributes:
        name: its column in metrics.csv or table.csv, and its key in W&B.
        title: what tables and axes call it.
        unit: empty where it has none.
        definition: what it is.
        measured: how.
        digits: behind the point, in tables.
        share: whether it lies between 0 and 1.
    """

    name: str
    title: str
    unit: str
    definition: str
    measured: str
    digits: int = 3
    share: bool = False

    @property
    def label(self) -> str:
        """Title and unit, for an axis or the head of a column."""
        return f"{self.title}, {self.unit}" if self.unit else self.title


LOGGED = (
    Metric("step", "step", "", "optimiser updates so far", "counted from 1", 0),
    Metric("tokens", "tokens", "", "tokens trained on so far", "steps times the tokens of a batch over all devices", 0),
    Metric(
        "seconds", "training time", "s", "wall-clock time of the training steps so far",
        "without validation, checkpoints and interruptions", 0,
    ),
    Metric(
        "train_loss", "training loss", "nats per token", "cross-entropy of the training batches",
        "mean over the steps since the row before and over all devices",
    ),
    Metric(
        "val_loss", "validation loss", "nats per token", "cross-entropy of text that is not trained on",
        "mean over fixed windows, the same at the same steps for every run",
    ),
    Metric("learning_rate", "learning rate", "", "the optimiser's learning rate", "of this step", 5),
    Metric(
        "gradient_norm", "gradient norm", "", "L2 norm of the gradient of all parameters",
        "before clipping, at this step",
    ),
    Metric(
        "tokens_per_s", "throughput", "tokens/s", "tokens trained on per second of training time",
        "since the row before, over all devices; of a run, over all of it; of a scheme, the median of its runs", 0,
    ),
    Metric(
        "mfu", "model FLOPs utilisation", "", "the share of the chip's peak that the model's FLOPs come to",
        "FLOPs per token of forward and backward pass, times tokens/s, over the peak; empty where that is not known",
    ),
    Metric(
        "previous_token", "previous-token score", "",
        "the attention that a token gives to the token before it (previous-token head, Olsson et al. 2022)",
        "mean over the second half of fixed validation windows, of the head with most; uniform attention over n tokens "
        "scores 1/n", 2, True,
    ),
    Metric(
        "induction", "induction score", "",
        "the attention that a token gives to the token that followed its earlier occurrence (prefix matching, Olsson "
        "et al. 2022)",
        "mean over the second half of random sequences that repeat themselves once, of the head with most", 3, True,
    ),
    Metric(
        "position_share", "share of the position encoding", "",
        "the share of the first norm's input variance that an additive position encoding makes up",
        "variance over the channels, mean over the tokens of fixed validation windows; empty where nothing is added",
    ),
    Metric(
        "val_loss_se", "standard error of the validation loss", "nats per token",
        "how far the mean over the validation windows may be from that over all of the validation text",
        "standard deviation over validation batches, over the root of their number; all runs read the same windows, so "
        "that differences between runs are surer than this", 4,
    ),
)  # fmt: skip
"""The columns of metrics.csv."""

DERIVED = (
    Metric(
        "bits_per_byte", "bits per byte", "", "validation loss per byte of text, comparable across tokenizers",
        "nats per token, over ln 2 times the bytes per token of the validation text",
    ),
    Metric(
        "steps", "steps to a loss", "", "the first step at which the running minimum of the validation loss is at or "
        "under that loss",
        "interpolated between validations; not reached where it never is", 0,
    ),
    Metric(
        "speed_up_steps", "speed-up in steps", "",
        "the baseline's steps to a loss over the scheme's: how many times fewer steps the scheme needs",
        "seed by seed at the baseline's own loss; geometric mean, Student's interval on the logarithms", 2,
    ),
    Metric(
        "speed_up_seconds", "wall-clock speed-up", "", "the baseline's training time to a loss over the scheme's",
        "like the speed-up in steps", 2,
    ),
)  # fmt: skip
"""What a comparison makes of them: columns of table.csv."""

METRICS: Mapping[str, Metric] = {metric.name: metric for metric in (*LOGGED, *DERIVED)}
COLUMNS = tuple(metric.name for metric in LOGGED)
