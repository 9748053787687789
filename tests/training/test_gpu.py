"""What only a GPU can show."""

import json

import numpy as np
import pytest
import torch

from posenc.storage.checkpoint_files import newest_first
from posenc.storage.csv_files import read_csv
from tests.benchmarks.scripts import script
from tests.conftest import composed, only

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU on this machine"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # torch's compiler imports and does what torch deprecates
]


@pytest.mark.parametrize("compiled", ["false", "true"])
def test_a_gpu_is_used_by_itself_in_its_fast_precision(compiled, train, tmp_path):
    result = train("experiment=smoke", "logger=csv", f"trainer.compile={compiled}")
    assert result.returncode == 0, result.stderr
    summary = json.loads((only(tmp_path / "runs" / "smoke" / "rope") / "summary.json").read_text())
    assert summary["hardware"] == torch.cuda.get_device_name()
    assert summary["precision"] == ("bf16-mixed" if torch.cuda.get_device_capability() >= (8, 0) else "32-true")


def test_the_gpu_begins_with_the_weights_of_the_cpu(train, tmp_path):
    first = {}
    for accelerator in ("cpu", "gpu"):
        arguments = (f"name={accelerator}", f"trainer.accelerator={accelerator}", "trainer.precision=32-true")
        assert train("experiment=smoke", "logger=csv", *arguments).returncode == 0
        rows = (only(tmp_path / "runs" / accelerator / "rope") / "metrics.csv").read_text().splitlines()
        first[accelerator] = float(rows[1].split(",")[3])
    assert first["cpu"] == pytest.approx(first["gpu"], rel=1e-4)


@pytest.mark.parametrize("options", [(), ("--compile",)], ids=["eager", "compiled"])
def test_loss_and_gradients_in_bf16_are_those_of_fp32_on_the_cpu(options):
    """Every scheme, family and objective, at lengths where the kernels of attention change; linear attention in TF32.

    Compiled, each kind of attention and of loss.
    """
    result = script("precision", *options, timeout=460)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "TensorFloat32" not in result.stderr  # the compiler warns of products in fp32


LARGE_VOCABULARY = ["tokenizer=bpe", "tokenizer.vocab_size=8192"]


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
@pytest.mark.parametrize(
    "changed",
    [
        ["trainer.compile=true"],
        ["trainer.compile=false"],
        ["trainer.cuda_graphs=true"],
        ["trainer.compile=true", "objective=masked"],
        ["trainer.compile=true", "attention=linear"],
        ["trainer.compile=true", "pos.layout=interleaved"],
        ["trainer.compile=true", *LARGE_VOCABULARY],
        ["trainer.compile=false", "pos=rope_trained"],
        ["trainer.compile=true", "pos=rope_trained"],
        ["trainer.compile=true", "pos=t5"],
        *([f"pos={name}"] for name in ("alibi", "t5", "fire", "fox", "cope")),
        ["intervention=offset_mask"],
    ],
)
def test_a_step_never_waits_for_the_device(changed):
    """Batch, forward, backward, clipping, update: torch raises if one of them synchronises."""
    from posenc.commands.profile import Clock, training_step
    from posenc.config.instantiate import build

    config = composed("experiment=smoke", *changed)
    step = training_step(config, "kjv", build(config, "trainer"), Clock(torch.device("cuda")))
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    try:
        torch.cuda.set_sync_debug_mode("error")
        for _ in range(3):
            step()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("changed", [["attention=linear"], ["pos=fox", "trainer.precision=32-true"], ["pos=cope"]])
def test_cumulative_sums_are_compiled_for_validation_too(changed):
    """Without gradients it is another graph, of which torch 2.11 cannot compile some sums from 129 tokens on."""
    from posenc.config.instantiate import build
    from posenc.training.experiment import Experiment

    config = composed("trainer.compile=true", "context=256", *changed)
    model, hardware = Experiment.of(config).model.to("cuda"), build(config, "trainer")
    tokens = torch.randint(256, (16, 256), device="cuda")
    in_bf16 = hardware.chosen_precision() == "bf16-mixed"
    with torch.no_grad(), torch.autocast("cuda", torch.bfloat16, enabled=in_bf16):
        assert hardware.loss(model)(tokens, tokens).isfinite().all()


def test_a_whole_step_is_recorded():
    from torch._dynamo.utils import counters
    from torch._inductor.cudagraph_trees import get_manager

    from posenc.commands.profile import Clock, training_step
    from posenc.config.instantiate import build

    counters.clear()
    config = composed("experiment=smoke", "trainer.cuda_graphs=true")
    step = training_step(config, "kjv", build(config, "trainer"), Clock(torch.device("cuda")))
    for _ in range(4):
        step()
    assert counters["inductor"]["cudagraph_skips"] == 0
    assert counters["inductor"]["cudagraph_partitions"] == 0  # counted where a graph is not recorded as one
    manager = get_manager(torch.cuda.current_device(), create_if_none_exists=False)
    assert manager is not None  # a graph may also be skipped without being counted
    assert any(manager.roots.values())


def test_a_step_replayed_as_a_cuda_graph_is_the_same(train, tmp_path):
    curves = []
    for name, graphs in (("replayed", "true"), ("launched", "false")):
        arguments = (f"name={name}", f"trainer.cuda_graphs={graphs}", "trainer.precision=32-true")
        result = train("experiment=smoke", "logger=csv", *arguments)
        assert result.returncode == 0, result.stderr
        rows = (only(tmp_path / "runs" / name / "rope") / "metrics.csv").read_text().splitlines()[1:]
        curves.append([float(row.split(",")[3]) for row in rows])
    assert curves[0] == pytest.approx(curves[1], rel=1e-3)


def test_a_run_resumes_to_the_curve_it_would_have_had(train, tmp_path):
    arguments = ("experiment=smoke", "logger=csv", "trainer.precision=32-true", "checkpoint_seconds=0")
    curves = []
    for _ in range(2):
        result = train(*arguments)
        assert result.returncode == 0, result.stderr
        run = only(tmp_path / "runs" / "smoke" / "rope")
        curves.append([float(row["train_loss"]) for row in read_csv(run / "metrics.csv")])
        (run / "summary.json").unlink()  # the run is not finished
        newest_first(run / "checkpoints")[0].unlink()
    assert "Resuming from step-000000010" in result.stdout
    assert curves[0] == pytest.approx(curves[1], rel=1e-3)


@pytest.mark.parametrize("window", [17, 32])  # of which one may meet the alignment of a vectorised gather
def test_the_tokens_lie_on_the_gpu(window):
    from posenc.data.batches import Batches
    from posenc.data.tokens import Tokens

    tokens = Tokens(np.arange(60_000, dtype=np.uint16), "print")
    on_disk = Batches(tokens, 0, 8, window)
    on_gpu = on_disk.on(torch.device("cuda"))
    assert on_gpu.resident is not None
    assert on_gpu.resident.is_cuda
    assert torch.equal(on_gpu.batch(3).cpu(), on_disk.batch(3))
