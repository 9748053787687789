"""Writing and reading checkpoints."""

from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins import TorchCheckpointIO

from posenc.config.schema import NOT_IN_IDENTITY
from posenc.errors import UserError
from posenc.storage import checkpoint_files
from posenc.storage.atomic import atomic_write
from posenc.storage.reading import leaves

NOT_COMPARED = {*NOT_IN_IDENTITY, "choices"}
"""Keys that may differ. Of those that `run` adds to a configuration, `text` and `precision` may not."""


class CheckpointIO(TorchCheckpointIO):
    """Writes checkpoints atomically with a checksum in the name; loads only tensors and plain data."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, *_: Any, **__: Any) -> None:
        """Write to `path` with the checksum appended to its name."""
        content = BytesIO()
        torch.save(checkpoint, content)
        content.seek(0)
        file = Path(path)
        atomic_write(file.with_name(f"{file.name}-{checkpoint_files.checksum(content)}.ckpt"), content.getbuffer())

    def load_checkpoint(self, path: Any, *_: Any, **__: Any) -> dict[str, Any]:
        """As in `checkpoint_files.load`."""
        return checkpoint_files.load(Path(path))


def check_configuration(checkpoint: Mapping[str, Any], configuration: Mapping[str, Any]) -> None:
    """Check that a checkpoint was written with the same configuration, up to NOT_COMPARED.

    Raises:
        UserError: if it was not.
    """
    theirs, ours = (_compared(one) for one in (checkpoint["configuration"], configuration))
    differing = sorted(key for key in theirs.keys() | ours.keys() if theirs.get(key) != ours.get(key))
    if differing:
        named = [f"{key}={theirs.get(key)} (here {ours.get(key)})" for key in differing[:3]]
        more = f" and {len(differing) - 3} more" if len(differing) > 3 else ""
        raise UserError(f"the checkpoint is from another configuration: {', '.join(named)}{more}")


def _compared(configuration: Mapping[str, Any]) -> dict[str, Any]:
    return dict(leaves({key: value for key, value in configuration.items() if key not in NOT_COMPARED}))
