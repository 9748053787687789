"""Several ranks train one run, to the curve of one."""

import json
import re
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch

from posenc.model import Transformer
from posenc.model.cross_entropy import LARGE_VOCAB
from posenc.objectives.objective import loss_of
from posenc.positions import Rotary
from posenc.storage.checkpoint_files import newest_first
from posenc.storage.csv_files import read_csv
from tests import warm
from tests.conftest import ROOT, clean_environment, only

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
