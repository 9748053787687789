"""Runs evaluated beyond their training length, through the real command line."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from posenc.commands.extrapolate import main
from posenc.evaluation.longer_windows import at_lengths
from posenc.positions import PositionScheme
from posenc.storage.csv_files import read_csv
from posenc.training.checkpoint_io import CheckpointIO
from tests.conftest import only, python

SWEEP = ("-m", "experiment=smoke", "logger=csv", "trainer=cpu", "context=16", "pos=none,learned,rope")


def extrapolate(*arguments: object) -> subprocess.CompletedProcess[str]:
    return python("-m", "posenc.extrapolate", *arguments, env={"CUDA_VISIBLE_DEVICES": ""})  # as it was trained


def report(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return python("-m", "posenc.report", folder, "--baseline", "none", *arguments)


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A finished sweep's folder, not evaluated yet."""
    runs = tmp_path_factory.mktemp("trained") / "runs"
    result = python("train.py", f"runs={runs}", *SWEEP)
    assert result.returncode == 0, result.stderr
    return runs / "smoke"


@pytest.fixture(scope="module")
def evaluated(trained, tmp_path_factory) -> tuple[Path, str]:
    """A copy of it, evaluated, and what the command printed."""
    folder = tmp_path_factory.mktemp("evaluated") / "smoke"
    shutil.copytree(trained, folder)
    configuration = run(folder, "rope") / "config.yaml"
    theirs = folder.with_name("theirs")
    configuration.write_text(configuration.read_text().replace("cache: data/cache", f"cache: {theirs}"))
    result = extrapolate(folder)
    assert (result.returncode, result.stderr) == (0, "")
    assert not theirs.exists(), "a run's own configuration says where to write here"
    return folder, result.stdout


@pytest.fixture
def folder(trained, tmp_path) -> Path:
    return shutil.copytree(trained, tmp_path / "smoke")


@pytest.fixture
def again(evaluated, tmp_path) -> Path:
    """A copy of the evaluated folder."""
    return shutil.copytree(evaluated[0], tmp_path / "smoke")


def run(folder: Path, scheme: str) -> Path:
    return only(folder / scheme, "seed0-*")


def lengths(folder: Path, scheme: str) -> dict:
    return json.loads((run(folder, scheme) / "lengths.json").read_text())


@pytest.mark.parametrize("scheme", ["none", "learned", "rope"])
def test_the_checkpoint_has_the_validation_loss_that_the_run_wrote_down(evaluated, scheme):
    summary = json.loads((run(evaluated[0], scheme) / "summary.json").read_text())
    # Float32 means of 64 tokens, in batches of other sizes: in another order they differ by 2^-24 for each.
    assert lengths(evaluated[0], scheme)["val_loss"] == pytest.approx(summary["val_loss"], rel=1e-5)
    once = lengths(evaluated[0], scheme)["entries"][0]
    assert (once["times"], once["length"]) == (1, 16)
    assert once["bits_per_byte"] == pytest.approx(summary["bits_per_byte"], abs=0.3)  # other windows of the text


def test_every_length_has_an_entry_but_those_past_the_table(evaluated):
    for scheme in ("none", "rope"):
        entries = lengths(evaluated[0], scheme)["entries"]
        assert [entry["length"] for entry in entries] == [16, 20, 24, 32, 64, 128]
        assert all(0 < entry["bits_per_byte"] < 9 for entry in entries)
    learned = lengths(evaluated[0], "learned")["entries"]
    assert [entry["bits_per_byte"] is None for entry in learned] == [False] + [True] * 5
    assert {entry["no_entry"] for entry in learned[1:]} == {"it supports only 16 positions"}


def test_the_table_has_a_row_a_scheme_and_fits_80_columns(evaluated):
    printed = evaluated[1]
    assert max(map(len, printed[printed.index("Bits per byte") :].splitlines())) <= 80
    assert re.search(r"rope +1 +\d\.\d{3} +\d\.\d{3} +\d\.\d{3} +\d\.\d{3} +\d\.\d{3} +\d\.\d{3}", printed)
    assert re.search(r"learned +1 +\d\.\d{3} +– +– +– +– +–", printed)
    assert "Not evaluated: learned at 1.25x, 1.5x, 2x, 4x, 8x: it supports only 16 positions." in " ".join(
        printed.split()
    )
    assert "In windows of 32 tokens, twice the training length, a byte costs" in printed


def test_too_little_memory_for_one_run_leaves_the_others(folder, monkeypatch, capsys):
    def memory_for_all_but_none(trained, tokens):
        return torch.empty(2**60) if trained.model.scheme.__class__ is PositionScheme else at_lengths(trained, tokens)

    monkeypatch.setattr("posenc.evaluation.longer_windows.at_lengths", memory_for_all_but_none)
    main([str(folder)])
    (told,) = capsys.readouterr().err.splitlines()
    assert re.search(r"/none/seed0\S* is not evaluated: out of memory", told)
    assert len(list(folder.glob("*/*/lengths.json"))) == 2


def test_a_second_call_evaluates_nothing_and_prints_the_same_table(evaluated, again):
    before = {file: file.read_text() for file in again.glob("*/*/lengths.json")}
    for file in before:
        file.touch()
    times = {file: file.stat().st_mtime_ns for file in before}
    result = extrapolate(again)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.count("evaluated before") == 3
    assert {file: file.stat().st_mtime_ns for file in before} == times
    first, second = (text[text.index("Bits per byte") :] for text in (evaluated[1], result.stdout))
    assert first == second
    assert "evaluated in" in extrapolate(again, "--again").stdout
    assert all(file.stat().st_mtime_ns > times[file] for file in before)
    assert {file: file.read_text() for file in before} == before


def test_a_checkpoint_that_has_changed_is_evaluated_again(again):
    scale_weight(run(again, "rope"), "model.norm.weight", 1.001)
    before = lengths(again, "rope")
    result = extrapolate(again)
    assert (result.returncode, result.stdout.count("evaluated before")) == (0, 2)
    assert lengths(again, "rope")["checkpoint"] != before["checkpoint"]
    assert lengths(again, "rope")["entries"] != before["entries"]


def test_the_checksum_is_that_of_the_newest_checkpoint_that_is_intact(again):
    (run(again, "rope") / "checkpoints" / f"step-000000021-{'0' * 16}.ckpt").write_bytes(b"damaged")
    result = extrapolate(again)
    assert (result.returncode, result.stdout.count("evaluated before")) == (0, 3)


def test_a_file_that_is_damaged_or_of_another_run_is_not_trusted(again):
    sound = (run(again, "rope") / "lengths.json").read_text()
    (run(again, "rope") / "lengths.json").write_text(sound[:500])
    shutil.copy(run(again, "learned") / "lengths.json", run(again, "none") / "lengths.json")
    told = " ".join(report(again).stdout.split())
    assert "lengths.json cannot be read: " in told
    assert "lengths.json cannot be used: it belongs to learned/seed0-" in told
    result = extrapolate(again)
    assert result.returncode == 0
    assert result.stderr.count("lengths.json cannot be ") == 2
    assert (run(again, "rope") / "lengths.json").read_text() == sound


def test_runs_whose_last_checkpoint_is_lost_are_named_and_the_others_go_on(folder):
    shutil.rmtree(run(folder, "none") / "checkpoints")
    last = only(run(folder, "learned") / "checkpoints")
    last.rename(last.with_name(last.name.replace("20-", "10-")))
    result = extrapolate(folder)
    assert (result.returncode, result.stderr.count("\n")) == (0, 2)
    assert re.search(r"/none/seed0\S* is not evaluated: .* has no checkpoint", result.stderr)
    earlier = "its checkpoint of step 20, the last, is missing or damaged"
    assert re.search(rf"/learned/seed0\S* is not evaluated: {earlier}", result.stderr)
    assert {file.parts[-3] for file in folder.glob("*/*/lengths.json")} == {"rope"}


def test_what_a_deleted_checkpoint_came_to_still_holds(again):
    for checkpoints in again.glob("*/*/checkpoints"):
        shutil.rmtree(checkpoints)
    result = extrapolate(again)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.count("evaluated before") == 3
    refused = extrapolate(again, "--again")
    assert refused.returncode == 2
    assert "could be evaluated" in refused.stderr
    assert len(list(again.glob("*/*/lengths.json"))) == 3


def other_weights(run: Path) -> None:
    scale_weight(run, "model.embedding.weight", 3)


def scale_weight(run: Path, name: str, factor: float) -> None:
    """Change a checkpoint, with the checksum of what it then is."""
    file = only(run / "checkpoints")
    checkpoint = torch.load(file, weights_only=True)
    checkpoint["state_dict"][name] *= factor
    file.unlink()
    CheckpointIO().save_checkpoint(checkpoint, file.with_name("step-000000020"))


def half_a_checkpoint(run: Path) -> None:
    file = only(run / "checkpoints")
    file.write_bytes(file.read_bytes()[:5000])


def other_text(run: Path) -> None:
    config = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(re.sub(r"^text: .*$", "text: 0123456789abcdef", config, flags=re.M))


DAMAGES = {
    "none": (other_weights, "but summary.json has"),
    "learned": (half_a_checkpoint, "is damaged"),
    "rope": (other_text, "its text has changed since it was trained"),
}


def test_what_is_not_the_run_s_own_is_refused_in_a_sentence(folder):
    for scheme, (damage, _) in DAMAGES.items():
        damage(run(folder, scheme))
    result = extrapolate(folder)
    assert (result.returncode, result.stderr.count("\n")) == (2, 4)
    for scheme, (_, sentence) in DAMAGES.items():
        assert re.search(rf"/{scheme}/seed0\S* is not evaluated: .*{sentence}", result.stderr)
    assert not list(folder.glob("*/*/lengths.json*"))


def test_a_folder_without_finished_runs_is_refused_in_a_sentence(folder):
    for summary in folder.glob("*/*/summary.json"):
        summary.unlink()
    result = extrapolate(folder)
    assert (result.returncode, f"no run in {folder} is finished" in result.stderr) == (2, True)
    assert "Traceback" not in result.stderr


def test_the_report_shows_longer_windows_where_there_are_any(evaluated, folder, tmp_path):
    for source, there in ((evaluated[0], True), (folder, False)):
        out = tmp_path / f"out{there}"
        result = report(source, "--out", out, "--results", out / "kept")
        assert (result.returncode, result.stderr) == (0, "")
        page, readme = (out / "report.html").read_text(), (out / "kept" / "README.md").read_text()
        for wanted in ("Beyond the training length", "In windows of 32 tokens, twice the training length"):
            assert (wanted in page) == there
        assert ("posenc.extrapolate" in readme) == there
        for file in ("lengths.png", "kept/lengths.png", "kept/lengths.csv", "kept/positions.csv"):
            assert (out / file).exists() == there
    rows = read_csv(tmp_path / "outTrue" / "kept" / "lengths.csv")
    assert len(rows) == 3 * 6
    assert [row["bits_per_byte"] for row in rows if row["no_entry"]] == [""] * 5


def test_a_model_that_fills_blanks_has_no_bits_per_byte(train, tmp_path):
    result = train("experiment=smoke", "objective=masked", "logger=csv", "pos=none")
    assert result.returncode == 0, result.stderr
    told = extrapolate(tmp_path / "runs" / "smoke")
    assert told.returncode == 2
    assert re.search(r"/none/seed0\S* is not evaluated: bits per byte are not defined for a masked model", told.stderr)
    assert "Traceback" not in told.stderr
