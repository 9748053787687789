"""A finished run's model, read back from its directory."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posenc.errors import UserError
from posenc.storage import checkpoint_files
from posenc.storage.reading import read_mapping

if TYPE_CHECKING:
    from torch import Tensor

    from posenc.data.tokenizers import Tokenizer
    from posenc.model import Transformer
    from posenc.objectives.objective import Objective


@dataclass(frozen=True)
class Trained:
    """What a run came to.

    Attributes:
        model: with the weights of the last checkpoint, on the CPU.
        objective: what it predicts.
        tokenizer: the run's own.
        config: every value that made it.
    """

    model: "Transformer"
    objective: "Objective"
    tokenizer: "Tokenizer"
    config: dict[str, Any]


def newest(places: Sequence[Path]) -> Path:
    """The run directory among these, or in the folders among them, that was begun last; one of several is named.

    Args:
        places: as a shell makes them of runs/kjv_tiny/rope/seed0-*, or folders above.
    """
    files = [file for place in places for file in (place / "config.yaml", *place.glob("**/seed*/config.yaml"))]
    found = [file for file in files if file.exists()]
    if not found:
        return places[0]  # to be refused when it is read
    last = max(found, key=lambda file: file.stat().st_mtime).parent
    if len(found) > 1:
        print(f"Of {len(found)} runs the newest: {last}", file=sys.stderr, flush=True)
    return last


def last_checkpoint(run: Path) -> Path:
    """The newest checkpoint of a run that is whole.

    Raises:
        UserError: if there is no run, or no checkpoint in it.
    """
    if not (run / "config.yaml").exists():
        raise UserError(f"{run} is not a run directory: it has no config.yaml")
    checkpoint, damaged = checkpoint_files.newest(run / "checkpoints")
    if checkpoint is None:
        raise UserError(f"{damaged[0]} is damaged" if damaged else f"{run} has no checkpoint")
    if damaged:
        print(f"{damaged[0]} is damaged; {checkpoint.name} is used.", file=sys.stderr)
    return checkpoint


def load(run: Path) -> Trained:
    """The model, objective, tokenizer and configuration of a run, from its last checkpoint.

    Raises:
        UserError: if there is no run, no checkpoint in it, or one that cannot be read.
    """
    checkpoint = last_checkpoint(run)
    config = _configuration(run)
    weights = _weights(checkpoint, config["model"])
    from posenc.config.instantiate import build, build_model

    tokenizer = build(config, "tokenizer")
    objective = build(config, "objective", vocab_size=tokenizer.vocab_size)
    tokenizer.load(run)
    model = build_model(config, objective)
    _load_weights(model, weights, checkpoint)
    return Trained(model, objective, tokenizer, config)


def _configuration(run: Path) -> dict[str, Any]:
    """What made a run. It may be a stranger's: nothing in it is looked up on this machine.

    Raises:
        UserError: if it cannot be read, or is not one that this program writes.
    """
    from posenc.config.schema import check_groups

    file = run / "config.yaml"
    config = read_mapping(file)
    if "intervention" not in config:
        raise UserError(f"{run} was trained by an earlier version of this program, which built models differently")
    try:
        check_groups(config, ("tokenizer", "objective", "model", "pos", "intervention", "attention"))
    except UserError as error:
        raise UserError(f"{file} is not one that this program writes: {error}") from error
    for key in ("seed", "context", "batch_size"):
        if type(config.get(key)) is not int:
            raise UserError(f"{file} is not one that this program writes: {key} must be an integer")
    return config


def _weights(checkpoint: Path, model: Mapping[str, Any]) -> dict[str, "Tensor"]:
    """What a checkpoint holds for a model, which is not built yet: one of too many layers would take hours."""
    weights = checkpoint_files.load(checkpoint).get("state_dict")
    if not isinstance(weights, dict) or not all(map(_is_weight, weights.values())):
        raise UserError(f"{checkpoint} is not a checkpoint of this program: it holds no weights")
    if model["layers"] * model["width"] > sum(weight.numel() for weight in weights.values()):
        raise UserError(f"{checkpoint} is of another model than config.yaml describes")
    return weights


def _is_weight(held: Any) -> bool:
    return hasattr(held, "is_complex") and not held.is_complex()


def _load_weights(model: "Transformer", weights: Mapping[str, "Tensor"], checkpoint: Path) -> None:
    try:
        model.load_state_dict({name.removeprefix("model."): weight for name, weight in weights.items()})
    except (RuntimeError, AttributeError) as error:
        raise UserError(f"{checkpoint} is of another model than config.yaml describes") from error
    if not all(weight.isfinite().all() for weight in model.parameters()):
        raise UserError(f"{checkpoint} has weights that are NaN or infinite")
