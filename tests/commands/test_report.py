"""From a sweep on the real command line to its table, its page in a real browser and the notebook."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from posenc.analysis.sweep import read_folder
from posenc.storage.csv_files import read_csv
from tests.conftest import ROOT, only, python

SWEEP = ("-m", "experiment=smoke", "logger=csv", "trainer=cpu", "pos=none,sinusoidal,rope", "seed=0,1")


@pytest.fixture(scope="module")
def swept(tmp_path_factory) -> tuple[Path, str]:
    """A finished sweep's folder, and what the command printed."""
    runs = tmp_path_factory.mktemp("sweep") / "runs"
    result = python("train.py", f"runs={runs}", *SWEEP)
    assert (result.returncode, result.stderr) == (0, "")
    return runs / "smoke", result.stdout


@pytest.fixture
def folder(swept, tmp_path) -> Path:
    """A copy of the sweep's folder, to be damaged."""
    folder = tmp_path / "my runs" / "smoke"
    return shutil.copytree(swept[0], folder, ignore=shutil.ignore_patterns("*.ckpt"))


def report(*arguments: object) -> subprocess.CompletedProcess[str]:
    return python("-m", "posenc.report", *arguments)


def test_a_sweep_ends_with_the_comparison_and_its_report(swept):
    folder, printed = swept
    for text in ("After 20 steps", "after 100", "rope", "sinusoidal", "params", "bits per byte", "Report:"):
        assert text in printed
    assert "Against sinusoidal's lowest loss of" in printed
    assert {"report.html", "curves.png", "curves.svg", "table.csv"} <= {f.name for f in folder.iterdir()}


def test_the_table_holds_a_row_a_scheme_and_threshold(swept):
    rows = read_csv(swept[0] / "table.csv")
    assert [(row["scheme"], row["fraction"]) for row in rows if row["scheme"] == "rope"] == [
        ("rope", fraction) for fraction in ("0.25", "0.5", "0.75", "1.0")
    ]
    assert len(rows) == 12
    baseline = [row for row in rows if row["scheme"] == "sinusoidal"]
    assert all(float(row["speed_up_steps"]) == 1 and row["verdict"] == "baseline" for row in baseline)
    run = json.loads((only(swept[0] / "rope", "seed0-*") / "summary.json").read_text())
    other = json.loads((only(swept[0] / "rope", "seed1-*") / "summary.json").read_text())
    rope = next(row for row in rows if row["scheme"] == "rope")
    assert float(rope["val_loss"]) == pytest.approx((run["val_loss"] + other["val_loss"]) / 2, abs=1e-4)


def test_a_report_is_whole_though_nobody_reads_what_is_printed(folder, tmp_path):
    line = f"exec {sys.executable} -m posenc.report '{folder}' --out '{tmp_path / 'here'}' | head -n 0"
    subprocess.run(["bash", "-c", line], check=True, cwd=ROOT, capture_output=True)
    assert {"report.html", "curves.png", "curves.svg", "table.csv"} <= {
        file.name for file in (tmp_path / "here").iterdir()
    }


def test_the_report_command_gives_what_the_sweep_gave(folder):
    before = (folder / "table.csv").read_text()
    (folder / "table.csv").unlink()
    result = report(folder)
    assert (result.returncode, result.stderr) == (0, "")
    assert (folder / "table.csv").read_text() == before
    other = report(folder, "--baseline", "none", "--out", folder / "out")
    assert "Against none's lowest loss" in other.stdout
    assert (folder / "out" / "report.html").exists()


def test_a_baseline_that_is_not_there_is_refused_and_nothing_overwritten(folder):
    before = {file: file.read_bytes() for file in folder.iterdir() if file.is_file()}
    result = report(folder, "--baseline", "ropey", "--results", folder / "kept")
    assert result.returncode == 2
    assert (
        "--baseline=ropey has no run in smoke that can be compared; choose from none, rope, sinusoidal" in result.stderr
    )
    assert result.stderr.count("\n") == 1
    assert {file: file.read_bytes() for file in folder.iterdir() if file.is_file()} == before
    assert not (folder / "kept").exists()


def test_results_to_be_kept_are_small_and_say_what_made_them(folder):
    assert report(folder, "--results", folder / "kept").returncode == 0
    sizes = {file.name: file.stat().st_size for file in (folder / "kept").iterdir()}
    assert max(sizes.values()) < 1_000_000
    assert sizes.keys() == {"README.md", "curves.csv", "curves.png", "curves.svg", "table.csv"}  # no score rises
    text = (folder / "kept" / "README.md").read_text()
    for wanted in ("python train.py -m experiment=smoke", "torch 2.", "Commit", "Hardware", "Against sinusoidal's"):
        assert wanted in text
    assert f"python -m posenc.report '{folder}' --results '{folder}/kept'" in text
    rows = read_csv(folder / "kept" / "curves.csv")
    assert len(rows) == 3 * 2 * 2  # schemes, seeds, validations
    assert report(folder, "--results", folder / "other", "--baseline", "none", "--busy").returncode == 0
    text = (folder / "other" / "README.md").read_text()
    assert f"python -m posenc.report '{folder}' --baseline none --busy --results '{folder}/other'" in text


def test_a_sweep_goes_on_after_a_failed_job_and_names_it_at_the_end(train, tmp_path):
    """A learning rate at which the loss is NaN fails its jobs; the others are compared; then only the rest is run."""
    first = train(*SWEEP[:-2], "pos=none,sinusoidal", "optim.lr=1e9,0.004")
    assert first.returncode == 1
    assert first.stderr.count("pos=none,optim.lr=1000000000.0 failed: the loss is ") == 1
    assert first.stderr.count("failed: pos=none,optim.lr=1000000000.0: the loss is ") == 1
    assert "Traceback" not in first.stderr
    assert "After 20 steps" in first.stdout
    assert len(list((tmp_path / "runs" / "smoke").glob("*/*/summary.json"))) == 2
    again = train(*SWEEP[:-2], "pos=none,sinusoidal", "optim.lr=0.002,0.004")
    assert again.returncode == 0, again.stderr
    assert again.stdout.count("This run is finished") == 2
    assert len(list((tmp_path / "runs" / "smoke").glob("*/*/summary.json"))) == 4


@pytest.mark.parametrize("missing", ["jinja2", "rich"])
def test_a_sweep_succeeds_where_the_report_s_packages_are_not_installed(missing, folder):
    block = f"import sys; sys.modules[{missing!r}] = None"
    code = f"{block}; import runpy; runpy.run_path('train.py', run_name='__main__')"
    result = python("-c", code, *SWEEP[:-2], "pos=rope", "seed=0", f"runs={folder.parent}")
    assert (result.returncode, result.stderr) == (0, "")
    (said,) = [line for line in result.stdout.splitlines() if line.startswith("No report, since ")]
    assert said == f"No report, since {missing} is not installed; to create it: python -m posenc.report '{folder}'"


def test_each_scheme_is_searched_for_and_its_best_compared_with_fresh_seeds(train, tmp_path):
    result = train(
        "-m", "experiment=tuned", "logger=csv", "trainer=cpu", "pos=none,sinusoidal", "seed=0,1",
        f"runs={tmp_path}/jos\xe9 (1)",
        "steps=10", "eval_every=5", "log_every=5", "eval_windows=4", "batch_size=2", "context=32",
        "model.layers=1", "model.width=16", "model.heads=2",
        "hydra.sweeper.grid={optim.lr: [0.004, 0.008], pos.scale: [0.01, matched]}",
        "+hydra.sweeper.grid={optim.betas: [[0.9, 0.95]], intervention.stop: [null]}", "intervention=offset_mask",
        "+hydra.sweeper.grid={optim.weight_decay: [0.1, 0.2]}", "optim.weight_decay=0.3",  # given, so not searched
    )  # fmt: skip
    assert (result.returncode, result.stderr) == (0, "")
    folder = tmp_path / "jos\xe9 (1)" / "kjv_tuned"
    search = json.loads((folder / "search.json").read_text())
    assert len([trial for trial in search if trial["pos"] == "none"]) == 2  # learning rates
    assert len([trial for trial in search if trial["pos"] == "sinusoidal"]) == 4  # with two scales
    assert {run.name.partition("-")[0] for run in (folder / "search").glob("*/seed*")} == {"seed1000"}  # of no verdict
    best = {trial["pos"]: trial for trial in search if trial["best"]}
    for scheme, trial in best.items():
        losses = [other["val_loss"] for other in search if other["pos"] == scheme]
        assert trial["val_loss"] == min(losses)
    compared = read_folder(folder).runs
    assert {(run.scheme, run.seed) for run in compared} == {(s, n) for s in ("none", "sinusoidal") for n in (0, 1)}
    for run in compared:
        assert run.setting["optim.lr"] == best[run.scheme]["optim.lr"]
        assert run.setting["optim.weight_decay"] == 0.3
    said = (folder / "report.html").read_text()
    assert "each scheme with its best optim.lr and optim.betas and intervention.stop and pos.scale" in said
    assert "Hyperparameter search" in said


def test_a_search_goes_on_past_diverged_trials_but_not_past_lost_ones(train, tmp_path):
    search = (
        "-m", "experiment=tuned", "logger=csv", "trainer=cpu", "seed=0", "steps=10", "eval_every=5", "log_every=5",
        "eval_windows=4", "batch_size=2", "context=32", "model.layers=1", "model.width=16", "model.heads=2",
        "hydra.sweeper.grid={optim.lr: [0.004, 1e30]}",
    )  # fmt: skip
    folder = tmp_path / "runs" / "kjv_tuned"
    (folder / "search").mkdir(parents=True)
    (folder / "search" / "rope").touch()  # no folder
    lost = train(*search, "pos=none,rope")
    assert lost.returncode == 1
    assert "2 of 4 trials have no result, so the best of each scheme is not known" in lost.stderr
    assert not list(folder.glob("none/*")), "a run at the best of an incomplete search"
    (folder / "search" / "rope").unlink()
    assert train(*search, "pos=none,rope").returncode == 1  # jobs have failed
    assert train(*search, "pos=alibi", "checkpoint_seconds=7").returncode == 1  # which does not affect the curves
    trials = json.loads((folder / "search.json").read_text())
    assert [(trial["pos"], trial["best"]) for trial in trials] == [
        (pos, best) for pos in ("none", "rope", "alibi") for best in (True, False)
    ]
    assert {run.scheme for run in read_folder(folder).runs} == {"none", "rope", "alibi"}


def damage_half_a_row(folder: Path) -> None:
    run = only(folder / "rope", "seed0-*")
    (run / "summary.json").unlink()
    text = (run / "metrics.csv").read_text()
    (run / "metrics.csv").write_text(text[: len(text) - 40])


def damage_no_validation(folder: Path) -> None:
    run = only(folder / "rope", "seed0-*")
    (run / "summary.json").unlink()
    (run / "metrics.csv").write_text((run / "metrics.csv").read_text().splitlines()[0] + "\n")


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (damage_half_a_row, "rope, seed 0 is not finished: step 10 of 20"),
        (damage_no_validation, "has no validation yet; left out"),
    ],
)
def test_the_report_of_what_is_sound_still_appears(damage, sentence, folder):
    damage(folder)
    (folder / "report.html").unlink()
    result = report(folder)
    assert (result.returncode, result.stderr) == (0, "")
    assert sentence in " ".join(result.stdout.split())
    assert "none has a speed-up in steps of" in result.stdout
    assert (folder / "report.html").exists()


def test_the_notebook_tells_its_story_on_committed_results_and_on_a_sweep_of_one_s_own(swept):
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(ROOT / "notebooks" / "convergence.ipynb", as_version=4)
    setup = nbformat.v4.new_code_cell(f"import os; os.environ['POSENC_RUNS'] = {str(swept[0])!r}")
    notebook.cells.insert(0, setup)
    where = {"metadata": {"path": str(ROOT / "notebooks")}}
    NotebookClient(notebook, timeout=120, resources=where).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert any("at its loss after 100%: 1.63 times fewer steps (1.53 to 1.75)" in o.get("text", "") for o in outputs)
    assert any("Against sinusoidal's lowest loss" in output.get("text", "") for output in outputs)
