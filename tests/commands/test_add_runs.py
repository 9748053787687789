"""Finished runs are added to a study whole, once, and each with its own curve."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest

from posenc.analysis.runs import finished_runs
from posenc.analysis.study import Study
from posenc.commands.claim_map import main
from posenc.storage.csv_files import read_csv
from tests.conftest import only


@pytest.mark.parametrize("lost", ["curves.csv", "runs.csv"])
def test_taking_runs_in_again_completes_what_another_process_has_overwritten(lost, folder, tmp_path):
    shutil.copy(folder / "kept" / "plan.yaml", tmp_path)
    Study(tmp_path).add_runs([folder / "runs" / "smoke" / "rope"])
    older = (tmp_path / lost).read_text()
    Study(tmp_path).add_runs([folder / "runs" / "smoke"])
    (tmp_path / lost).write_text(older)
    Study(tmp_path).add_runs([folder / "runs" / "smoke"])
    for name in ("runs.csv", "curves.csv"):
        assert sorted(read_csv(tmp_path / name), key=str) == sorted(read_csv(folder / "kept" / name), key=str)


def test_a_table_that_stays_the_same_is_not_written_again_whatever_its_size(folder, tmp_path):
    shutil.copytree(folder / "kept", tmp_path, dirs_exist_ok=True)
    rows = (tmp_path / "curves.csv").read_text().splitlines(keepends=True)
    (tmp_path / "curves.csv").write_text("".join([rows[0], *rows[1:] * (2**20 // len(rows[1]))]))
    for name in ("runs.csv", "curves.csv"):
        os.utime(tmp_path / name, (1, 1))
    Study(tmp_path).add_runs([folder / "runs" / "smoke"])
    assert [(tmp_path / name).stat().st_mtime for name in ("runs.csv", "curves.csv")] == [1, 1]


def test_a_table_is_replaced_whole_or_not_at_all(folder, tmp_path, monkeypatch):
    shutil.copytree(folder / "kept", tmp_path, dirs_exist_ok=True)
    before = (tmp_path / "runs.csv").read_text().splitlines(keepends=True)
    (tmp_path / "runs.csv").write_text("".join(before[:-1]))

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("posenc.storage.atomic.os.replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Study(tmp_path).add_runs([folder / "runs" / "smoke"])
    assert (tmp_path / "runs.csv").read_text() == "".join(before[:-1])


def test_the_curve_of_a_run_whose_row_was_deleted_is_that_of_the_run_added_in_its_place(folder, tmp_path):
    shutil.copy(folder / "kept" / "plan.yaml", tmp_path)
    shutil.copy(folder / "kept" / "curves.csv", tmp_path)
    curves = (tmp_path / "curves.csv").read_text()
    (tmp_path / "curves.csv").write_text(re.sub(r"\d\.\d+$", "9.5", curves, flags=re.M))  # of earlier runs
    Study(tmp_path).add_runs([folder / "runs" / "smoke"])
    assert (tmp_path / "curves.csv").read_text() == curves


def test_of_a_run_trained_twice_the_newer_is_added(folder, tmp_path):
    shutil.copy(folder / "kept" / "plan.yaml", tmp_path)
    older = only(folder / "runs" / "smoke" / "rope")
    newer = shutil.copytree(older, tmp_path / "runs" / f"{older.name}-2")
    summary = json.loads((older / "summary.json").read_text())
    (newer / "summary.json").write_text(json.dumps(summary | {"date": "2099-01-01", "commit": "newer"}))
    Study(tmp_path).add_runs([older, newer])
    assert [row["commit"] for row in read_csv(tmp_path / "runs.csv")] == ["newer"]


def test_a_run_is_found_through_a_link_once(folder, tmp_path):
    runs = tmp_path / "runs"
    for scheme in ("rope", "sinusoidal"):
        (runs / scheme).mkdir(parents=True)
        (runs / scheme / "linked").symlink_to(folder / "runs" / "smoke" / "rope")
    (runs / "round").symlink_to(runs)
    (runs / "rope" / "a_link").symlink_to(only(folder / "runs" / "smoke" / "rope"))
    assert [run.scheme for run in finished_runs([runs])[0]] == ["rope"]


def test_what_cannot_be_read_is_named_once_and_the_others_are_taken_in(folder, tmp_path, capsys):
    kept, runs = tmp_path / "kept", tmp_path / "runs"
    kept.mkdir()
    shutil.copy(folder / "kept" / "plan.yaml", kept)
    trained = only(folder / "runs" / "smoke" / "rope")
    broken = {
        "config.yaml": ("seed", "["),
        "metrics.csv": ("step", "pets"),
        "summary.json": ("commit", "committed"),
        "another/config.yaml": ("  pos: rope", "  pos: compass"),
        "text/config.yaml": ("  lr: 0.003", "  lr: low"),
        "infinite/config.yaml": ("  lr: 0.003", "  lr: .inf"),
    }
    shutil.copytree(trained, runs / "sound" / trained.name)
    for file, (there, instead) in broken.items():
        damaged = runs / file.replace("/", "-") / trained.name
        shutil.copytree(trained, damaged)
        damaged = damaged / Path(file).name
        assert there in damaged.read_text()
        damaged.write_text(damaged.read_text().replace(there, instead, 1))
    main([str(runs), str(tmp_path / "nowhere"), "--results", str(kept)])
    assert len((kept / "runs.csv").read_text().splitlines()) == 1 + 1
    said = capsys.readouterr().err.splitlines()
    assert len(said) == len(broken) + 1, said
    for place in (tmp_path / "nowhere", *(runs / file.replace("/", "-") for file in broken)):
        assert sum(str(place) in line for line in said) == 1, said


def test_runs_in_another_precision_are_left_out(folder, tmp_path, capsys):
    plan = (folder / "kept" / "plan.yaml").read_text()
    (tmp_path / "plan.yaml").write_text(plan.replace("32-true", "bf16-mixed"))
    with pytest.raises(SystemExit):
        main([str(folder / "runs"), "--results", str(tmp_path)])
    said = capsys.readouterr().err.splitlines()
    assert [" was trained in 32-true, not in bf16-mixed; left out" in line for line in said] == [True, True, False]


def test_what_another_process_adds_while_runs_are_read_is_kept(folder, tmp_path, monkeypatch):
    shutil.copy(folder / "kept" / "plan.yaml", tmp_path)
    read, runs = "posenc.analysis.study.finished_runs", folder / "runs" / "smoke"

    def interrupted(folders):
        monkeypatch.setattr(read, finished_runs)
        Study(tmp_path).add_runs([runs / "rope"])
        return finished_runs(folders)

    monkeypatch.setattr(read, interrupted)
    Study(tmp_path).add_runs([runs / "sinusoidal"])
    for name in ("runs.csv", "curves.csv"):
        assert {row["pos"] for row in read_csv(tmp_path / name)} == {"rope", "sinusoidal"}


def test_a_run_with_the_key_of_another_but_not_its_loss_is_left_out(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(folder)  # data.path is relative
    kept = shutil.copytree(folder / "kept", tmp_path / "kept")
    again = tmp_path / "again" / "rope" / "seed0-0"
    shutil.copytree(only(folder / "runs" / "smoke" / "rope"), again)
    rows = (again / "metrics.csv").read_text().splitlines()
    columns = rows[0].split(",")
    last = dict(zip(columns, rows[-1].split(","), strict=True)) | {"val_loss": "1.5"}
    (again / "metrics.csv").write_text("\n".join([*rows[:-1], ",".join(last.values())]) + "\n")
    summary = json.loads((again / "summary.json").read_text())
    (again / "summary.json").write_text(json.dumps(summary | {"val_loss": 1.5}))
    main([str(again), "--results", str(kept), "--copying"])
    assert re.search(r"seed0-0 ends at 1\.5, this run in runs\.csv at \d\.\d+; left out", capsys.readouterr().err)
    assert not (kept / "copying.csv").exists()
    assert (kept / "runs.csv").read_text() == (folder / "kept" / "runs.csv").read_text()
