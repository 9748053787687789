"""The commands of a part of benchmarks/gpu.py, in processes that are killed at a time limit."""

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
TAIL = 12_000
"""Characters kept of a part's output."""

SAVING = 20
"""Seconds between SIGTERM, at which train.py saves its run, and SIGKILL; at most a quarter of the time limit."""

Result = dict[str, Any]
"""Of a part: provenance, aim, commands, status, seconds (of all calls if it resumed) and output; of one with curves
also the final losses of its runs, and the sources that they were finished by. A finished one may have an `attempt`: a
result of a later source that is not finished."""


class Terminated(Exception):
    """Raised by SIGTERM, as a time limit of whoever called this script."""


def run_commands(lines: list[str], time_limit: float, go_on: bool = False) -> Result:
    """Run commands in sequence; status, seconds and output.

    Args:
        go_on: whether to run the others if one fails, such as runs of other arms; the status is that of the first.
    """
    start = time.perf_counter()
    statuses: list[str] = []
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        for line in lines:
            seconds = start + time_limit - time.perf_counter()
            statuses.append(run_command([sys.executable, *shlex.split(line)], output, seconds))
            if statuses[-1] == "timed out" or (statuses[-1] != "done" and not go_on):
                break
        output.seek(0)
        tail = output.read()[-TAIL:]
    status = next((status for status in statuses if status != "done"), "done")
    return {"status": status, "seconds": round(time.perf_counter() - start, 1), "output": tail}


def run_command(command: list[str], output: Any, time_limit: float) -> str:
    """Run a command; it is terminated, then killed with all of its processes at the time limit. Returns its status."""
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},  # otherwise the output of a killed process would be lost
        stdout=output,
        stderr=subprocess.STDOUT,
        process_group=0,
    )
    saving = min(SAVING, max(0, time_limit) / 4)
    try:
        return "done" if process.wait(max(0, time_limit - saving)) == 0 else f"exit code {process.returncode}"
    except (subprocess.TimeoutExpired, Terminated):
        return "timed out"
    finally:
        if process.poll() is None:
            started = [*descendants(process.pid), process.pid]
            process.terminate()
            until = time.perf_counter() + saving
            with suppress(subprocess.TimeoutExpired, Terminated):
                process.wait(saving)
                # joblib's processes save after their parent's end.
                while any(map(alive, started)) and time.perf_counter() < until:
                    time.sleep(0.1)
            for one in {*started, *descendants(process.pid)}:
                with suppress(ProcessLookupError):
                    os.kill(one, signal.SIGKILL)
            process.wait()


def descendants(process: int) -> Iterator[int]:
    """Its child processes, theirs and so on, also those in other process groups."""
    with suppress(OSError):  # it has ended
        for file in Path(f"/proc/{process}/task").glob("*/children"):
            for child in map(int, file.read_text().split()):
                yield from descendants(child)
                yield child


def alive(process: int) -> bool:
    """Whether a process has not ended; one that has, but is still listed, has no command line."""
    with suppress(OSError):
        return bool(Path(f"/proc/{process}/cmdline").read_bytes())
    return False
