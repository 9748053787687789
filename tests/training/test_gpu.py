"""What only a GPU can show."""

import json

import pytest
import torch

from tests.conftest import only

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU on this machine")


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
