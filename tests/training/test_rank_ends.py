"""How several ranks end: with one voice, at a signal, and with the process that started them."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from torch.distributed import TCPStore
from torch.distributed.elastic import multiprocessing

from posenc.distributed.group import LOST
from posenc.distributed.launch import LAUNCHER, launch
from posenc.errors import Stopped
from posenc.storage.csv_files import read_csv
from tests import warm
from tests.conftest import HANGUP, ROOT, clean_environment, python
from tests.faults.devices import process_of
from tests.training.test_devices import DDP, FSDP, TINY, TORCHRUN
from tests.warm import Started


def rows_of(runs: Path) -> int:
    return sum(len(read_csv(file)) for file in runs.rglob("metrics.csv"))


LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ranks are found in /proc")
ENDLESS = (*TINY, *FSDP, "steps=120000")


def begun(tmp_path: Path, *command: str) -> Started:
    """A run that has written rows."""
    process = warm.python().start(*command, f"runs={tmp_path}/runs", cwd=ROOT, env=clean_environment())
    while rows_of(tmp_path) < 2:
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    return process


@LINUX
@pytest.mark.parametrize(
    ("start", "last"), [((), ("trainer.devices=2",)), ((*TORCHRUN, "2"), ())], ids=["ours", "torchrun"]
)
def test_when_a_rank_is_killed_all_end_and_one_says_so(start, last, tmp_path):
    with begun(tmp_path, *start, "train.py", *ENDLESS, *last) as process:
        os.kill(process_of(1, process.pid), signal.SIGKILL)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    ours = [line for line in errors.splitlines() if line.startswith("train.py: ")]
    assert ours == [f"train.py: {LOST}"]
    assert "gloo" not in errors
    if not start:
        assert errors.count("\n") == 1


@LINUX
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, HANGUP])
def test_a_signal_reaches_the_ranks_which_save_the_run(signum, tmp_path):
    name = "Ctrl-C" if signum == signal.SIGINT else "SIGTERM"  # torch ends ranks by the latter
    with begun(tmp_path, "train.py", *ENDLESS, "trainer.devices=2") as process:
        process.send_signal(signum)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + signum
    (saved,) = (tmp_path / "runs").glob("**/*.ckpt")
    assert re.fullmatch(
        f"train.py: stopped by {name}: step .* is saved in {re.escape(str(saved))}; the same command .*\n", errors
    )


def test_ctrl_c_while_the_ranks_are_started_stops_the_run(monkeypatch):
    def interrupted(*_):
        raise multiprocessing.SignalException("Ctrl-C", signal.SIGINT)

    monkeypatch.setattr(multiprocessing, "start_processes", interrupted)
    with pytest.raises(Stopped) as stopped:
        launch("posenc.training.worker", 2, {})
    assert stopped.value.exit_code == 130


def test_a_requeue_by_the_launcher_of_the_ranks_is_not_interrupted_by_slurm_s_sigterm(monkeypatch):
    def signalled(*_):
        raise multiprocessing.SignalException("time limit", signal.SIGUSR1)

    def requeue(*_):
        subprocess.check_call(["sh", "-c", "kill -TERM $$; kill -TERM $PPID; exit 0"])

    monkeypatch.setattr(multiprocessing, "start_processes", signalled)
    before = signal.signal(signal.SIGUSR1, requeue)
    try:
        with pytest.raises(Stopped):
            launch("posenc.training.worker", 2, {})
    finally:
        signal.signal(signal.SIGUSR1, before)


@LINUX
def test_ctrl_c_before_a_rank_has_its_task_prints_no_traceback():
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    two = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "1"}
    server = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    server |= {LAUNCHER: str(os.getpid())}
    rank = subprocess.Popen(
        [sys.executable, "-m", "posenc.training.worker"],
        env={**clean_environment(), **two, **server},
        stderr=subprocess.PIPE,
    )
    while "libtorch" not in Path(f"/proc/{rank.pid}/maps").read_text():  # so it imports, or waits for its task
        time.sleep(0.05)
    rank.send_signal(signal.SIGINT)
    _, errors = rank.communicate(timeout=60)
    assert (rank.returncode, errors) == (-signal.SIGINT, b"")


@LINUX
def test_a_rank_whose_launcher_has_died_before_it_started_ends():
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    environment = {**clean_environment(), LAUNCHER: str(gone.pid)}
    rank = subprocess.run([sys.executable, "-m", "posenc.training.worker"], env=environment, timeout=60)
    assert rank.returncode == -signal.SIGKILL


@LINUX
def test_no_rank_outlives_the_process_that_started_it(tmp_path):
    with begun(tmp_path, "train.py", *ENDLESS, "trainer.devices=2") as process:
        ranks = [Path(f"/proc/{process_of(rank, process.pid)}") for rank in (0, 1)]
        process.kill()
        process.communicate(timeout=60)
    while any(map(runs_on, ranks)):
        time.sleep(0.05)


def runs_on(process: Path) -> bool:
    """Whether a process is there, and no zombie that nobody has waited for."""
    try:
        return "\nState:\tZ" not in (process / "status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_sweep_of_runs_with_several_ranks_notes_those_that_fail(train, tmp_path):
    """Two ranks train each run; in the first the loss is NaN, and the next gets its turn."""
    result = train("-m", *TINY, *DDP, "trainer.devices=2", "steps=12", "optim.lr=1e9,0.001")
    assert result.returncode == 1, result.stderr
    assert len(re.findall(r"optim\.lr=1000000000\.0\S* failed: the ", result.stderr)) == 1, result.stderr
    assert len(list(tmp_path.rglob("summary.json"))) == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("pos=rop",), "pos=rop is not a choice"),
        (("trainer=cpu",), "2 ranks were started, but this trainer uses one"),
        (("trainer=ddp", "batch_size=5"), "batch_size=5 must be a multiple of the 2 devices that share it"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_is_wrong_is_said_once(arguments, sentence, tmp_path):
    result = python(*TORCHRUN, "2", "train.py", f"runs={tmp_path}/runs", "experiment=smoke", "logger=csv", *arguments)
    ours = [line for line in result.stderr.splitlines() if line.startswith("train.py: ")]
    assert len(ours) == 1
    assert sentence in ours[0]
    assert result.returncode == 1
    assert not (tmp_path / "runs").exists()
