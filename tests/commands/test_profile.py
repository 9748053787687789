"""Where the time of a step goes, through the real command line."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from posenc.commands.profile import PHASES, TOP, TRACED, Clock, main, training_step, write_trace
from posenc.config.instantiate import build
from posenc.training.accelerator import Hardware
from posenc.training.experiment import Experiment
from tests.conftest import ROOT, composed, only, python


def profile(*arguments: object) -> subprocess.CompletedProcess[str]:
    return python("-m", "posenc.profile", *arguments)


@pytest.fixture(scope="module")
def profiled(tmp_path_factory) -> tuple[Path, str]:
    """The folder of the runs and what was printed."""
    runs = tmp_path_factory.mktemp("profiled") / "runs"
    result = profile("experiment=smoke", f"runs={runs}", "trainer.accelerator=cpu")
    assert (result.returncode, result.stderr) == (0, "")
    return runs, result.stdout


def table(printed: str, header: str) -> list[tuple[str, float]]:
    """Name and share of each row of the table under a header."""
    rows = printed.partition(f"\n{header}")[2].partition("\n\n")[0].splitlines()[1:]
    matches = [re.match(r"(.+?) {2,}.* ([\d.]+)%$", row) for row in rows]
    return [(match[1], float(match[2])) for match in matches if match]


def events(trace: Path) -> list[str]:
    """The name of every range of time in a trace."""
    return [event["name"] for event in json.loads(trace.read_text())["traceEvents"] if event.get("ph") == "X"]


def test_the_ten_dearest_operations_come_dearest_first_and_are_shares_of_one_whole(profiled):
    shares = [share for _, share in table(profiled[1], "operation")]
    assert len(shares) == TOP == 10
    assert shares == sorted(shares, reverse=True)
    assert 30 < sum(shares) <= 100


def test_the_phases_make_up_the_step(profiled):
    phases = table(profiled[1], "phase")
    assert [name for name, _ in phases] == list(PHASES)
    assert sum(share for _, share in phases) == pytest.approx(100, abs=0.3)
    assert re.search(r"^step +[\d.]+ +[\d,]+ tokens/s$", profiled[1], re.MULTILINE)


def test_the_trace_holds_every_phase_of_every_traced_step_and_the_dearest_operation(profiled):
    runs, printed = profiled
    names = events(only(runs / "profiles"))
    assert [names.count(phase) for phase in PHASES] == [TRACED] * len(PHASES)
    start, _, end = table(printed, "operation")[0][0].partition("..")  # long names are shortened in the middle
    assert any(name.startswith(start) and name.endswith(end) for name in names)


def test_nothing_but_the_trace_is_written(profiled):
    runs, printed = profiled
    assert [str(file.relative_to(runs)) for file in runs.rglob("*")] == ["profiles", "profiles/rope-tiny-cpu.json"]
    assert f"Trace: {runs}/profiles/rope-tiny-cpu.json" in printed


def test_a_second_profile_lies_beside_the_first(profiled):
    runs, _ = profiled
    first = runs / "profiles" / "rope-tiny-cpu.json"
    before = first.read_bytes()
    result = profile("experiment=smoke", "trainer=cpu", f"runs={runs}")
    assert f"Trace: {runs}/profiles/rope-tiny-cpu-2.json" in result.stdout
    assert first.read_bytes() == before
    (runs / "profiles" / "rope-tiny-cpu-2.json").unlink()


def test_what_is_profiled_is_what_the_arguments_describe(profiled, tmp_path):
    out = tmp_path / "deeper" / "linear.json"
    result = profile("experiment=smoke", "attention=linear", "pos=none", f"runs={tmp_path}/runs", "--out", out)
    assert result.returncode == 0, result.stderr
    softmax, linear = set(events(only(profiled[0] / "profiles"))), set(events(out))
    assert "aten::cumsum" in linear - softmax
    assert "aten::_softmax" in softmax - linear
    assert not (tmp_path / "runs").exists()


def test_the_steps_profiled_are_the_first_that_are_trained():
    """As `Experiment.training_step` takes them, to the bit, which takes those of a run."""
    config = composed("experiment=smoke", "trainer=cpu", "pos=learned")
    hardware, device = Hardware("cpu", "32-true"), torch.device("cpu")
    experiment = Experiment.of(config)
    step = experiment.training_step(hardware, device)
    batches = experiment.batches(experiment.prepare(build(config, "data"), "kjv")).stream(0, 2)
    expected = [step(*experiment.objective.inputs_and_targets(*batch)).item() for batch in batches]
    profiled = training_step(config, "kjv", hardware, Clock(device))
    assert [profiled().item() for _ in expected] == expected


def test_a_trace_is_written_through_no_link_that_lies_in_wait(tmp_path):
    (tmp_path / "victim").write_text("theirs")
    (tmp_path / ".mine.json").symlink_to("victim")
    with torch.profiler.profile() as profiler:
        torch.ones(1).exp()
    write_trace(profiler, tmp_path / "mine.json")
    assert (tmp_path / "victim").read_text() == "theirs"
    assert "aten::exp" in events(tmp_path / "mine.json")
    assert {file.name for file in tmp_path.iterdir()} == {".mine.json", "mine.json", "victim"}


def test_too_little_memory_is_told_with_what_to_lower(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("posenc.commands.profile.training_step", lambda *_: lambda: torch.empty(2**60))
    with pytest.raises(SystemExit) as ended:
        main(["experiment=smoke", "trainer=cpu", f"runs={tmp_path}/runs"])
    assert ended.value.code == 1
    assert "out of memory: lower one of batch_size=" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_help_shows_how_it_is_called_and_imports_nothing_heavy():
    code = (
        "import sys\nfrom posenc.commands.profile import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "assert not {'torch', 'lightning', 'numpy'} & set(sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "python -m posenc.profile pos=rope model=small trainer.compile=true" in result.stdout
