"""The claim map from its plan to its figure, through the real commands."""

import json
import math
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest
import yaml

from posenc.analysis.corpus_map import backbone_of
from posenc.analysis.results import BlockRow, CopyingRow, CurveRow, DistanceRow, Result, ShareRow, table
from posenc.analysis.run_key import SEARCH
from posenc.analysis.study import Study
from posenc.commands import study
from posenc.commands.claim_map import main
from posenc.commands.study import add_evaluations
from posenc.storage.csv_files import read_csv
from tests.commands.conftest import SHORT, command
from tests.conftest import ROOT, only


@pytest.fixture(scope="module")
def measured(folder, tmp_path_factory):
    """The study with all that is measured on its models; the same command again changes nothing."""
    kept = shutil.copytree(folder / "kept", tmp_path_factory.mktemp("measured") / "kept")
    again = ["-m", "posenc.claim_map", "runs/smoke", "--results", kept]
    found = []
    for _ in range(2):
        command(folder, *again, "--copying", "--heads", "--paired", "--test")
        found.append({file.name: file.read_bytes() for file in kept.iterdir()})
    assert found[0] == found[1]
    return kept


def test_every_run_of_the_plan_is_a_row_with_its_curve(folder):
    rows = (folder / "kept" / "runs.csv").read_text().splitlines()
    assert len(rows) == 1 + 2
    assert sum(",rope,0," in row for row in rows) == 1
    summary = json.loads((only(folder / "runs" / "smoke" / "rope") / "summary.json").read_text())
    assert {row["hardware"] for row in read_csv(folder / "kept" / "runs.csv")} == {summary["hardware"]}
    assert len((folder / "kept" / "curves.csv").read_text().splitlines()) == 1 + 2
    assert (folder / "kept" / "README.md").read_text().count("| 1 | 2,560 |") == 1


def test_figures_left_of_an_earlier_state_are_deleted(folder, tmp_path):
    kept = shutil.copytree(folder / "kept", tmp_path / "kept")
    before = {file.name for file in kept.glob("*.png")}
    (kept / "reversed-text.png").touch()
    (kept / "mine.png").touch()
    command(folder, "-m", "posenc.claim_map", "--results", kept)
    assert {file.name for file in kept.glob("*.png")} == {*before, "mine.png"}


def test_what_has_a_row_is_passed_over_even_where_its_run_is_gone(folder, tmp_path):
    todo = ["-m", "posenc.claim_map", "--results", folder / "kept", "--todo", f"data.path={folder}/text.txt", *SHORT]
    assert command(tmp_path, *todo).strip() == ""
    other = [*todo, "model.width=16"]
    assert len(command(tmp_path, *other).splitlines()) == 2


def test_a_text_in_a_folder_with_an_accent_is_named_in_the_lines_and_read_for_n_grams(folder, tmp_path, capsys):
    kept, text = shutil.copytree(folder / "kept", tmp_path / "kept"), tmp_path / "jos\xe9 (1)" / "text.txt"
    cache = tmp_path / "a,b's"
    text.parent.mkdir()
    shutil.copy(folder / "text.txt", text)
    own = [f"data.path={text}", *SHORT]
    main(["--results", str(kept), "--cache", str(cache), "--ngrams", *own, "--todo", *own, "model.width=16"])
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("experiment=")]
    assert [f"data.path='{text}'" in shlex.split(line) for line in lines] == [True, True]
    assert (kept / "ngrams.csv").exists()
    assert list(cache.iterdir())


def test_only_folders_that_do_not_exist_are_refused(folder, tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--results", str(folder / "kept"), str(tmp_path / "runs")])
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"posenc claim_map: {tmp_path / 'runs'}: no such folder\n"


def test_n_gram_models_are_measured_on_the_validation_windows_of_the_runs(folder, tmp_path, capsys):
    kept, text = shutil.copytree(folder / "kept", tmp_path / "kept"), [f"data.path={folder}/text.txt", *SHORT]
    main(["--results", str(kept), "--ngrams", *text, "--todo", *text])  # --todo: no figure
    losses = {int(row["order"]): float(row["val_loss"]) for row in read_csv(kept / "ngrams.csv")}
    assert list(losses) == [2, 3, 4, 5]
    (bigram,) = {float(row["bigram_loss"]) for row in read_csv(kept / "runs.csv")}
    assert losses[2] == pytest.approx(bigram, abs=1e-5)
    printed = ", ".join(f"{loss:.3f} for n = {order}" for order, loss in losses.items())
    assert f": {printed}.\n" in capsys.readouterr().err


def test_what_a_run_copies_is_added_once(measured):
    rows = read_csv(measured / "copying.csv")
    assert sorted(row["pos"] for row in rows) == ["rope", "sinusoidal"]
    page = (measured / "README.md").read_text()
    assert page.count("### Copying from the context") == 1
    arms = {"rope": "lr 0.003, base 10000", "sinusoidal": "lr 0.003, scale 0.1, base 10000"}
    for row in rows:
        arm = f"| {row['pos']} | {arms[row['pos']]} | 2,560 | 0 |"
        gain = float(row["second"]) - float(row["first"])
        new, seen, own, foreign = (f"{float(row[column]):.3f}" for column in ("new", "seen", "own", "foreign"))
        cells = f"{gain:+.2f} | {new} | {seen} | {float(row['share']):.0%} | {own} | {foreign}"
        assert f"{arm} {cells} |" in page
        apart = {
            int(of["distance"]): float(of["val_loss"])
            for of in read_csv(measured / "distances.csv")
            if of["pos"] == row["pos"]
        }
        assert list(apart) == [0, 8, 16, 32, 56]
        gains = " | ".join(f"{loss - apart[0]:+.2f}" for loss in list(apart.values())[1:])
        assert page.count(f"{arm} {gains} |") == 1


def test_runs_on_which_an_option_measures_nothing_are_counted(folder, capsys):
    finished, _ = Study(folder / "kept").add_runs([folder / "runs"])
    changed = [(run, replace(result, setting="context=64")) for run, result in finished]
    trials = [(run, replace(result, setting=SEARCH)) for run, result in finished]
    every = [*finished, *changed, *trials]
    assert study.only(every, "--paired", lambda result: result.in_default_setting) == [*finished, *trials]
    said = f"--paired leaves out {len(changed)} of {len(every)} runs, which it does not measure.\n"
    assert capsys.readouterr().err == said
    assert study.only(finished, "--paired", lambda result: result.in_default_setting) == finished
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("name", "kind", "row", "column"),
    [
        ("copying.csv", CopyingRow, (1.0, 1.0, 1.0, math.nan, 0.0, 1.0, 1.0), "seen"),
        ("distances.csv", DistanceRow, (8, math.inf), "val_loss"),
        ("blocks.csv", BlockRow, ([2.0, math.nan],), "losses"),
    ],
    ids=["NaN", "infinite", "NaN in a list"],
)
def test_a_measure_that_could_not_be_read_again_is_left_out_with_a_notice(
    name, kind, row, column, folder, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(folder)  # data.path is relative
    study = Study(shutil.copytree(folder / "kept", tmp_path / "kept"))
    finished, _ = study.add_runs([folder / "runs" / "smoke" / "rope"])
    add_evaluations(study, finished, folder / "data/cache", name, kind, lambda *_: [row])
    assert f"is not evaluated: on its windows {column} would be NaN or infinite" in capsys.readouterr().err
    assert not (study.folder / name).exists()


def test_what_a_run_copies_without_the_head_that_matters_most_is_on_the_page(measured):
    whole, *heads = (row for row in read_csv(measured / "removed_heads.csv") if row["pos"] == "rope")
    assert whole["layer"] == whole["head"] == "0"
    assert [row["layer"] + row["head"] for row in heads] == ["11", "12", "21", "22"]
    most, following, *_ = sorted(heads, key=lambda row: float(row["first"]) - float(row["second"]))
    gains = [f"{float(row['second']) - float(row['first']):+.2f}" for row in (whole, most, following)]
    losses = [f"{float(row[column]):.3f}" for column in ("new", "seen") for row in (whole, most)]
    cells = " | ".join([*gains, f"{most['layer']}.{most['head']}", *losses])
    assert (measured / "README.md").read_text().count(f"| rope | lr 0.003, base 10000 | 2,560 | 0 | {cells} |") == 1


def test_the_share_of_an_additive_encoding_is_added_once_and_stays_when_its_run_is_gone(folder, tmp_path):
    run = only(folder / "runs" / "smoke" / "sinusoidal")
    (measured,) = (row["position_share"] for row in read_csv(run / "metrics.csv") if row["position_share"])
    (row,) = read_csv(folder / "kept" / "shares.csv")
    assert (row["pos"], row["first"], row["last"]) == ("sinusoidal", measured, measured)
    kept, share = shutil.copytree(folder / "kept", tmp_path / "kept"), f"{float(measured):.2f}"
    main(["--results", str(kept)])
    page = (kept / "README.md").read_text()
    assert page.count(f"| sinusoidal | lr 0.003, scale 0.1, base 10000 | 2,560 | 0 | {share} | {share} |") == 1


def test_what_a_run_loses_on_each_block_is_added_once_and_compared_with_rope(measured):
    rows = [read_csv(measured / name) for name in ("blocks.csv", "test.csv")]
    losses, on_test = ({row["pos"]: json.loads(row["losses"]) for row in of_split} for of_split in rows)
    assert len(losses) == len(rows[0]) == len(rows[1]) == 2
    for row in read_csv(measured / "runs.csv"):
        assert fmean(losses[row["pos"]]) == pytest.approx(float(row["val_loss"]), abs=0.05)
    page = (measured / "README.md").read_text()
    difference = fmean(losses["sinusoidal"]) - fmean(losses["rope"])
    (row,) = re.findall(r"base 10000 \| lr 0.003, base 10000 \| 2,560 \| 0 \| (\S+)", page)
    assert float(row) == pytest.approx(difference, abs=1e-4)
    (row,) = re.findall(r"### The test split.*?\| 1 \| 2,560 \| (\S+) \| (\S+) ", page, re.DOTALL)
    assert list(map(float, row)) == [pytest.approx(fmean(on_test[pos]), abs=1e-3) for pos in ("sinusoidal", "rope")]


def test_the_test_split_is_the_end_of_the_text_and_trials_are_not_evaluated_on_it(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder)  # data.path is relative
    seen = []

    def losses(_, tokens):
        seen.append(tokens.ids)
        return [1.0, 2.0]

    monkeypatch.setattr("posenc.evaluation.blocks.block_losses", losses)
    kept = shutil.copytree(folder / "kept", tmp_path / "kept")
    main(["runs/smoke", "--results", str(kept), "--test"])
    text = (folder / "text.txt").read_bytes()
    for ids in seen:
        assert len(ids) > 1000
        assert text.endswith(ids.tobytes())
    plan = yaml.safe_load((kept / "plan.yaml").read_text())
    trials = tmp_path / "trials"
    trials.mkdir()
    (trials / "plan.yaml").write_text(yaml.safe_dump({**plan, "search_seeds": [0]}))
    main(["runs/smoke", "--results", str(trials), "--test"])
    assert len(seen) == 2
    assert not (trials / "test.csv").exists()


@pytest.mark.parametrize(
    ("pos", "difference", "stated"),
    [
        ("rope", {"lr": 0.006}, "pos=rope optim.lr=0.006 pos.base=10000 seed=0, 2,560 tokens"),
        ("sinusoidal", {"lr": 0.02}, "pos=sinusoidal optim.lr=0.02 pos.scale=0.1 pos.base=10000 seed=0, 2,560 tokens"),
        ("rope", {"setting": "model.width=64"}, "model.width=64 pos=rope optim.lr=0.003 pos.base=10000 seed=0, 2,560"),
        ("rope", {"setting": "search", "seed": 9, "tokens": 256}, "search pos=rope optim.lr=0.003 pos.base=10000 seed"),
    ],
)
def test_a_run_that_no_block_asks_for_is_named_and_left_out_of_the_map(
    pos, difference, stated, folder, tmp_path, capsys
):
    """Such as an arm at another learning rate, with a seed and a budget of the backbone."""
    kept = shutil.copytree(folder / "kept", tmp_path / "kept")
    main(["--results", str(kept)])
    page, said = (kept / "README.md").read_text(), capsys.readouterr().err
    assert said == ""
    study = Study(kept)
    (planned,) = (result for result in study.results if result.pos == pos)
    other = replace(planned, **difference, val_loss=planned.val_loss - 0.1)
    (kept / "runs.csv").write_text(table(Result, [*study.results, other]))
    for name, kind in (("shares.csv", ShareRow), ("curves.csv", CurveRow)):
        rows = study.rows(name, kind, planned.corpus)
        added = [replace(row, **difference) for row in rows if row.key == planned.key]
        (kept / name).write_text(table(kind, [*rows, *added]))
    main(["--results", str(kept)])
    assert (kept / "README.md").read_text() == page
    (said,) = capsys.readouterr().err.splitlines()
    assert said.partition(": ")[2].startswith(f"{planned.corpus} {stated}")
    assert said.count("pos=") == 1
    backbone, _ = backbone_of(Study(kept), planned.corpus)
    assert [(result.pos, result.lr) for result in backbone] == [("rope", 0.003), ("sinusoidal", 0.003)]


def test_the_plan_for_a_gpu_prints_its_runs_and_leaves_nothing_behind(folder, tmp_path, capsys):
    """As many trials for RoPE as for the sinusoid, then the second search's arms (two budgets with three seeds, one
    with one), beside the first's."""
    plan = shutil.copy(ROOT / "results/claim-map-small/plan.yaml", tmp_path)
    main(["--results", str(tmp_path), "--todo", f"data.path={folder}/text.txt"])
    lines = [shlex.split(line) for line in capsys.readouterr().out.splitlines()]
    trials = [line for line in lines if "seed=100" in line]
    for arm, of_first in (("pos=rope", 4), ("pos=sinusoidal", 2)):
        assert sum(arm in line for line in trials) == 8
        assert sum(arm in line for line in lines if line not in trials) == of_first + 2 * 3 + 1
    assert all(trial in lines[: len(trials)] for trial in trials)
    assert list(tmp_path.iterdir()) == [Path(plan)]


def test_a_budget_that_is_computed_from_another_key_is_refused(folder, tmp_path):
    shutil.copy(ROOT / "results/claim-map-small/plan.yaml", tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["--results", str(tmp_path), "--todo", f"data.path={folder}/text.txt", "steps=${eval_every}"])
    assert ended.value.code == 2
