"""What conf/trainer chooses: precision, compilation, and how long ranks wait for each other."""

from datetime import timedelta
from typing import Any

import pytest
import torch

from posenc.errors import UserError
from posenc.training import accelerator
from posenc.training.accelerator import DataParallel, FullySharded, Hardware, Precision


def test_precision_is_bf16_where_the_cpu_is_fast_at_it_and_can_be_chosen(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    for extension, precision in (("amx_bf16", "bf16-mixed"), ("avx512_bf16", "bf16-mixed"), ("avx2", "32-true")):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda extension=extension: {extension: True})
        assert Hardware(accelerator="cpu").chosen_precision() == precision
    assert Hardware(accelerator="cpu", precision="32-true").chosen_precision() == "32-true"


def test_matrix_products_in_fp32_use_tf32_on_cuda_if_the_run_is_in_bf16(monkeypatch):
    """Linear attention disables autocast."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    products: dict[Precision, str] = {"bf16-mixed": "high", "32-true": "highest"}
    for precision, chosen in products.items():
        Hardware(precision=precision, compile=False).compiled(torch.neg)
        assert torch.get_float32_matmul_precision() == chosen
    torch.set_float32_matmul_precision("highest")


def test_no_run_of_a_sweep_takes_the_matmul_precision_of_the_one_before():
    torch.set_float32_matmul_precision("high")  # as a run in bf16 on CUDA does
    Hardware(accelerator="cpu", precision="32-true").compiled(torch.neg)
    assert torch.get_float32_matmul_precision() == "highest"


def test_a_run_is_compiled_where_its_steps_are_long_enough_to_pay_for_it(monkeypatch, capsys):
    tiny: dict[str, Any] = {"tokens": 16 * 256, "layers": 4, "weights": 800_000}
    base: dict[str, Any] = {"tokens": 32 * 1024, "layers": 12, "weights": 124_000_000}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert not Hardware().choose_compile(300, **tiny).compiles()
    printed = capsys.readouterr().out
    assert "Not compiled (trainer.compile=auto): about 6 s of uncompiled steps" in printed
    assert printed.endswith("trainer.compile=true overrides this.\n")
    assert Hardware().choose_compile(100_000, **tiny).compiles()
    assert not Hardware().choose_compile(100, **base).compiles()
    assert DataParallel().choose_compile(1000, **base).compiles()
    assert capsys.readouterr().out.splitlines()[-1].startswith("Compiled (trainer.compile=auto): about 122 s")
    assert Hardware(compile=True).choose_compile(1, **tiny).compiles()
    assert Hardware(cuda_graphs=True).choose_compile(1, **tiny).compiles()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert not Hardware().choose_compile(100_000, **base).compiles()
    assert capsys.readouterr().out == ""


def test_no_more_ranks_are_started_than_the_machine_can_have(monkeypatch):
    monkeypatch.setattr(accelerator.os, "cpu_count", lambda: 2)
    assert DataParallel(accelerator="cpu", devices=8).world_size() == 8
    with pytest.raises(UserError, match=r"^9 ranks on this machine: the maximum is 8$"):
        DataParallel(accelerator="cpu", devices=9).world_size()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    assert DataParallel().world_size() == 4
    with pytest.raises(UserError, match=r"^8 ranks on this machine: the maximum is 4, one for each GPU that this"):
        DataParallel(devices=8).world_size()


def test_ranks_need_cuda_or_the_cpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    with pytest.raises(ValueError, match="^accelerator=auto: DDP and FSDP need CUDA GPUs or the CPU; use cpu$"):
        DataParallel()


@pytest.mark.parametrize("ranks", [DataParallel, FullySharded])
def test_ranks_wait_for_each_other_as_long_as_trainer_timeout_says(ranks):
    assert ranks(accelerator="cpu", timeout=7).strategy()._timeout == timedelta(seconds=7)


@pytest.mark.parametrize(
    ("devices", "world", "sentence"),
    [
        (3, 4, "trainer.devices=3: 2 ranks were started on this machine; leave it at auto"),
        ("auto", 5, "5 ranks were started, not the same number on each machine"),
    ],
)
def test_ranks_that_were_started_must_be_as_many_as_given_and_alike_on_each_machine(
    devices, world, sentence, monkeypatch
):
    started = {"RANK": 1, "WORLD_SIZE": world, "LOCAL_RANK": 1, "LOCAL_WORLD_SIZE": 2, "MASTER_ADDR": "localhost"}
    for name, value in {**started, "MASTER_PORT": 1}.items():
        monkeypatch.setenv(name, str(value))
    with pytest.raises(UserError, match=sentence):
        DataParallel(accelerator="cpu", devices=devices).world_size()
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert DataParallel(accelerator="cpu").world_size() == 4
