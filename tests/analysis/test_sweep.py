"""Run directories as they are read back: a stranger's, or damaged."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from posenc.analysis.comparison import compare
from posenc.analysis.runs import read_runs
from posenc.analysis.sweep import read_folder
from posenc.errors import UserError
from posenc.storage.failed_jobs import MAX_FAILED_JOBS
from posenc.storage.lengths_file import TIMES, bucket_edges
from tests.analysis import synthetic

CONFIG = "choices: {pos: rope}\nseed: 0\nsteps: 20\n"
METRICS = "step,tokens,seconds,val_loss\n10,100,1.0,4.0\n20,200,2.0,3.0\n"
SCORED = METRICS.replace("val_loss", "val_loss,previous_token,induction").replace(".0\n", ".0,0.1,0.5\n")
SUMMARY = {"val_loss": 3.0, "seconds": 2.0, "tokens_per_s": 100, "parameters": 5}


def write(folder: Path, **changed: str) -> Path:
    """A sweep of one run, and of a second with other files."""
    files = {"config.yaml": CONFIG, "metrics.csv": METRICS, "summary.json": json.dumps(SUMMARY)}
    names = {"config": "config.yaml", "metrics": "metrics.csv", "summary": "summary.json", "heads": "attention.csv"}
    given = {names[name]: content for name, content in changed.items()}
    for run, held in (("seed0-a", files), ("seed1-b", {**files, **given})):
        (folder / "rope" / run).mkdir(parents=True)
        for name, content in held.items():
            (folder / "rope" / run / name).write_text(content)
    return folder


def test_what_this_program_writes_is_read_without_a_word(tmp_path):
    sweep = read_folder(write(tmp_path))
    assert (len(sweep.runs), sweep.notices) == (2, ())


def test_runs_on_one_text_are_compared_wherever_it_lies_and_whichever_sweep_asked_for_them(tmp_path):
    ours, theirs = (
        f"{CONFIG}text: 0f\nlog_every: {len(path)}\nattention_every: {len(path)}\ndata: {{path: {path}}}\n".replace(
            "rope}", f"rope, data: text, sweep: {name}}}"
        )
        for name, path in (("positions", "./a.txt"), ("bases", "/home/a.txt"))
    )
    one, other = read_folder(write(tmp_path / "one", config=ours)), read_folder(write(tmp_path / "two", config=theirs))
    assert one.runs[1].setting == other.runs[1].setting == {"data": "text", "text": "0f", "steps": 20}


@pytest.mark.parametrize(
    ("changed", "notice"),
    [
        ({"summary": json.dumps({**SUMMARY, "versions": "torch"})}, "versions is missing or invalid"),
        ({"summary": json.dumps({**SUMMARY, "bits_per_byte": None})}, "bits_per_byte is missing or invalid"),
        ({"summary": json.dumps({**SUMMARY, "parameters": 2**63})}, "parameters is missing or invalid"),
        ({"summary": json.dumps({**SUMMARY, "val_loss": -1.0})}, "val_loss is missing or invalid"),
        ({"config": CONFIG.replace("rope", '"a\\x1b[2J"')}, "must be a plain folder name"),
        ({"config": CONFIG.replace("rope", "rope, 5: x")}, "choices.5.[key] is missing or invalid"),
        ({"config": CONFIG.replace("20", "1" + "0" * 18)}, "steps is missing or invalid"),
        ({"metrics": METRICS.replace("20,", "2000,")}, "it has more steps than steps=20"),
        ({"metrics": METRICS.rpartition("20,")[0]}, "its summary does not belong to the end of its curve"),
        ({"metrics": METRICS.replace("3.0\n", "2.9\n")}, "its summary does not belong to the end of its curve"),
        ({"metrics": METRICS.replace("3.0\n", "3.0,1\n")}, "row 2 has more or fewer cells than the header"),
        ({"metrics": METRICS.replace("tokens", "step")}, "duplicate column"),
        ({"summary": json.dumps(SUMMARY)[:-1] + ', "val_loss": 2.0}'}, "duplicate key val_loss"),
        ({"config": CONFIG + "steps: 30\n"}, "duplicate key steps"),
        ({"metrics": METRICS.replace("1.0", "-1.0")}, "seconds must increase from validation to validation"),
        ({"metrics": METRICS + "20,300,3.0,2.0\n"}, "step must increase from validation to validation"),
        ({"metrics": METRICS.replace("tokens", "tokenz")}, "tokens must increase from validation to validation"),
        (
            {"metrics": METRICS.replace("3.0\n", "1e308\n"), "summary": json.dumps({**SUMMARY, "val_loss": 1e308})},
            "diverged: its loss is 1e+308 from step 20 on",
        ),
        ({"metrics": SCORED.replace("0.5", "1e308")}, "induction must be between 0 and 1"),
        ({"metrics": SCORED.replace("0.1", "-0.1")}, "previous_token must be between 0 and 1"),
        ({"heads": "step,layer,head,induction\n10,nan,0,0.5\n"}, "a row has no step, layer or head"),
        ({"heads": "step,layer,head,induction\n10,0,0,1.5\n"}, "attention must be between 0 and 1"),
    ],
)
def test_what_does_not_fit_is_named_and_the_other_runs_are_compared(changed, notice, tmp_path):
    sweep = read_folder(write(tmp_path, **changed))
    (told,) = sweep.notices
    assert notice in told
    assert [run.source for run in sweep.runs] == [str(tmp_path / "rope" / "seed0-a")]


def test_a_scheme_validated_only_after_the_others_have_ended_is_not_compared(tmp_path):
    header, early, late = METRICS.splitlines(keepends=True)
    folder = write(tmp_path, config=CONFIG.replace("rope", "none"), metrics=header + early)
    for summary in folder.glob("*/*/summary.json"):
        summary.unlink()
    (folder / "rope" / "seed0-a" / "metrics.csv").write_text(header + late)
    comparison = compare(read_folder(folder))
    assert [arm.scheme for arm in comparison.panels[0].arms] == ["none"]
    assert "rope is not compared until one of its runs is finished" in comparison.notices


def test_attention_heads_with_a_nan_score_are_left_out(tmp_path):
    rows = SCORED.replace("0.5", "nan")
    assert compare(read_folder(write(tmp_path, metrics=rows, config=CONFIG))).panels[0].heads == ()


def lengths_of(**changed: Any) -> dict[str, Any]:
    """An evaluation of the second run in windows longer than 16 tokens; `changed` at twice that length."""
    sound = {"windows": 4, "nats_per_token": 2.0, "bits_per_byte": 3.0}
    entries = []
    for times in TIMES:
        edges = bucket_edges(16, round(16 * times))
        own = {"times": times, "length": round(16 * times), "edges": edges, "losses": [2.0] * (len(edges) - 1)}
        entries.append({**sound, **own, **(changed if times == 2 else {})})
    return {"format": 1, "run": "rope/seed1-b", "checkpoint": "0f", "context": 16, "val_loss": 2.0, "entries": entries}


@pytest.mark.parametrize(
    ("config", "changed", "notice"),
    [
        (16, {"edges": [0, -5, 32], "losses": [2.0, 2.0]}, "it has other buckets of positions"),
        (16, {"edges": [0, 16, 32], "losses": [2.0, 2.0]}, "it has other buckets of positions"),
        (16, {"bits_per_byte": 1e308}, "entries.3 is missing or invalid"),
        (16, {"nats_per_token": -1.0}, "entries.3 is missing or invalid"),
        (16, {"no_entry": "why not"}, "entries.3 is missing or invalid"),
        (16, {"length": 31, "edges": [0, 31], "losses": [2.0]}, "it has other lengths"),
        (32, {}, "it has context=16, and the run context=32"),
        ("[16]", {}, "it has context=16, and the run context=[16]"),
    ],
)
def test_an_invalid_evaluation_in_longer_windows_is_a_notice(config, changed, notice, tmp_path):
    folder = write(tmp_path, config=CONFIG.replace("seed: 0", f"seed: 1\ncontext: {config}"))
    (folder / "rope" / "seed1-b" / "lengths.json").write_text(json.dumps(lengths_of(**changed)))
    sweep = read_folder(folder)
    (told,) = sweep.notices
    assert notice in told
    assert [run.lengths for run in sweep.runs] == [None, None]


def test_an_evaluation_in_longer_windows_is_read(tmp_path):
    folder = write(tmp_path, config=CONFIG.replace("seed: 0", "seed: 1\ncontext: 16"))
    (folder / "rope" / "seed1-b" / "lengths.json").write_text(json.dumps(lengths_of()))
    sweep = read_folder(folder)
    assert sweep.notices == ()
    assert sweep.runs[1].lengths is not None


def test_only_the_runs_with_the_best_hyperparameters_of_the_last_search_are_compared(tmp_path):
    """The first seed has another learning rate; a whole number has no point in a run's setting."""
    trials = [
        {"pos": "rope", "optim.lr": lr, "val_loss": 1.0, "best": lr == 2.0, "seed": 9, "edge": ["optim.lr"]}
        for lr in (1.0, 2.0, 3.0)
    ]
    folder = write(tmp_path, config=CONFIG.replace("seed: 0", "seed: 1\noptim: {lr: 2.0}"))
    (folder / "search.json").write_text(json.dumps(trials))
    sweep = read_folder(folder)
    assert [run.seed for run in sweep.runs] == [1]
    assert sweep.notices == (f"{folder}/rope/seed0-a is not at the best of the last search; left out",)
    assert sweep.searched == ("optim.lr",)


def test_a_scheme_whose_trials_all_failed_keeps_no_run_of_an_earlier_search(tmp_path):
    folder = write(tmp_path)
    trials = [{"pos": "rope", "optim.lr": 9.0, "val_loss": None, "best": False, "seed": 9, "edge": []}]
    (folder / "search.json").write_text(json.dumps(trials))
    with pytest.raises(UserError, match="seed0-a is not at the best of the last search; left out"):
        read_folder(folder)


def test_the_precision_that_a_run_had_is_part_of_its_setting(tmp_path):
    sweep = read_folder(write(tmp_path, summary=json.dumps({**SUMMARY, "precision": "bf16-mixed"})))
    assert [run.setting.get("precision") for run in sweep.runs] == [None, "bf16-mixed"]


def test_a_loss_is_lost_from_the_first_step_at_which_it_is(tmp_path):
    metrics = METRICS.replace("4.0", "nan").replace("3.0", "nan")
    sweep = read_folder(write(tmp_path, metrics=metrics))
    assert "diverged: its loss is nan from step 10 on" in sweep.notices[0]
    assert len(sweep.diverged) == 1


@pytest.mark.parametrize(
    ("name", "content", "notice"),
    [
        ("search.json", '[{"pos": ["rope"], "best": true, "val_loss": 1.0}]', "0.pos is missing or invalid"),
        ("search.json", '[{"pos": "rope", "best": false}]', "0.val_loss is missing or invalid"),
        ("search.json", "5", "its content is missing or invalid"),
        ("multirun.yaml", "hydra: {overrides: {task: null}}", "1 is missing or invalid"),
        ("failed_jobs.jsonl", "\x00" * (MAX_FAILED_JOBS + 1), "bytes, at most"),
    ],
)
def test_a_sweep_s_own_file_that_cannot_be_read_is_one_notice(name, content, notice, tmp_path):
    (write(tmp_path) / name).write_text(content)
    sweep = read_folder(tmp_path)
    (told,) = sweep.notices
    assert f"{name} cannot be read" in told
    assert notice in told
    assert len(sweep.runs) == 2


@pytest.mark.parametrize("version", [{}, {"format": 2}])
def test_an_evaluation_of_another_version_is_not_used(version, tmp_path):
    folder = write(tmp_path, config=CONFIG.replace("seed: 0", "seed: 1\ncontext: 16"))
    own = {key: value for key, value in lengths_of().items() if key != "format"}
    (folder / "rope" / "seed1-b" / "lengths.json").write_text(json.dumps({**own, **version}))
    (told,) = read_folder(folder).notices
    assert "it is from another version" in told


def test_a_loss_of_minus_infinity_is_divergence_too():
    one = synthetic.run("rope", 0)
    one.curve["val_loss"][-1] = -np.inf
    runs, diverged, (notice,) = read_runs([(one.source, lambda: one)])
    assert (len(runs), [lost is one for lost in diverged]) == (0, [True])
    assert notice.startswith("rope, seed 0 diverged: its loss is -inf from step 300 on")
