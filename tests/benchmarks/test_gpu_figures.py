"""benchmarks/gpu.py and the scripts that it runs, at toy size."""

import json
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from posenc.config.schema import check
from tests.benchmarks.scripts import cells, module, script
from tests.conftest import ROOT, composed, python

PARTS = ["probe", "claim_map"]
"""One without and one with runs whose files are kept."""


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    """A folder with results, the options that produced them, and what was printed."""
    folder = tmp_path_factory.mktemp("a GPU")
    options = ("--quick", "--runs", folder / "runs", "--parts", ",".join(PARTS))
    process = script("gpu", *options, "--out", folder / "out")
    assert process.returncode == 0, process.stderr
    return folder, options, process.stdout


def command(part, runs="runs"):
    """The quick command of a part."""
    (line,) = next(one.quick for one in module("gpu_parts").PARTS if one.name == part)
    return shlex.split(line.format(runs=runs))


def quick(part, runs="runs"):
    """The output of a part's quick command, in a copy of a warm Python instead of a fresh one."""
    process = python(*command(part, runs))
    assert process.returncode == 0, process.stderr
    return process.stdout


def test_every_part_is_run_once_and_is_on_the_page(session):
    folder, _, printed = session
    assert printed.splitlines() == [f"{part}: done" for part in PARTS]
    page = (folder / "out" / "gpu.md").read_text()
    rows = cells(page)
    assert [rows[part][1] for part in PARTS] == ["done", "done"]
    assert "attention, causal: aten::" in rows["probe"][4]
    assert re.fullmatch(r"rope, learning rate 0.003, seed 0, 10 steps: \d\.\d{4} nats per token", rows["claim_map"][4])
    assert "python train.py runs=runs logger=csv experiment=smoke" in page
    results = json.loads((folder / "out" / "gpu.json").read_text())
    (claim_map,), (probe,) = (results[part].values() for part in ("claim_map", "probe"))
    assert "validation loss" in claim_map["output"]
    assert "attention, causal: aten::" in probe["output"]


def test_results_and_finished_runs_are_reused(session):
    folder, options, _ = session
    new = ("--out", folder / "new", "--from", folder / "out", "--runs", folder / "new-runs")
    assert script("gpu", *options, *new).stdout.splitlines() == [f"{part}: already done" for part in PARTS]
    (summary,) = folder.glob("new-runs/claim_map/**/summary.json")
    assert not (summary.parent / "checkpoints").exists()
    assert (summary.parent / "metrics.csv").exists()
    assert (folder / "new" / "claim_map.tar.gz").exists()  # for the next one that reuses these
    script("gpu", *options, "--out", folder / "new", "--runs", folder / "another disk")
    assert len(list(folder.glob("another disk/claim_map/**/summary.json"))) == 1
    assert "there is no folder" in script("gpu", "--from", folder / "nowhere").stderr


def test_another_chip_has_a_result_of_its_own(session, tmp_path):
    folder, _, _ = session
    results = json.loads((folder / "out" / "gpu.json").read_text())
    ((chip, probe),) = results["probe"].items()
    other = {"probe": {"another chip": {**probe, "chip": "another chip"}}}
    (tmp_path / "gpu.json").write_text(json.dumps(other))
    options = ("--quick", "--out", tmp_path / "out", "--from", tmp_path, "--parts", "probe")
    assert script("gpu", *options).stdout == "probe: done\n"
    merged = json.loads((tmp_path / "out" / "gpu.json").read_text())
    assert set(merged["probe"]) == {"another chip", chip}
    page = (tmp_path / "out" / "gpu.md").read_text()
    assert all(f"| probe | {one} | done |" in page for one in merged["probe"])


def test_an_attempt_that_fails_does_not_replace_the_result_of_an_earlier_source(session, tmp_path):
    folder, _, _ = session
    (tmp_path / "file").write_text("no folder for runs")
    results = json.loads((folder / "out" / "gpu.json").read_text())
    ((chip, earlier),) = results["claim_map"].items()
    earlier["source"] = "earlier"
    (tmp_path / "gpu.json").write_text(json.dumps(results))
    options = ("--quick", "--out", tmp_path, "--runs", tmp_path / "file", "--parts", "claim_map")
    assert script("gpu", *options).stdout == "claim_map: exit code 2\n"
    (kept,) = json.loads((tmp_path / "gpu.json").read_text())["claim_map"].values()
    attempt = kept.pop("attempt")
    assert kept == earlier
    assert attempt["status"] == "exit code 2"
    again = script("gpu", *options[:-1], "claim_map,probe").stdout  # what has failed comes last
    assert again.splitlines() == ["probe: already done", "claim_map: exit code 2"]


@pytest.mark.parametrize("go_on", [False, True])
def test_an_arm_that_fails_does_not_keep_the_others_from_their_runs(go_on):
    lines = ["-c 'print(1); raise SystemExit(3)'", "-c 'print(2)'"]
    result = module("gpu_processes").run_commands(lines, 60, go_on)
    assert (result["status"], result["output"]) == ("exit code 3", "1\n2\n" if go_on else "1\n")


def test_a_part_that_fails_is_repeated_after_the_others_and_sets_the_exit_code(tmp_path):
    (tmp_path / "file").write_text("no folder for runs")
    options = ("--quick", "--out", tmp_path / "out", "--runs", tmp_path / "file", "--parts", "claim_map,probe")
    first, second = (script("gpu", *options) for _ in range(2))
    assert (first.returncode, first.stdout) == (1, "claim_map: exit code 2\nprobe: done\n")
    assert (second.returncode, second.stdout) == (1, "probe: already done\nclaim_map: exit code 2\n")


def test_a_part_that_resumes_is_killed_when_the_time_is_over_and_another_is_not_started(tmp_path):
    late = ("--out", tmp_path, "--budget", "1", "--parts")
    killed = script("gpu", "--quick", *late, "claim_map", "--runs", tmp_path / "runs")
    assert (killed.returncode, killed.stdout) == (0, "claim_map: timed out; the same command resumes it\n")
    assert script("gpu", *late, "probe").stdout == "probe: does not fit in the time left; the same command runs it\n"


def test_what_a_part_has_printed_is_kept_when_the_call_is_terminated():
    gpu = module("gpu")
    code = "import os, signal, time; print(1, flush=True); os.kill(os.getppid(), signal.SIGTERM); time.sleep(600)"
    before = signal.signal(signal.SIGTERM, gpu.terminated)
    try:
        result = gpu.run_commands([f"-c {shlex.quote(code)}"], 60)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN  # after which no other part is started
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (result["status"], result["output"]) == ("timed out", "1\n")


def test_a_command_is_killed_with_its_processes_also_with_one_in_a_session_of_its_own(tmp_path):
    code = """if True:
        import subprocess, sys, time
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
        print(child.pid, flush=True)
        time.sleep(600)
    """
    with (tmp_path / "output").open("w+") as output:
        assert module("gpu_processes").run_command([sys.executable, "-c", code], output, 5) == "timed out"
        output.seek(0)
        command_line = Path(f"/proc/{output.read().strip()}/cmdline")
    until = time.monotonic() + 30
    while command_line.exists() and command_line.read_bytes():  # empty if nobody has waited for it yet
        assert time.monotonic() < until


def test_processes_that_save_after_the_end_of_their_parent_are_waited_for(tmp_path):
    child = f"""if True:
        import os, pathlib, time
        parent = os.getppid()
        while os.getppid() == parent:
            time.sleep(0.02)
        time.sleep(0.5)
        pathlib.Path({str(tmp_path / "saved")!r}).touch()
    """
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    with (tmp_path / "output").open("w+") as output:
        assert module("gpu_processes").run_command([sys.executable, "-c", code], output, 12) == "timed out"
    assert (tmp_path / "saved").exists()


def test_finished_runs_are_kept_without_checkpoints_and_with_what_a_search_chose(tmp_path):
    kept = ["search.json", "rope/metrics.csv", "rope/summary.json", "rope/source.txt"]
    for name in (*kept[:3], "rope/checkpoints/a.ckpt", "unfinished/metrics.csv"):
        (tmp_path / "runs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "runs" / name).write_text("")
    gpu = module("gpu")
    assert gpu.pack(tmp_path / "runs", tmp_path / "part.tar.gz", "first") == ["first"]
    assert gpu.pack(tmp_path / "runs", tmp_path / "part.tar.gz", "of a later call") == ["first"]
    gpu.unpack(tmp_path / "part.tar.gz", tmp_path / "new")
    assert {str(file.relative_to(tmp_path / "new")) for file in (tmp_path / "new").rglob("*.*")} == set(kept)
    assert not (tmp_path / "runs" / "rope" / "checkpoints").exists()


def test_a_part_without_its_text_says_so(tmp_path):
    refused = script("gpu", "--out", tmp_path, "--parts", "probe,claim_map")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "--data is missing: some of these parts read a text" in refused.stderr


def test_every_run_has_a_valid_configuration():
    every = [line for part in module("gpu_parts").PARTS for line in (*part.commands, *part.quick)]
    lines = {line for line in every if line.startswith("train.py")}
    assert len(lines) > 8
    for line in lines:
        words = shlex.split(line.format(runs="runs", data="README.md"))[1:]
        check(composed(*(word.partition(",")[0] for word in words if word != "-m")))


def test_the_parts_are_listed_and_an_unknown_one_is_refused():
    listed = script("gpu", "--list").stdout
    page = (ROOT / "benchmarks" / "gpu.md").read_text()
    for part in module("gpu_parts").PARTS:
        assert part.name in listed
        assert re.search(rf"\| (\w+, )*{part.name}\b", page), part.name
    assert "there is no nonsense" in script("gpu", "--parts", "nonsense").stderr


@pytest.mark.parametrize(
    "name",
    [
        "test_gpu",
        "train",
        "roofline",
        "rotary",
        "scaling",
        "precision_compiled",
        "compiled",
        "peers_litgpt",
        "peers_llama",
    ],
)
def test_the_output_of_a_part_has_what_answers_its_aim(name, tmp_path):
    (part,) = (one for one in module("gpu_parts").PARTS if one.name == name)
    assert module("gpu_page").came_out(part, quick(name, tmp_path))


def test_every_scheme_is_compared_with_the_sinusoid():
    rows = cells(quick("schemes"))
    assert rows["sinusoidal"][1] == "1.000"
    assert float(rows["rope pos.layout=interleaved"][1]) > 0


def test_the_loop_of_a_run_is_compared_with_a_bare_one():
    output = quick("loop")
    rows = cells(output)
    phases = [float(row[0]) for name, row in rows.items() if name.startswith("of which")]
    assert len(phases) == 4
    assert float(rows["bare loop"][0]) > 0
    assert "times as long as the bare loop" in output


def test_parallel_runs_have_the_curves_of_sequential_ones(monkeypatch, capsys):
    def run(words, cwd, env, **_):
        process = python(*words[1:], cwd=cwd, env=env)
        assert process.returncode == 0, process.stderr
        return process

    monkeypatch.setattr(subprocess, "run", run)  # the sweeps run in copies of a warm Python
    monkeypatch.setattr("sys.argv", command("together"))
    module("together").main()
    output = capsys.readouterr().out
    assert set(cells(output)) >= {"1", "2"}
    assert "2 of 2 curves bitwise equal" in output


def test_bf16_is_compared_with_fp32(monkeypatch, capsys):
    assert "All 2 are within tolerance." in quick("precision")
    precision = module("precision")
    monkeypatch.setattr(precision, "GRADIENT", 0.001)  # smaller than bf16's error
    monkeypatch.setattr("sys.argv", ["precision", "--device", "cpu", "--lengths", "8", "--only", "pos=none"])
    assert precision.main() == 1
    assert "Out of tolerance: pos=none" in capsys.readouterr().out
