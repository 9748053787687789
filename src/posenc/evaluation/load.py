"""Loads a run: the model of its last checkpoint, and its text."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posenc.analysis.runs import run_directories
from posenc.config.instantiate import build, build_model
from posenc.config.schema import check_groups, check_settings
from posenc.errors import UserError, printable
from posenc.storage import checkpoint_files
from posenc.storage.reading import read_mapping

if TYPE_CHECKING:
    from torch import Tensor

    from posenc.data.tokenizers import Tokenizer
    from posenc.data.tokens import Tokens
    from posenc.model import Transformer
    from posenc.objectives.objective import Objective


@dataclass(frozen=True)
class Trained:
    """A trained model with the weights of its last checkpoint, on the CPU, and the full configuration of its run."""

    model: "Transformer"
    objective: "Objective"
    tokenizer: "Tokenizer"
    config: dict[str, Any]

    def require_causal(self, how: str) -> None:
        """Raise UserError unless the model is causal."""
        if not self.objective.causal:
            raise UserError(f"only causal models can be evaluated {how}")

    def split(self, cache: Path, name: str) -> "Tokens":
        """The tokens of one split of the run's text.

        Args:
            cache: the user's; the run's configuration, which names another, may be untrusted.
            name: train, valid or test.

        Raises:
            UserError: if the text cannot be read, or has changed.
        """
        from posenc.data.prepare import open_split

        check_groups(self.config, ["data"])
        corpus = build(self.config, "data")
        if corpus.fingerprint() != self.config.get("text"):
            raise UserError("its text has changed since it was trained")
        return open_split(corpus, self.tokenizer, cache, str(self.config["choices"].get("data")), name)


def newest_run(paths: Sequence[Path]) -> Path:
    """The last started or resumed run directory with a checkpoint among these paths and inside them.

    Prints it if there are several, and which folders cannot be read.
    """
    found: list[Path] = []
    unreadable: list[str] = []
    for path in paths:
        if (path / "config.yaml").exists():
            found.append(path)
        elif path.is_dir():
            found += run_directories(path, unreadable)
    for notice in unreadable:
        print(printable(notice), file=sys.stderr, flush=True)
    if not found:
        return paths[0]  # `load` will report the error
    saved = [run for run in found if checkpoint_files.newest_first(run / "checkpoints")]
    last = max(saved or found, key=lambda run: (run / "config.yaml").stat().st_mtime)
    if len(found) > 1:
        print(printable(f"Using the newest of {len(found)} runs: {last}"), file=sys.stderr, flush=True)
    return last


def last_checkpoint(run: Path) -> Path:
    """The newest intact checkpoint of a run.

    Raises:
        UserError: if there is no run, or no checkpoint in it.
    """
    if not (run / "config.yaml").exists():
        raise UserError(f"{run} is not a run directory: it has no config.yaml")
    checkpoint, damaged = checkpoint_files.newest(run / "checkpoints")
    if checkpoint is None:
        raise UserError(f"{damaged[0]} is damaged" if damaged else f"{run} has no checkpoint")
    if damaged:
        print(printable(f"{damaged[0]} is damaged; using {checkpoint.name}."), file=sys.stderr)
    return checkpoint


def load(run: Path, step: int | None = None) -> Trained:
    """The model, objective, tokenizer and configuration of a run, from its last checkpoint.

    Args:
        step: the step that this must have; any by default.

    Raises:
        UserError: if there is no run or checkpoint, or it cannot be read.
    """
    checkpoint = last_checkpoint(run)
    if step not in (None, checkpoint_files.step(checkpoint)):
        raise UserError(f"its checkpoint of step {step}, the last, is missing or damaged")
    config = _configuration(run)
    weights = _weights(checkpoint, config["model"])
    tokenizer = build(config, "tokenizer")
    objective = build(config, "objective", vocab_size=tokenizer.vocab_size)
    tokenizer.load(run)
    model = build_model(config, objective)
    _load_weights(model, weights, checkpoint)
    model.scheme.at_step(checkpoint_files.step(checkpoint))
    return Trained(model, objective, tokenizer, config)


def _configuration(run: Path) -> dict[str, Any]:
    """The configuration of a run, which may be untrusted: interpolations are not resolved.

    Raises:
        UserError: if it cannot be read, or does not describe a model that can be built here.
    """
    file = run / "config.yaml"
    config = read_mapping(file)
    if "intervention" not in config:
        raise UserError(f"{run} was trained by an earlier version of this program, which built models differently")
    try:
        check_settings(config, ("seed", "steps", "context", "batch_size", "eval_windows"))
        check_groups(config, ("tokenizer", "objective", "model", "pos", "intervention", "attention"))
    except UserError as error:
        raise UserError(f"{file} cannot be used: {error}") from error
    return config


def _weights(checkpoint: Path, model: Mapping[str, Any]) -> dict[str, "Tensor"]:
    """The weights in a checkpoint, checked before the model is built: a forged number of layers could take hours."""
    weights = checkpoint_files.load(checkpoint).get("state_dict")
    from torch import Tensor

    if not isinstance(weights, dict) or not all(
        isinstance(weight, Tensor) and not weight.is_complex() for weight in weights.values()
    ):
        raise UserError(f"{checkpoint} is not a checkpoint of this program: it has no weights")
    layers, width = model["layers"], model["width"]
    # An expanded tensor has any number of elements in a file of a kilobyte, so that the tensors are counted, too.
    if layers > len(weights) or layers * width > sum(weight.numel() for weight in weights.values()):
        raise UserError(f"{checkpoint} does not match the model in config.yaml")
    return weights


def _load_weights(model: "Transformer", weights: Mapping[str, "Tensor"], checkpoint: Path) -> None:
    try:
        model.load_state_dict({name.removeprefix("model."): weight for name, weight in weights.items()})
    except (RuntimeError, AttributeError) as error:
        raise UserError(f"{checkpoint} does not match the model in config.yaml") from error
    # A buffer, such as a mask of a user's scheme, may be infinite.
    if not all(weight.isfinite().all() for weight in model.parameters()) or any(
        buffer.isnan().any() for buffer in model.buffers()
    ):
        raise UserError(f"{checkpoint} has weights that are NaN or infinite")
