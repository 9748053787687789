"""Where the curve goes beside metrics.csv."""

import os
from collections.abc import Mapping
from typing import Any

from posenc.bounds import Positive
from posenc.storage.run_directory import RunDirectory

Loggers = list[Any]
"""Lightning's loggers; not named by their type, so that reading a configuration does not import Lightning."""


def csv_only(directory: RunDirectory, config: Mapping[str, Any]) -> Loggers:  # noqa: ARG001
    """Nowhere else."""
    return []


def weights_and_biases(
    directory: RunDirectory,
    config: Mapping[str, Any],
    project: str = "posenc",
    entity: str | None = None,
    tags: list[str] | None = None,
    timeout: Positive = 10.0,
    upload: Positive = 30.0,
    artifact: bool = False,
) -> Loggers:
    """Weights & Biases: online with an API key, offline without one or when the server does not answer in time.

    Args:
        directory: the run's; W&B's files go there too.
        config: the whole configuration, shown with the run.
        project, entity, tags: where the run appears; an agent of W&B's sweeps has its own project and entity.
        timeout: seconds to wait for the server, once to ask whether it is there and once to begin the run.
        upload: seconds to wait for it at the end.
        artifact: whether to upload the last checkpoint, the best and the curves as files, too.
    """
    from posenc.tracking.wandb_logger import begin

    settings = {
        "project": project,
        "entity": entity,
        "tags": tags or None,
        "name": f"{directory.scheme}-seed{directory.seed}",
        "group": directory.name,
        "job_type": directory.scheme,
        "config": dict(config),
        "dir": str(directory.path),
        "id": directory.run_id(_agents_id()),
        "resume": "allow",
    }
    run = begin(directory, settings, timeout, upload, artifact)
    return [] if run is None else [run]


def tensorboard(directory: RunDirectory, config: Mapping[str, Any]) -> Loggers:  # noqa: ARG001
    """Files for TensorBoard in the run's directory: `tensorboard --logdir runs` shows those of all runs."""
    from posenc.tracking.tensorboard_logger import begin

    return begin(directory)


def _agents_id() -> str | None:
    """The run that an agent of W&B's sweeps has begun for this process; outside of one, an id is nobody's."""
    return os.environ.get("WANDB_RUN_ID") if os.environ.get("WANDB_SWEEP_ID") else None


def want_best(loggers: Loggers) -> bool:
    """Whether one of them asks for the checkpoint with the lowest validation loss."""
    return any(logger.wants_best for logger in loggers)


def finish(loggers: Loggers, sample: str, summary: Mapping[str, Any]) -> None:
    """Hand over the sample and the summary."""
    for logger in loggers:
        logger.finish(sample, summary)


def close(loggers: Loggers, failed: bool) -> None:
    """End what was begun, so that the next job of this process gets its own."""
    for logger in loggers:
        logger.close(failed)
