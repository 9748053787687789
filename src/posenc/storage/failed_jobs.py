"""The failed jobs of a sweep, one line each in its folder."""

import json
import os
from pathlib import Path

from posenc.storage.reading import read_text

FAILED_JOBS = "failed_jobs.jsonl"
"""In a sweep's folder: one line for each failed job of the last sweep, and of others that ended after its start."""

MAX_FAILED_JOBS = 2**24
"""Maximum size of that file: 1,600 bytes for each job of the largest sweep."""


def failed_jobs(folder: Path) -> list[dict[str, str]]:
    """The failed jobs of the last sweep, with their errors and the absolute paths of their runs, empty without one.

    Those whose run has been finished since are left out.
    """
    noted = folder / FAILED_JOBS
    return unfinished_jobs(read_text(noted, MAX_FAILED_JOBS), folder) if noted.exists() else []


def unfinished_jobs(lines: str, folder: Path) -> list[dict[str, str]]:
    """As `failed_jobs`, from the lines of its file."""
    failures = [_failure(line, folder) for line in lines.splitlines()]
    return [of for of in failures if not of["run"] or not os.path.exists(os.path.join(of["run"], "summary.json"))]


def not_tried_again(lines: str, later: str) -> str:
    """Those of a sweep's lines whose jobs have none in a later sweep's."""
    again = {_failure(line, Path())["job"] for line in later.splitlines()}
    return "".join(line for line in lines.splitlines(keepends=True) if _failure(line, Path())["job"] not in again)


def failed_job(job: str, error: str, run: Path | None, folder: Path) -> str:
    """A line of the file in a folder, which names the run by its path from there: both may be moved."""
    return json.dumps({"job": job, "error": error, "run": os.path.relpath(run, folder) if run else ""}) + "\n"


def _failure(line: str, folder: Path) -> dict[str, str]:
    """Parse a line, which may be incomplete if the process was killed."""
    try:
        failure = json.loads(line)
        job, error, run = str(failure["job"]), str(failure["error"]), str(failure.get("run", ""))
        return {"job": job, "error": error, "run": os.path.abspath(os.path.join(folder, run)) if run else ""}
    except (ValueError, KeyError, TypeError, RecursionError):
        return {"job": "a job", "error": f"its line in {FAILED_JOBS} is damaged", "run": ""}
