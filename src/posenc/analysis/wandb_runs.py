"""Reads runs from W&B's server, for sweeps that ran elsewhere."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from posenc.analysis.runs import Run, read_runs, run_of
from posenc.analysis.sweep import Sweep
from posenc.errors import UserError, first_line, needed_for
from posenc.storage.metrics import LOGGED_AS
from posenc.storage.run_directory import Summary
from posenc.tracking.client import TIMEOUT, load, reach, shut_down, within

WANDB = "wandb://"

_COLUMNS = {name: column for column, name in LOGGED_AS.items()}
"""Columns of metrics.csv by their names on W&B; runs of earlier versions have the columns' own names there."""


def parse_source(source: str) -> tuple[str, str, str]:
    """Entity, project and group of wandb://entity/project/group.

    Raises:
        UserError: if it does not have that form.
    """
    parts = source.removeprefix(WANDB).split("/")
    if not source.startswith(WANDB) or len(parts) != 3 or not all(parts):
        raise UserError(f"{source} must look like {WANDB}entity/project/group")
    return parts[0], parts[1], parts[2]


@contextmanager
def wandb_errors(resource: str) -> Iterator[None]:
    """Context that turns errors of requests for a resource into one sentence, and shuts W&B down.

    Raises:
        UserError: if W&B is not installed, has no key, does not respond or does not have the resource.
    """
    try:
        with needed_for(f"reading {resource} from W&B"):
            yield
    except UserError:
        raise
    except Exception as error:  # W&B's errors have no common base class
        raise UserError(f"the W&B request for {resource} failed: {first_line(error)}") from error
    finally:
        if "wandb" in sys.modules:
            shut_down(sys.modules["wandb"])


def read_group(entity: str, project: str, group: str, timeout: float = TIMEOUT) -> Sweep:
    """Every run of a W&B group; an experiment is a group.

    Args:
        timeout: seconds to wait for the list of the runs, and then for each of them.

    Raises:
        UserError: if the server does not respond, or has no such runs.
    """
    with wandb_errors(f"{entity}/{project}"):
        client = public_api(timeout)
        found = within(timeout, lambda: list(client.runs(f"{entity}/{project}", filters={"group": group})))
        readers = ((run.name, partial(within, timeout, partial(_read_run, run))) for run in found)
        runs, diverged, notices = read_runs(readers)
    if not runs:
        why = f": {'; '.join(notices)}" if notices else ""
        raise UserError(f"no runs in group {group} of {entity}/{project} on W&B{why}")
    return Sweep(group, runs, notices, diverged, source=f"{WANDB}{entity}/{project}/{group}")


def public_api(timeout: float) -> Any:
    """W&B's public API with this machine's key, waiting at most `timeout` seconds for the server.

    Raises:
        Exception: of various types, if the package, the key or the server is missing.
    """
    wandb = load()
    reach(wandb, timeout)
    return within(timeout, lambda: wandb.Api(timeout=max(1, int(timeout))))


def _read_run(run: Any) -> Run:
    named = ({_COLUMNS.get(name, name): value for name, value in row.items()} for row in run.scan_history())
    rows = [row for row in named if row.get("val_loss") is not None]  # W&B returns NaN as text
    if not rows:
        raise UserError(f"{run.name} has no validation yet")
    by_step = {row["step"]: row for row in rows}  # a resumed run may have logged a step twice
    kept = [by_step[step] for step in sorted(by_step)]
    summary = {key: value for key, value in run.summary_metrics.items() if key in Summary.__annotations__}
    return run_of(str(run.url), dict(run.config), kept, summary if "parameters" in summary else None)
