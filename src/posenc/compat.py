"""Every private attribute of a library that this program touches, with the reason and the version it was seen in."""

import subprocess
from contextlib import suppress


def wandb_service() -> "subprocess.Popen[bytes] | None":
    """W&B's service; None if there is none, or it is not ours to end.

    wandb 0.31 waits for it without limit when the process ends, and offers no way to end it by force.
    """
    with suppress(ImportError, AttributeError):
        from wandb.sdk import wandb_setup

        return wandb_setup._singleton._connection._proc._process  # type: ignore[union-attr]
    return None
