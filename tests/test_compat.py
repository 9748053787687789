"""The private parts of libraries that `posenc.compat` uses are there; a new version may have moved them.

Seen in torch 2.13.0, lightning 2.6.6, torchmetrics 1.9, hydra-core 1.3.8 and wandb 0.31.0.
"""

import inspect
import lzma
import os
import subprocess
import sys

import pytest
import torch

from posenc import compat


def test_torch_the_gradient_of_a_softmax():
    logits = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    gradient = torch.randn(3, 5, dtype=torch.float64)
    probs = logits.softmax(-1)
    (wanted,) = torch.autograd.grad(probs, logits, gradient)
    assert torch.allclose(compat.softmax_backward(gradient, probs.detach()), wanted)


def test_torch_dynamo_is_imported_and_torchmetrics_without_what_can_be_imported_afterwards(tmp_path):
    """In a process of its own: this one has imported them."""
    (tmp_path / "torchvision").mkdir()  # GPU images have it
    (tmp_path / "torchvision/__init__.py").write_text("raise AssertionError('torchvision was imported')")
    code = """if True:
        import sys
        from posenc.compat import import_dynamo, import_torchmetrics
        assert "torch._dynamo" not in sys.modules
        import_dynamo()
        assert "torch._dynamo" in sys.modules
        import_torchmetrics()
        import lightning.pytorch
        assert "torchmetrics" in sys.modules
        assert not {"matplotlib", "scipy", "scipy.signal", "transformers"} & sys.modules.keys()
        import matplotlib.pyplot, scipy.signal
        assert scipy.signal.convolve([1], [2]) == [2]
        assert matplotlib.pyplot.figure().axes == []
    """
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": path})


def test_python_leaves_out_what_is_damaged_after_the_first_xz_stream(tmp_path):
    (tmp_path / "a.xz").write_bytes(lzma.compress(b"a") + b"damaged")
    with lzma.open(tmp_path / "a.xz") as stream:
        assert stream.read() == b"a"
    with compat.open_xz(tmp_path / "a.xz") as stream, pytest.raises(lzma.LZMAError):
        stream.read()


def test_lightning_asks_for_sigterm_in_every_step():
    from lightning.pytorch import Trainer
    from lightning.pytorch.loops.training_epoch_loop import _TrainingEpochLoop

    assert "self._broadcast_sigterm_tensor()" in inspect.getsource(_TrainingEpochLoop)
    trainer = Trainer(logger=False, enable_checkpointing=False, accelerator="cpu")
    compat.without_sigterm_broadcast(trainer)
    assert trainer.fit_loop.epoch_loop._broadcast_sigterm_tensor() is None  # type: ignore[func-returns-value]


def test_hydra_s_flags():
    options = {option for action in compat.hydra_arguments()._actions for option in action.option_strings}
    assert {"--help", "--cfg", "--multirun", "--config-name"} <= options


def test_wandb_s_service_is_the_process_that_it_started(tmp_path):
    """In a process of its own: wandb keeps one service for as long as a process lives."""
    code = """if True:
        import wandb
        from posenc.compat import wandb_service
        assert wandb_service() is None
        with wandb.init(mode="offline"):
            assert wandb_service().poll() is None
    """
    pytest.importorskip("wandb")
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, capture_output=True)


def test_shapes_alone_need_no_autocast_and_tensors_are_kept_out_of_it():
    with compat.without_autocast(torch.zeros(1, device="meta")):
        pass
    with torch.autocast("cpu", torch.bfloat16), compat.without_autocast(torch.zeros(1)):
        assert (torch.ones(1, 1) @ torch.ones(1, 1)).dtype == torch.float32


def test_every_error_of_torch_compile_is_one_of_its_own():
    from torch._dynamo.exc import BackendCompilerFailed
    from torch._inductor.exc import GPUTooOldForTriton, InductorError, TritonMissing

    for kind in (BackendCompilerFailed, GPUTooOldForTriton, InductorError, TritonMissing):
        assert issubclass(kind, compat.compiler_error())
