"""benchmarks/loop.py measures the program that train.py would run."""

import pytest
import torch

from tests.benchmarks.scripts import module


@pytest.mark.parametrize(
    ("overrides", "compiled"),
    [(["steps=300"], False), (["steps=100000"], True), (["steps=100000", "trainer.compile=false"], False)],
)
def test_on_a_gpu_the_loop_is_compiled_if_the_whole_run_is(overrides, compiled, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert module("loop").compiles(["experiment=smoke", *overrides]) == compiled
