"""Whole runs through the real command line."""

import json
import math
import re
import shutil
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf

from posenc.config.compose import composed as config_and_choices
from posenc.errors import UserError, printable_lines
from posenc.evaluation.load import load
from posenc.evaluation.losses import own_windows
from posenc.objectives.objective import Sampling
from posenc.storage.csv_files import MAX_ROWS, read_csv
from posenc.storage.metrics import COLUMNS
from posenc.storage.run_directory import RunDirectory
from posenc.training.run import _check_table_sizes, run, show
from tests import warm
from tests.conftest import CONF, ROOT, clean_environment, curve, fresh_python, only, python, train_here

TINY = ("experiment=smoke", "logger=csv", "trainer=cpu")


LEARNING = ("none", "learned", "sinusoidal_matched", "rope")
"""At its default amplitude the sinusoid takes longer than these runs to leave the frequencies of bytes behind."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> tuple[Path, str]:
    """The folder `runs` with one run a scheme, long enough to learn something, and what they printed."""
    runs = tmp_path_factory.mktemp("trained") / "runs"
    result = fresh_python(
        "train.py", "-m", f"runs={runs}", f"pos={','.join(LEARNING)}", "experiment=smoke", "logger=csv",
        "model.width=64", "steps=100", "eval_every=50", "log_every=50", "batch_size=16", "eval_windows=32",
    )  # fmt: skip
    assert (result.returncode, result.stderr) == (0, "")  # no library chatters
    return runs, result.stdout


@pytest.mark.parametrize("scheme", LEARNING)
def test_every_scheme_learns_more_than_position_free_statistics(scheme, trained):
    """Uniform guessing over bytes costs 5.55 nats, byte frequencies 2.96: a model must fall below both."""
    runs, printed = trained
    run = only(runs / "smoke" / scheme, "seed0-*")
    summary = json.loads((run / "summary.json").read_text())
    assert summary["val_loss"] < 2.75
    assert 0 < summary["val_loss_se"] < 0.1
    assert summary["bits_per_byte"] == pytest.approx(summary["val_loss"] / 0.693147, rel=1e-5)
    added = [bool(row["position_share"]) for row in read_csv(run / "metrics.csv")]
    assert added == [scheme in ("learned", "sinusoidal_matched")] * 2
    assert f"written to       {run}" in printed
    assert f" 100 steps, {summary['precision']} on " in printed
    for word in ("validation loss", "bits per byte", "speed"):
        assert printed.count(f"\n  {word}  ") == len(LEARNING)


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """The folder `runs` with one finished toy run, trained without interruption."""
    runs = tmp_path_factory.mktemp("finished") / "runs"
    assert python("train.py", f"runs={runs}", *TINY).returncode == 0
    return runs


def test_a_run_directory_holds_everything(finished):
    run = only(finished / "smoke" / "rope")
    assert {file.name for file in run.iterdir()} == {
        ".lock", "attention.csv", "checkpoints", "config.yaml", "metrics.csv", "sample.txt", "summary.json"
    }  # fmt: skip
    rows = read_csv(run / "metrics.csv")
    assert tuple(rows[0]) == COLUMNS
    assert [int(row["step"]) for row in rows] == [5, 10, 15, 20]
    assert [int(row["tokens"]) for row in rows] == [1280, 2560, 3840, 5120]
    assert [bool(row["val_loss"]) for row in rows] == [False, True, False, True]
    summary = json.loads((run / "summary.json").read_text())
    wanted = "pos seed steps tokens parameters val_loss bits_per_byte seconds tokens_per_s"
    wanted += " versions hardware commit"
    assert {*wanted.split(), "peak_memory", "time"} <= summary.keys()
    assert 0 < summary["time"]["training"] <= sum(summary["time"].values())
    assert summary["seconds"] <= sum(summary["time"].values())
    assert summary["peak_memory"] > 2**20
    assert (summary["pos"], summary["steps"], summary["tokens"]) == ("rope", 20, 5120)
    assert summary["val_loss"] == float(rows[-1]["val_loss"])
    config: Any = OmegaConf.load(run / "config.yaml")
    assert config["pos"]["head_dim"] == 16
    assert config["choices"]["pos"] == "rope"


def test_a_checkpoint_is_tensors_and_plain_data_with_its_configuration(finished):
    file = only(only(finished / "smoke" / "rope") / "checkpoints", "step-000000020-*.ckpt")
    checkpoint = torch.load(file, weights_only=True)
    assert checkpoint["global_step"] == 20
    assert checkpoint["configuration"]["optim"]["lr"] == 0.003
    assert checkpoint["optimizer_states"]
    assert not [name for name in checkpoint["state_dict"] if "_orig_mod" in name or "angles" in name]


def test_a_finished_run_is_shown_and_not_trained_again(train, finished, tmp_path):
    shutil.copytree(finished, tmp_path / "runs")
    run = only(tmp_path / "runs" / "smoke" / "rope")
    before = (run / "metrics.csv").stat().st_mtime_ns
    result = train(*TINY)
    assert "This run is finished" in result.stdout
    assert "validation loss" in result.stdout
    assert (run / "metrics.csv").stat().st_mtime_ns == before
    assert train(*TINY, "rerun=true").returncode == 0
    again = only(tmp_path / "runs" / "smoke" / "rope", "*-2")
    assert curve(again) == curve(run)


def test_control_characters_of_a_sample_do_not_reach_the_terminal(finished, tmp_path, capsys):
    shutil.copytree(finished, tmp_path / "runs")
    directory = RunDirectory(only(tmp_path / "runs" / "smoke" / "rope"), "smoke", "rope", 0)
    (directory.path / "sample.txt").write_text("a\x1b]0;title\x07b")
    show(directory.summary(), directory)
    assert "a ]0;title b" in capsys.readouterr().out


def test_the_experiment_s_name_and_the_logger_do_not_change_the_curve(train, finished, tmp_path):
    assert train(*(key for key in TINY if key != "logger=csv"), "name=other").returncode == 0  # W&B, offline
    run = only(finished / "smoke" / "rope")
    other = only(tmp_path / "runs" / "other" / "rope")
    assert other.name == run.name
    assert curve(other) == curve(run)


def test_a_text_that_has_changed_under_its_path_is_another_run(train, tmp_path):
    book = tmp_path / "book.txt"
    for word in ("first", "second"):
        book.write_text(f"{word} word of many.\n" * 1000)
        result = train(*TINY, "data=text", f"data.path={book}")
        assert "This run is finished" not in result.stdout
    assert len(list((tmp_path / "runs" / "smoke" / "rope").iterdir())) == 2


def test_a_checkpoint_of_another_run_in_the_working_directory_is_not_loaded(finished, tmp_path):
    """Lightning resumes on SLURM from any hpc_ckpt_*.ckpt in its root directory, by default where one stands."""
    foreign = tmp_path / "hpc_ckpt_1.ckpt"
    shutil.copy(only(only(finished / "smoke" / "rope") / "checkpoints", "step-000000020-*.ckpt"), foreign)
    on_slurm = {"SLURM_NTASKS": "1", "SLURM_JOB_NAME": "job", "SLURM_JOB_ID": "1"}
    cache = f"cache={ROOT / 'data' / 'cache'}"
    result = python(ROOT / "train.py", *TINY, cache, cwd=tmp_path, env=on_slurm)
    assert result.returncode == 0, result.stderr
    assert curve(only(tmp_path / "runs" / "smoke" / "rope")) == curve(only(finished / "smoke" / "rope"))


def test_slow_checkpoints_and_validations_are_not_counted_as_training(tmp_path):
    """Each of ten checkpoints calls fsync at least once, which is made to take a fifth of a second."""
    code = (
        "import os, runpy, time; sync = os.fsync; os.fsync = lambda fd: (time.sleep(0.2), sync(fd));"
        "runpy.run_path('train.py', run_name='__main__')"
    )
    assert python("-c", code, f"runs={tmp_path}/runs", *TINY, "steps=100", "checkpoint_seconds=0").returncode == 0
    run = only(tmp_path / "runs" / "smoke" / "rope")
    summary = json.loads((run / "summary.json").read_text())
    assert summary["time"]["checkpoints"] >= 10 * 0.2
    apart = ("start", "checkpoints", "validation", "attention heads")
    assert summary["seconds"] <= sum(value for phase, value in summary["time"].items() if phase not in apart)


def wait_for_rows(folder: Path, count: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if any(len(read_csv(run / "metrics.csv")) >= count for run in folder.glob("*")):
            return
        time.sleep(0.002)
    raise AssertionError(f"no {count} rows in {folder} after a minute")


def test_a_second_process_is_told_who_holds_the_run(train, tmp_path):
    """Started while the first is training, with the same command."""
    command = ("train.py", f"runs={tmp_path}/runs", *TINY, "steps=4000")
    with warm.python().start(*command, cwd=ROOT, env=clean_environment()) as process:
        wait_for_rows(tmp_path / "runs" / "smoke" / "rope", 1)
        second = train(*TINY, "steps=4000")
        process.kill()
    assert second.returncode == 2
    assert f"process {process.pid} on " in second.stderr
    assert "is training this run, in " in second.stderr


def test_bits_per_byte_are_comparable_across_tokenizers(train, tmp_path):
    book = tmp_path / "book.txt"
    book.write_text("".join(f"Line {n} of a book that says little, {n * 7 % 13} times over.\n" for n in range(5000)))
    result = train(*TINY, "data=text", f"data.path={book}", "tokenizer=bpe", "tokenizer.vocab_size=300")
    assert result.returncode == 0, result.stderr
    run = only(tmp_path / "runs" / "smoke" / "rope")
    summary = json.loads((run / "summary.json").read_text())
    trained = load(run)
    predicted = own_windows(trained, trained.split(ROOT / "data" / "cache", "valid"))[:, 1:]
    size = sum(len(trained.tokenizer.decode([token])) for token in predicted.flatten().tolist())  # of ASCII
    assert summary["bits_per_byte"] == pytest.approx(
        summary["val_loss"] * predicted.numel() / math.log(2) / size, rel=1e-6
    )
    assert (run / "tokenizer.json").exists()
    sample = python("-m", "posenc.sample", run, "--prompt", "Line 1", "--tokens", "20")
    assert sample.stdout.startswith("Line 1")


def test_a_run_s_sample_is_what_its_checkpoint_writes_and_only_the_seed_changes_it(finished):
    run = only(finished / "smoke" / "rope")
    trained = load(run)

    def sample(seed: int, tokens: int = 200) -> str:
        sampling, prompt = Sampling(tokens, seed=seed), trained.objective.prompt
        return trained.objective.sample(trained.model, trained.tokenizer, prompt, trained.config["context"], sampling)

    assert (run / "sample.txt").read_text() == sample(0) + "\n"
    assert sample(1, 30) != sample(2, 30)
    on_the_cpu = {"CUDA_VISIBLE_DEVICES": ""}
    shown = python("-m", "posenc.sample", run, "--tokens", "30", "--seed", "1", env=on_the_cpu)
    assert shown.stdout == printable_lines(sample(1, 30)) + "\n"


def test_a_model_that_cannot_be_compiled_is_reported_with_what_to_do(train):
    result = train(*TINY, "trainer.compile=true", timeout=400, env={"CXX": "/nowhere/g++"}, python=fresh_python)
    assert result.returncode == 1
    assert re.fullmatch(
        r"train.py: torch.compile failed \(.*\): trainer.compile=false trains without it\n", result.stderr
    ), result.stderr


def test_a_compiled_run_is_the_same_model(train, finished, tmp_path):
    if shutil.which("c++") is None:
        pytest.skip("torch.compile needs a C++ compiler")
    result = train(*TINY, "trainer.compile=true", timeout=400, env={"TORCH_LOGS": "recompiles"}, python=fresh_python)
    assert result.returncode == 0, result.stderr
    assert result.stderr.count("Recompiling function") == 1  # after training's graph that of the validation, no other
    compiled, plain = only(tmp_path / "runs" / "smoke" / "rope"), only(finished / "smoke" / "rope")
    assert compiled.name == plain.name
    assert "compiling" in json.loads((compiled / "summary.json").read_text())["time"]
    for row, reference in zip(curve(compiled), curve(plain), strict=True):
        assert float(row["train_loss"]) == pytest.approx(float(reference["train_loss"]), rel=1e-4)


@pytest.mark.parametrize("key", ["log_every", "attention_every"])
def test_a_table_may_have_as_many_rows_as_can_be_read_and_not_one_more(key):
    longest = MAX_ROWS - 1  # beside the header
    given = {"steps": longest, "log_every": longest, "attention_every": longest, key: 1}
    settings: Any = SimpleNamespace(**given)
    _check_table_sizes(settings, {"layers": 1, "heads": 1})
    settings.steps += 1
    with pytest.raises(UserError, match=f"^{key}=1 would write 524,288 rows; the maximum is 524,287$"):
        _check_table_sizes(settings, {"layers": 1, "heads": 1})


def test_a_run_does_not_keep_the_launcher_that_started_it(tmp_path, monkeypatch):
    """Runs of one sweep that SLURM and this machine have trained are compared with each other."""
    kept: dict[str, Any] = {}
    monkeypatch.setattr("posenc.training.run._train", lambda config, *_: kept.update(config) or {})
    run(*config_and_choices(CONF, (*TINY, f"runs={tmp_path}")))
    assert kept["choices"]["pos"] == "rope"
    assert not [group for group in kept["choices"] if group.startswith("hydra")]


def test_the_result_of_a_run_is_shown_in_its_units(tmp_path, capsys):
    summary = {
        "val_loss": 2.0, "bits_per_byte": 2.885, "tokens_per_s": 12_000, "seconds": 90.0, "mfu": 0.41,
        "bigram_loss": 2.5, "unigram_loss": None, "peak_memory": 3 * 2**29,
        "time": {"start": 9.5, "training": 90.0, "logging": 0.5},
    }  # fmt: skip
    show(summary, RunDirectory(tmp_path, "smoke", "rope", 0))
    assert capsys.readouterr().out.splitlines()[:5] == [
        "  validation loss  2.0000 nats per token (bigram model: 2.5000)",
        "  bits per byte    2.8850",
        "  speed            12,000 tokens/s (41% MFU), 90 s of training",
        "  time             10% start, 90% training",
        "  peak memory      1.50 GiB",
    ]


def test_a_run_whose_class_has_changed_since_is_not_resumed(tmp_path, monkeypatch):
    run = train_here(tmp_path, "pos=learned", "steps=20")
    (run / "summary.json").unlink()
    make = torch.nn.Embedding
    table = SimpleNamespace(**{**vars(torch.nn), "Embedding": lambda rows, width: make(2 * rows, width)})
    monkeypatch.setattr("posenc.positions.additive.nn", table)
    with pytest.raises(UserError, match="does not match the model, whose code has changed: use another name=, or del"):
        train_here(tmp_path, "pos=learned", "steps=20")


def test_that_the_validation_split_has_fewer_windows_than_asked_for_is_said(tmp_path, capsys):
    text = tmp_path / "text.txt"
    text.write_text("".join(f"Line {number} of a text.\n" for number in range(5000)))
    short = ("data=text", f"data.path={text}", "steps=10", "eval_every=10", "log_every=10")
    train_here(tmp_path / "all", *short, "eval_windows=1000")
    windows = re.search(
        r"Each validation has (\d+) windows, all that the validation split has", capsys.readouterr().out
    )
    assert windows is not None
    train_here(tmp_path / "some", *short, f"eval_windows={windows[1]}")
    assert "Each validation" not in capsys.readouterr().out
