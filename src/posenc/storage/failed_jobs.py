"""The failed jobs of a sweep, one line each in its folder."""

import json
from collections.abc import Mapping
from pathlib import Path

from posenc.storage.reading import read_text

FAILED_JOBS = "failed_jobs.jsonl"
"""In a sweep's folder: one line for each failed job of the last sweep, and of others that ended after its start."""

MAX_FAILED_JOBS = 2**24
"""Maximum size of that file: 1,600 bytes for each job of the largest sweep."""


def failed_jobs(folder: Path) -> list[dict[str, str]]:
    """The failed jobs of the last sweep, with their errors; not those whose run has been finished since."""
    noted = folder / FAILED_JOBS
    return unfinished_jobs(read_text(noted, MAX_FAILED_JOBS)) if noted.exists() else []


def unfinished_jobs(lines: str) -> list[dict[str, str]]:
    """As `failed_jobs`, from the lines of its file."""
    return [failure for failure in map(_failure, lines.splitlines()) if not _finished_since(failure)]


def _finished_since(failure: Mapping[str, str]) -> bool:
    return bool(failure["run"]) and Path(failure["run"], "summary.json").exists()


def _failure(line: str) -> dict[str, str]:
    """Parse a line, which may be incomplete if the process was killed."""
    try:
        failure = json.loads(line)
        return {"job": str(failure["job"]), "error": str(failure["error"]), "run": str(failure.get("run", ""))}
    except (ValueError, KeyError, TypeError, RecursionError):
        return {"job": "a job", "error": f"its line in {FAILED_JOBS} is damaged", "run": ""}
