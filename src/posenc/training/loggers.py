"""Where the curve goes beside metrics.csv."""

import os
from collections.abc import Mapping
from typing import Any

from posenc.directory import RunDirectory
from posenc.wandb_server import ask

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
    timeout: float = 10.0,
) -> Loggers:
    """Weights & Biases: online with an API key, offline without one or when the server does not answer in time.

    Args:
        directory: the run's; W&B's files go there too.
        config: the whole configuration, shown with the run.
        project, entity, tags: where the run appears.
        timeout: seconds to wait for the server, once to log in and once to begin the run.
    """
    try:
        import wandb
    except ImportError:
        print("W&B is not installed: the curve goes to metrics.csv alone (logger=csv says so without this line).")
        return []
    from lightning.pytorch.loggers import WandbLogger

    settings: dict[str, Any] = {
        "project": project,
        "entity": entity,
        "tags": tags or None,
        "name": f"{directory.scheme}-seed{directory.seed}",
        "group": directory.name,
        "job_type": directory.scheme,
        "config": dict(config),
        "dir": str(directory.path),
        "id": directory.run_id(),
        "resume": "allow",
    }
    run = _begin(wandb, settings, timeout)
    run.define_metric("step")
    run.define_metric("tokens")
    run.define_metric("*", step_metric="step")
    return [WandbLogger(experiment=run)]


def _begin(wandb: Any, settings: dict[str, Any], timeout: float) -> Any:
    quiet = {"silent": True, "init_timeout": timeout, "console": "off"}
    mode = os.environ.get("WANDB_MODE", "online")
    try:
        if mode == "online" and not wandb.login(prompt=False, verify=False):
            mode = "offline"
        if mode == "online":
            ask(wandb, timeout)
        run = wandb.init(**settings, mode=mode, settings=wandb.Settings(**quiet))
    except Exception as error:  # whatever the network does, the run goes on
        reason = str(error).splitlines()[0]
        print(f"W&B cannot log online ({reason}); logging offline.", flush=True)
        wandb.teardown()
        mode = "offline"
        run = wandb.init(**settings, mode=mode, settings=wandb.Settings(**quiet))
    if mode == "offline":
        files = os.path.relpath(os.path.dirname(run.dir))
        print(f"W&B is offline: look at this run with `wandb leet {files}`, upload it with `wandb sync {files}`.")
    elif mode == "online":
        print(f"W&B: {run.url}")
    return run


def finish(loggers: Loggers, sample: str, summary: Mapping[str, Any]) -> None:
    """Hand the sample and the summary to W&B, if it is there."""
    for logger in loggers:
        run = logger.experiment
        run.summary.update(dict(summary))  # whole: the report can be made from it
        run.log({"sample": _html(sample)})


def close(loggers: Loggers, failed: bool) -> None:
    """End W&B's run, so that the next job of this process gets its own."""
    for logger in loggers:
        logger.experiment.finish(exit_code=int(failed))


def _html(text: str) -> Any:
    import html

    import wandb

    return wandb.Html(f"<pre>{html.escape(text)}</pre>")
