"""Runs, read back from W&B's server: for sweeps that ran elsewhere."""

from collections.abc import Iterator, Mapping
from typing import Any

from posenc.analysis.runs import AXES, MEASURES, Run, Sweep, gather, run_of
from posenc.errors import UserError
from posenc.wandb_server import ask

_SUMMARY = (
    "parameters",
    "bits_per_byte",
    "bigram_loss",
    "unigram_loss",
    "tokens_per_s",
    "val_loss",
    "precision",
    "hardware",
    "versions",
    "commit",
    "date",
)


def read_group(entity: str, project: str, group: str, api: Any = None) -> Sweep:
    """Every run of a group, which is what an experiment is called there.

    Args:
        entity, project, group: where the runs are.
        api: what to ask; by default W&B's public API with this machine's key.

    Raises:
        UserError: if the server does not answer, or has no such runs.
    """
    try:
        found = list((api or _public_api()).runs(f"{entity}/{project}", filters={"group": group}))
        runs, diverged, notices = gather(_attempts(found))
    except UserError:
        raise
    except Exception as error:  # W&B raises many kinds: no key, no network, no such project
        reason = str(error).strip().partition("\n")[0]
        raise UserError(f"W&B has no answer about {entity}/{project}: {reason}") from error
    if not runs:
        why = f": {'; '.join(notices)}" if notices else ""
        raise UserError(f"no runs in group {group} of {entity}/{project} on W&B{why}")
    return Sweep(group, runs, notices, diverged, source=f"wandb://{entity}/{project}/{group}")


def _public_api() -> Any:
    import wandb

    ask(wandb, timeout=30)
    return wandb.Api(timeout=30)


def _attempts(found: list[Any]) -> Iterator[Run | str]:
    for run in found:
        try:
            yield _read_run(run)
        except (KeyError, TypeError, ValueError) as error:
            yield f"{run.name} cannot be read ({type(error).__name__}: {error}); left out"


def _read_run(run: Any) -> Run | str:
    rows = [row for row in run.scan_history() if row.get("val_loss") is not None]  # "NaN" is text there
    if not rows:
        return f"{run.name} has no validation yet; left out"
    rows = list({row["step"]: row for row in rows}.values())  # a resumed run may have logged a step twice
    kept = [{key: row.get(key) for key in (*AXES, *MEASURES)} for row in sorted(rows, key=lambda row: row["step"])]
    summary: Mapping[str, Any] = dict(run.summary)
    finished = {key: summary[key] for key in _SUMMARY if key in summary} if "parameters" in summary else {}
    return run_of(str(run.url), dict(run.config), kept, finished)
