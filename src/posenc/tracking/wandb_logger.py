"""W&B logging; no failure of W&B affects the run."""

import html
import json
import os
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from posenc.config.secrets import redact
from posenc.errors import first_line
from posenc.storage.checkpoint_files import newest_first
from posenc.storage.csv_files import read_numbers
from posenc.storage.metrics import as_logged
from posenc.storage.run_directory import RunDirectory
from posenc.tracking.client import listen, load, reach, shut_down, within
from posenc.tracking.logger import Logger

ARTIFACT_FILES = ("metrics.csv", "attention.csv", "config.yaml", "tokenizer.json", "summary.json")
"""Files of an artifact in addition to the checkpoints; only a trained tokenizer has one."""

FAILED_UPLOAD = 2.0
"""Seconds to wait for the upload if the run was stopped or failed."""

READING = 60.0
"""Seconds that W&B's reader has for the local files of a resumed offline run."""

NO_STEP = -1
"""The last step of a run without steps."""


class WeightsAndBiases(Logger):
    """Logs one run.

    After the first failure, which is printed in one line, W&B is not called any more. Its service has written
    everything logged until then to disk, so that `wandb sync` can upload it.

    A killed session may have logged rows after its last checkpoint, and may have lost rows before they were written.
    The next session skips the former and logs the latter, so that W&B has each step once.

    Args:
        wandb: the module.
        mode: online or offline.
        directory: the run directory, with the curve so far.
        settings: arguments of `wandb.init`.
        timeout, upload, artifact: as in conf/logger/wandb.yaml.
        why: the reason for being offline, in brackets.
    """

    def __init__(
        self,
        wandb: Any,
        mode: str,
        directory: RunDirectory,
        settings: Mapping[str, Any],
        timeout: float,
        upload: float,
        artifact: bool,
        why: str = "",
    ) -> None:
        self.wandb, self.directory, self.upload, self.wants_best = wandb, directory, upload, artifact
        self.logged = NO_STEP if mode == "online" else _last_step(directory.path)
        self.warnings = listen(wandb)
        self.run = run = _new_run(wandb, mode, settings, timeout)
        if mode == "online":
            self.logged = run.step - 1  # the server knows where a resumed run continues
            print(f"W&B: {run.url}", flush=True)
        files = os.path.relpath(os.path.dirname(run.dir))
        # A resumed run has one segment per session, and all of them must be synced; online ones may be incomplete.
        sessions = f"{shlex.quote(os.path.dirname(files))}/*run-*-{run.id}"
        been_online = any(directory.path.glob(f"wandb/run-*-{run.id}"))
        self.sync = f"wandb sync {'--no-skip-online ' if been_online else ''}{sessions}"
        view = f"wandb leet {shlex.quote(files)}"
        offline = f"W&B is offline{why}: view this run with `{view}`, upload it with `{self.sync}`."
        self.hint = offline if run.offline else ""
        self._healthy, self._caught_up = True, False

    def log_metrics(self, row: Mapping[str, float]) -> None:
        """Log a row; W&B's service uploads it asynchronously."""
        if self._caught_up:
            self._log(row)
        else:  # metrics.csv already has this row, after those of earlier sessions
            self._catch_up()

    def _catch_up(self) -> None:
        """Log the rows of earlier sessions that W&B lacks."""
        self._caught_up = True
        for row in read_numbers(self.directory.path / "metrics.csv"):
            self._log(row)
        if self._healthy and not self.run.offline:
            # This segment has what the server lacks. By W&B's own mark `wandb sync` skips the offline ones, whose rows
            # and summary would come after it.
            for segment in self.directory.path.glob("wandb/offline-run-*/*.wandb"):
                segment.with_name(f"{segment.name}.synced").touch()

    def _log(self, row: Mapping[str, float]) -> None:
        step = int(row["step"])
        if step > self.logged:
            self._attempt(lambda: self.run.log(as_logged(row), step=step, commit=True))

    def finish(self, sample: str, summary: Mapping[str, Any]) -> None:
        """Log the sample and the full summary, from which a report can be created."""
        if not self._caught_up:  # resumed after the last step
            self._catch_up()
        self._attempt(lambda: self.run.summary.update(dict(summary)))
        self._attempt(lambda: self.run.log({"sample": self.wandb.Html(f"<pre>{html.escape(sample)}</pre>")}))
        if self.wants_best:
            self._attempt(self._upload_files)

    def _upload_files(self) -> None:
        artifact = self.wandb.Artifact(f"run-{self.run.id}", type="model")
        others = filter(Path.exists, map(self.directory.path.joinpath, ARTIFACT_FILES))
        for file in (*newest_first(self.directory.checkpoints)[:1], *others):
            artifact.add_file(str(file))
        for file in newest_first(self.directory.best):
            artifact.add_file(str(file), name=f"best/{file.name}")
        self.run.log_artifact(artifact)

    def close(self, failed: bool) -> None:
        """Finish the run within a time limit and shut down the service, so that it does not delay the exit."""
        limit = FAILED_UPLOAD if failed else self.upload
        self._attempt(lambda: within(limit, lambda: self.run.finish(exit_code=int(failed))))
        if any("wandb sync" in warning.getMessage() for warning in self.warnings):
            self._give_up("the upload is incomplete")
        if self._healthy and self.hint:
            print(self.hint, flush=True)
        self._healthy = False
        shut_down(self.wandb)

    def _attempt(self, call: Callable[[], Any]) -> None:
        if self._healthy:
            try:
                call()
            except Exception as error:
                self._give_up(_reason(error))

    def _give_up(self, reason: str) -> None:
        if self._healthy:
            self._healthy = False
            print(f"This run is incomplete on W&B ({reason}): upload it with `{self.sync}`.", flush=True)


def _reason(error: BaseException) -> str:
    """A short reason for a failure, without secrets or a server's whole error page."""
    reason = first_line(error)
    if isinstance(error, ValidationError):  # a setting, perhaps from the environment
        reason = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
    return textwrap.shorten(redact(reason), 150, placeholder=" ...")


def start(
    directory: RunDirectory, settings: Mapping[str, Any], timeout: float, upload: float, artifact: bool
) -> Logger:
    """Start a W&B run: online if there is a key and the server responds in time, otherwise offline.

    Prints the URL of an online run at once, and how to upload an offline run at the end. Arguments as in
    `WeightsAndBiases`.

    Returns:
        The logger; one that does nothing if W&B is missing or broken.
    """
    try:
        wandb = load()
    except Exception as error:
        missing = isinstance(error, ImportError) and error.name == "wandb"
        _print_unavailable("is not installed" if missing else f"cannot be used ({_reason(error)})")
        return Logger()
    options = (directory, settings, timeout, upload, artifact)
    given, why = os.environ.get("WANDB_MODE", ""), ""
    mode = {"": "online", "run": "online"}.get(given, given)  # run is W&B's former name
    try:
        if mode == "online":
            try:
                reach(wandb, timeout)
                return WeightsAndBiases(wandb, mode, *options)
            except Exception as error:  # no network error may stop the run
                mode, why = "offline", f" ({_reason(error)})"
                shut_down(wandb)
        return WeightsAndBiases(wandb, mode, *options, why)
    except BaseException as error:
        shut_down(wandb)
        if not isinstance(error, Exception):  # stopped by a signal
            raise
        _print_unavailable(f"cannot be used ({_reason(error)})")
        return Logger()


def _new_run(wandb: Any, mode: str, settings: Mapping[str, Any], timeout: float) -> Any:
    quiet = wandb.Settings(
        silent=True,
        console="off",
        reinit="create_new",  # independent of other jobs in this process
        disable_git=True,  # it would upload uncommitted changes; the summary has the commit
        init_timeout=timeout,
    )
    run = within(3 * timeout + 30, lambda: wandb.init(**settings, mode=mode, settings=quiet))
    for metric in ("step", "tokens"):
        run.define_metric(metric)
    run.define_metric("*", step_metric="step")
    return run


def _print_unavailable(why: str) -> None:
    print(f"W&B {why}: logging to metrics.csv only.", flush=True)


def _last_step(folder: Path) -> int:
    """The last step in W&B's local files of a run's earlier sessions.

    Each session writes its own segment, wandb/offline-run-* or wandb/run-*. That of a killed session lacks the last
    rows, since W&B's service (wandb 0.31) writes in blocks of 32 KiB.
    """
    segments = sorted(folder.glob("wandb/*run-*/*.wandb"), key=lambda file: file.parent.name.partition("run-")[2])
    for segment in reversed(segments):
        if steps := list(_steps(segment)):
            return max(steps)
    return NO_STEP


def _steps(segment: Path) -> Iterator[int]:
    """The steps in a segment, read with W&B's own reader up to the first damaged record."""
    command = [sys.executable, "-m", "wandb", "leet", "inspect", "--json", str(segment)]
    read = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, timeout=READING)
    for line in read.stdout.splitlines():
        if line.startswith("{") and '"history"' in line:
            step = json.loads(line).get("history", {}).get("item", {}).get("step")
            if step is not None:
                yield int(step)
