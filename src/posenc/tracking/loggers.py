"""The choices of `logger`."""

import os
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from posenc.bounds import Positive
from posenc.storage.run_directory import RunDirectory
from posenc.tracking.logger import Logger

# What wandb.init accepts; it would refuse others only after the run has started, which would then lack W&B.
Project = Annotated[
    str, Field(pattern=r"^[^/\\#?%:]{1,128}$", description=r"text of 1 to 128 characters without / \ # ? % :")
]
Tag = Annotated[str, Field(min_length=1, max_length=64, description="text of 1 to 64 characters")]


def csv_only(directory: RunDirectory, config: Mapping[str, Any]) -> Logger:  # noqa: ARG001
    """Only metrics.csv."""
    return Logger()


def weights_and_biases(
    directory: RunDirectory,
    config: Mapping[str, Any],
    project: Project = "posenc",
    entity: str | None = None,
    tags: list[Tag] | None = None,
    timeout: Positive = 10.0,
    upload: Positive = 30.0,
    artifact: bool = False,
) -> Logger:
    """Weights & Biases: online with an API key, offline without one or if the server does not respond in time.

    A W&B sweep agent overrides project and entity.
    """
    from posenc.tracking.wandb_logger import start

    # An agent of a W&B sweep has created the run for this process.
    sweep_agents_id = os.environ.get("WANDB_RUN_ID") if os.environ.get("WANDB_SWEEP_ID") else None
    settings = {
        "project": project,
        "entity": entity,
        "tags": tags or None,
        "name": f"{directory.scheme}-seed{directory.seed}",
        "group": directory.name,
        "job_type": directory.scheme,
        "config": dict(config),
        "dir": str(directory.path),
        "id": directory.run_id(sweep_agents_id),
        "resume": "allow",
    }
    return start(directory, settings, timeout, upload, artifact)


def tensorboard(directory: RunDirectory, config: Mapping[str, Any]) -> Logger:  # noqa: ARG001
    """TensorBoard files in the run directory: `tensorboard --logdir runs` shows all runs."""
    try:
        from posenc.tracking.tensorboard_logger import TensorBoard
    except ImportError:
        print("TensorBoard is not installed (`pip install tensorboard`): logging to metrics.csv only.", flush=True)
        return Logger()
    return TensorBoard(directory)
