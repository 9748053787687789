import json
import os
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from posenc.errors import UserError
from posenc.storage.csv_files import read_numbers
from posenc.storage.failed_jobs import FAILED_JOBS, failed_job, failed_jobs
from posenc.storage.reading import MAX_BYTES, leaves, read_mapping, read_text
from posenc.storage.run_directory import RunDirectory, find_run


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("config.yaml", b"a: &a [x, x]\nb: [*a, *a]\n", "it has aliases, or is nested too deeply"),
        ("config.yaml", b"[" * 500, "it has aliases, or is nested too deeply"),
        ("config.yaml", b"[" * 100_000, "it has aliases, or is nested too deeply"),
        ("config.yaml", b"a: !!python/object/apply:os.system [true]", "could not determine a constructor"),
        ("config.yaml", b"- a\n", "it is not a mapping"),
        ("config.yaml", b"a: {b: 1, b: 2}\n", "duplicate key b"),
        ("config.yaml", b"? [1]\n: 2\n", "unhashable"),
        ("summary.json", b'{"a": {"b": 1, "b": 2}}', "duplicate key b"),
        ("config.yaml", b"", "it is not a mapping"),
        ("config.yaml", b"\xff", "it is not UTF-8 text"),
        ("config.yaml", b" " * (MAX_BYTES + 1), "1,048,577 bytes, at most 1,048,576 are allowed"),
        ("summary.json", b"[" * 100_000, "recursion"),
        ("config.yaml", b"context: 0x" + b"f" * 5000, "it has an integer of more than 64 bits"),
        ("config.yaml", b"a: [{0x" + b"f" * 20 + b": 1}]", "it has an integer of more than 64 bits"),
        ("summary.json", b'{"seed": -18446744073709551616}', "it has an integer of more than 64 bits"),
        ("summary.json", b"{", "Expecting"),
    ],
)
def test_what_is_no_plain_mapping_is_named(name, content, sentence, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=f"{name} cannot be read: .*{sentence}"):
        read_mapping(tmp_path / name)


def test_an_interpolation_stays_the_text_that_it_is(tmp_path):
    (tmp_path / "config.yaml").write_text("a: ${oc.env:HOME}\n")
    assert read_mapping(tmp_path / "config.yaml") == {"a": "${oc.env:HOME}"}


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="descriptors are counted in /proc")
def test_the_descriptor_of_a_refused_folder_is_closed(tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(UserError, match="cannot be read"):
        read_text(tmp_path)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "summary.json")
    with pytest.raises(UserError, match="it is not a regular file"):
        read_text(tmp_path / "summary.json")


@pytest.mark.parametrize("content", ["", "{}", '{"val_loss": "1"}'])
def test_a_summary_without_its_numbers_is_named(content, tmp_path):
    (tmp_path / "summary.json").write_text(content)
    with pytest.raises(UserError, match="summary.json cannot be read"):
        RunDirectory(tmp_path, "name", "rope", 0).summary()


@pytest.mark.parametrize("rows", ["x,0.5", "nan,0.5", "1.5,0.5", ",0.5", "1,=1+1"])
def test_a_row_without_a_step_or_with_a_cell_that_is_no_number_is_named(rows, tmp_path):
    (tmp_path / "metrics.csv").write_text(f"step,val_loss\n{rows}\n")
    with pytest.raises(UserError, match="metrics.csv cannot be read"):
        read_numbers(tmp_path / "metrics.csv")


def test_numbers_are_read_and_empty_cells_left_out(tmp_path):
    (tmp_path / "metrics.csv").write_text("step,val_loss\n1,\n2,0.5\n")
    assert read_numbers(tmp_path / "metrics.csv") == [{"step": 1}, {"step": 2, "val_loss": 0.5}]


@pytest.mark.parametrize("line", ['{"job": "se', "null", "1", '"x"', "[1]"])
def test_a_note_that_is_cut_short_or_no_mapping_is_said_to_be_damaged(line, tmp_path):
    (tmp_path / FAILED_JOBS).write_text(f'{{"job": "seed=1", "error": "it failed"}}\n{line}')
    assert failed_jobs(tmp_path) == [
        {"job": "seed=1", "error": "it failed", "run": ""},
        {"job": "a job", "error": "its line in failed_jobs.jsonl is damaged", "run": ""},
    ]


def test_a_job_whose_run_has_been_finished_since_has_not_failed(tmp_path):
    """Another process was training it."""
    failure = {"job": "seed=1", "error": "process 7 is training this run", "run": str(tmp_path / "seed1")}
    (tmp_path / FAILED_JOBS).write_text(json.dumps(failure) + "\n")
    assert failed_jobs(tmp_path) == [failure]
    (tmp_path / "seed1").mkdir()
    (tmp_path / "seed1" / "summary.json").write_text("{}")
    assert failed_jobs(tmp_path) == []


def test_a_job_whose_run_was_finished_and_moved_has_not_failed(tmp_path):
    run = tmp_path / "here" / "rope" / "seed1"
    run.mkdir(parents=True)
    (run.parents[1] / FAILED_JOBS).write_text(failed_job("seed=1", "it failed", run, run.parents[1]))
    (run / "summary.json").write_text("{}")
    assert failed_jobs((tmp_path / "here").rename(tmp_path / "there")) == []


def test_a_run_that_cannot_be_looked_at_is_not_finished(tmp_path):
    """A path of another machine may be forbidden, or longer than this one allows."""
    (tmp_path / FAILED_JOBS).write_text(failed_job("seed=1", "it failed", tmp_path / ("x" * 300), tmp_path))
    assert [failure["job"] for failure in failed_jobs(tmp_path)] == ["seed=1"]


def test_the_failures_of_a_sweep_of_thousands_are_all_read(tmp_path):
    line = json.dumps({"job": "seed=1", "error": "it failed " * 100}) + "\n"
    (tmp_path / FAILED_JOBS).write_text(line * 10_000)
    assert len(failed_jobs(tmp_path)) == 10_000


def test_a_run_is_found_beside_one_whose_configuration_is_damaged(tmp_path):
    config = {"runs": str(tmp_path), "name": "kjv", "seed": 0}
    for run, content in (("seed0-1", "{"), ("seed0-2", json.dumps({**config, "commit": "x"}))):
        (tmp_path / "kjv" / "rope" / run).mkdir(parents=True)
        (tmp_path / "kjv" / "rope" / run / "config.yaml").write_text(content)
    assert find_run(OmegaConf.create({**config, "hydra": {}})) == tmp_path / "kjv" / "rope" / "seed0-2"
    assert find_run(OmegaConf.create({**config, "steps": 5, "hydra": {}})) is None


@pytest.mark.parametrize("newest", [0, 1])
def test_of_the_runs_of_one_configuration_the_last_used_one_is_found(newest, tmp_path):
    """Those on an earlier content of the text at data.path have the same configuration."""
    config = {"runs": str(tmp_path), "name": "mine", "seed": 0}
    files = [tmp_path / "mine" / "rope" / f"seed0-{text}" / "config.yaml" for text in ("0f", "1e")]
    for file in files:
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps({**config, "text": file.parent.name}))
        os.utime(file, (0, 1000 * (file == files[newest])))
    assert find_run(OmegaConf.create(config)) == files[newest].parent


def test_leaves_stand_under_dotted_keys():
    assert dict(leaves({"a": {"b": {"c": 1}, "d": [2]}, "e": None})) == {"a.b.c": 1, "a.d": [2], "e": None}
