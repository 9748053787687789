"""Several ranks train one run: to the curve of one, with one voice, and to one end."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch
from torch.distributed import TCPStore
from torch.distributed.elastic import multiprocessing

from posenc.distributed.group import LOST
from posenc.distributed.launch import LAUNCHER, launch
from posenc.distributed.rank import first_host, from_srun, tasks_on
from posenc.errors import Stopped
from posenc.model import Transformer
from posenc.model.cross_entropy import LARGE_VOCAB
from posenc.objectives.objective import loss_of
from posenc.positions import Rotary
from posenc.storage.checkpoint_files import newest_first
from posenc.storage.csv_files import read_csv
from tests import warm
from tests.conftest import HANGUP, ROOT, clean_environment, only, python
from tests.faults.devices import process_of
from tests.warm import Started

TINY = ("experiment=smoke", "logger=csv", "steps=24", "log_every=3", "eval_every=6", "pos=t5", "eval_windows=6")
ON_CPU = ("trainer.accelerator=cpu", "trainer.precision=32-true")
TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node")
COMPARED = ("train_loss", "val_loss", "gradient_norm", "induction", "previous_token")

# The runs train in double precision, but each token's loss, and its gradient, is in float32, and rounded by 2^-24 at
# most. A row's numbers are sums over the 4 x 64 tokens of a batch: in another order they differ by TOKENS roundings at
# most. A gradient that a rank counts at a thousandth too much is 30 times further off.
TOKENS = 4 * 64
ROUNDING = TOKENS * 2**-24

ONE, DDP, FSDP = (("trainer=cpu",), ("trainer=ddp", *ON_CPU), ("trainer=fsdp", *ON_CPU))


def job(runs: Path, name: str, *arguments: str, stopped: bool = False) -> dict:
    return {"arguments": [f"runs={runs}", f"name={name}", *TINY, *arguments], "stopped": stopped}


def train_all(jobs: Sequence[dict], ranks: int) -> None:
    """Train runs one after the other in one set of ranks: most of the time of a toy run is starting Python."""
    program = (ROOT / "tests" / "training" / "several.py", json.dumps(list(jobs)))
    with ExitStack() as all_of_them:
        started = [
            all_of_them.enter_context(warm.python().start(*program, cwd=ROOT, env={**clean_environment(), **rank}))
            for rank in environments(ranks)
        ]
        for process in started:
            _, errors = process.communicate()
            assert process.returncode == 0, errors


def environments(ranks: int) -> list[dict[str, str]]:
    """What torchrun tells each of several ranks; one process is told nothing."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    told = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks)}
    return [{**told, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(ranks)] if ranks > 1 else [{}]


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """One run each by one, two and four ranks, and others that were handed from some to others half-way."""
    runs = tmp_path_factory.mktemp("devices") / "runs"
    masked = "objective=masked"
    by_two = [
        job(runs, "ddp-2", *DDP),
        job(runs, "fsdp-2", *FSDP),
        job(runs, "masked-2", masked, *DDP),
        job(runs, "ddp-compiled", *DDP, "trainer.compile=true"),
        job(runs, "ddp-to-one", *DDP, stopped=True),
        job(runs, "fsdp-to-one", *FSDP, stopped=True),
        job(runs, "ddp-to-fsdp", *DDP, stopped=True),
    ]
    by_one = [
        job(runs, "one", *ONE),
        job(runs, "masked", masked, *ONE),
        job(runs, "ddp-to-one", *ONE),
        job(runs, "fsdp-to-one", *ONE),
        job(runs, "one-to-ddp", *ONE, stopped=True),
        job(runs, "one-to-fsdp", *ONE, stopped=True),
    ]
    by_four = [
        job(runs, "ddp-4", *DDP),
        job(runs, "fsdp-4", *FSDP),
        job(runs, "masked-4", masked, *FSDP),
        job(runs, "ddp-to-fsdp", *FSDP),
        job(runs, "one-to-ddp", *DDP),
        job(runs, "one-to-fsdp", *FSDP),
    ]
    train_all(by_two, 2)
    train_all(by_one, 1)
    train_all(by_four, 4)
    return runs


def curve(runs: Path, name: str) -> list[list[float]]:
    rows = read_csv(only(runs / name / "t5") / "metrics.csv")
    return [[float(row[column] or 0) for column in COMPARED] for row in rows]


SAME = [
    ("one", "ddp-2"), ("one", "ddp-4"), ("one", "fsdp-2"), ("one", "fsdp-4"),
    ("masked", "masked-2"), ("masked", "masked-4"),
    ("one", "ddp-compiled"),
    ("one", "ddp-to-one"), ("one", "fsdp-to-one"), ("one", "one-to-ddp"), ("one", "one-to-fsdp"),
    ("one", "ddp-to-fsdp"),
]  # fmt: skip


@pytest.mark.parametrize(("reference", "name"), SAME, ids=[name for _, name in SAME])
def test_the_curve_is_that_of_one_process(reference, name, runs):
    expected, found = curve(runs, reference), curve(runs, name)
    assert len(expected) == 8
    for row, wanted in zip(found, expected, strict=True):
        assert row == pytest.approx(wanted, rel=ROUNDING, abs=ROUNDING)


def test_a_checkpoint_is_one_file_with_whole_tensors_whoever_wrote_it(runs):
    ours, theirs = (
        torch.load(newest_first(only(runs / name / "t5") / "checkpoints")[0], weights_only=True)
        for name in ("fsdp-4", "one")
    )
    assert shapes(ours["state_dict"]) == shapes(theirs["state_dict"])
    (ours,), (theirs,) = ours["optimizer_states"], theirs["optimizer_states"]
    assert ours["param_groups"] == theirs["param_groups"]
    assert {place: shapes(of) for place, of in ours["state"].items()} == {
        place: shapes(of) for place, of in theirs["state"].items()
    }


def shapes(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in tensors.items()}


class WithLoss(torch.nn.Module):
    """A model with a compiled loss: inputs and targets, (B, T) each -> ()."""

    def __init__(self) -> None:
        super().__init__()
        model = self.model = Transformer(LARGE_VOCAB + 1, 8, 1, 64, 2, Rotary(32))
        self.loss = torch.compile(lambda *batch: loss_of(model, *batch), fullgraph=True, backend="aot_eager")

    def forward(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return self.loss(inputs, targets)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch's compiler does it
def test_a_compiled_loss_has_its_gradients_inside_ddp_too():
    """There the compiler cuts the graph at DDP's buckets, also around the chunked loss of a large vocabulary."""
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        module, tokens = WithLoss(), torch.randint(LARGE_VOCAB, (2, 9), generator=torch.Generator().manual_seed(0))
        batch, weights = (tokens[:, :-1], tokens[:, 1:]), list(module.parameters())
        expected = torch.autograd.grad(loss_of(module.model, *batch), weights)
        torch.nn.parallel.DistributedDataParallel(module, bucket_cap_mb=1)(*batch).backward()
        for weight, gradient in zip(weights, expected, strict=True):
            torch.testing.assert_close(weight.grad, gradient)
    finally:
        torch.distributed.destroy_process_group()


def test_two_ranks_leave_and_say_what_one_does(train, tmp_path):
    """Nobody has started them: the run does."""
    spoken = {}
    for name, trainer in (("one", ONE), ("two", (*DDP, "trainer.devices=2"))):
        result = train(*TINY, f"name={name}", *trainer)
        assert (result.returncode, result.stderr) == (0, "")
        spoken[name] = [line.split()[:1] for line in result.stdout.splitlines()]
    assert spoken["one"] == spoken["two"]
    one, two = (files(only(tmp_path / "runs" / name / "t5")) for name in ("one", "two"))
    assert one == two
    again = train(*TINY, "name=two", *DDP, "trainer.devices=2")
    assert again.stdout.count("This run is finished") == 1


def files(run: Path) -> list[str]:
    """Its files, without the digits that a checkpoint's contents give its name."""
    return sorted(re.sub("-[0-9a-f]{16}", "", file.relative_to(run).as_posix()) for file in run.rglob("*"))


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


SRUN = {
    "SLURM_JOB_ID": "123456", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "20", "SLURM_PROCID": "17",
    "SLURM_LOCALID": "1", "SLURM_NODEID": "2", "SLURM_STEP_TASKS_PER_NODE": "8(x2),4",
    "SLURM_STEP_NODELIST": "gpu[07-08,11],big1",
}  # fmt: skip


def test_srun_tells_each_task_its_rank():
    assert from_srun(SRUN) == {
        "RANK": "17", "WORLD_SIZE": "20", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4",
        "MASTER_ADDR": "gpu07", "MASTER_PORT": "23456",
    }  # fmt: skip


def test_a_job_s_only_task_and_a_batch_script_are_by_themselves():
    """In a batch script SLURM_PROCID and SLURM_NTASKS are set, too: those of a step are not."""
    assert from_srun({"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_NTASKS": "8"}) == {}
    assert from_srun({**SRUN, "SLURM_STEP_NUM_TASKS": "1"}) == {}


@pytest.mark.parametrize(
    ("nodes", "first"), [("vm", "vm"), ("n1,n2", "n1"), ("gpu[01-16]", "gpu01"), ("a[3,5]b-ib,c", "a3b-ib")]
)
def test_the_first_of_slurm_s_nodes(nodes, first):
    assert first_host(nodes) == first


def test_slurm_s_tasks_a_node():
    assert [tasks_on("8(x2),4", node) for node in range(3)] == [8, 8, 4]
