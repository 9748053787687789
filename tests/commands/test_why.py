"""What the interventions explain, from their plan to their page."""

import json
import math
import shutil
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from posenc.analysis.convergence import Estimate
from posenc.analysis.results import CurveRow, HeadRow, Result, table
from posenc.analysis.study import Study
from posenc.analysis.why import Effect
from posenc.commands.why import main
from posenc.evaluation.ablation import OFFSETS
from posenc.report.why import _cells
from posenc.storage.csv_files import read_csv
from tests.conftest import ROOT, train_here

PLAN: dict[str, Any] = {
    "experiment": "why", "unit": 1200, "units": [1], "seeds": [0, 1, 2], "search_seeds": [], "levels": [3.0, 1.0],
    "reference": "rope", "precision": "32-true",
    "blocks": [
        {"what": "Compared", "arms": {"rope": "pos=rope", "none": "pos=none"}},
        {
            "what": "Dose", "from": "none", "axis": "bias",
            "arms": {str(dose): f"pos=none intervention=offset_bias intervention.strength={dose}" for dose in (2, 6)},
        },
        {"what": "An arm in two blocks", "arms": {"6": "pos=none intervention=offset_bias intervention.strength=6"}},
    ],
}  # fmt: skip
FASTER = {"rope": 4.0, "none": 1.0, "2": 2.0, "6": 4.0}


def text(folder, name):
    return ["data=text", f"data.path={folder}/{name}.txt"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A study whose runs are finished, but for dose 6 at seed 2: losses fall linearly in the logarithm of steps."""
    folder = tmp_path_factory.mktemp("why")
    (folder / "plan.yaml").write_text(yaml.safe_dump(PLAN, sort_keys=False))
    (folder / "a.txt").write_text("In the beginning\n" * 30)
    study = Study(folder)
    corpus = study.corpus(text(folder, "a"))
    results, curves = [], []
    arms = {name: arm for block in PLAN["blocks"] for name, arm in block["arms"].items()}
    for name, arm in arms.items():
        for seed in range(2 if name == "6" else 3):
            key = study.key(["experiment=why", *arm.split(), "steps=1200", f"seed={seed}"], corpus)
            results.append(Result(*key, val_loss=1.0, val_loss_se=0.01, bigram_loss=2.4, commit="abc", hardware="CPU"))
            for step in range(10, 1201, 10):
                loss = 4 - 0.4 * math.log(step * FASTER[name] * (1 + seed / 50))
                curves.append(CurveRow(*key, at_tokens=step * 4096, val_loss=loss))
    (folder / "curves.csv").write_text(table(CurveRow, curves))
    (folder / "runs.csv").write_text(table(Result, results))
    return folder


def test_the_page_gives_each_arm_its_share_with_an_interval_from_three_seeds_on(folder):
    main(["--results", str(folder)])
    page = (folder / "README.md").read_text()
    assert "| 2 | 3 | 2.00x (2.00–2.00) | 50% (50% to 50%) | 50% (50% to 50%) |" in page
    assert "| 6 | 2 | 4.00x | 100% | 100% |" in page
    assert "| rope | 3 |" in page
    (figure,) = folder.glob("text-*.png")
    assert figure.stat().st_size > 10_000


def test_each_number_of_an_arm_has_its_own_column():
    numbers = {"share": 0.5, "gain": 0.25, "speed_up": 2.0, "last_loss": 2.1, "behind": 0.1, "change": -0.2}
    known: Any = {name: Estimate(value, seeds=3) for name, value in numbers.items()}
    group: Any = SimpleNamespace(explains=True, origin="none")
    cells = _cells(group, Effect(**known, steps=(30.0,)))
    assert cells == ["3", "2.00x", "50%", "25%", "2.100", "+0.100", "-0.200", "30"]


def test_a_block_without_shares_has_the_speed_up_alone(folder, tmp_path):
    compared, dose, _ = PLAN["blocks"]
    block = {"what": "Another task", "from": "none", "shares": False, "arms": {"two": dose["arms"]["2"]}}
    page = page_of({**PLAN, "blocks": [compared, dose, block]}, folder, tmp_path)
    assert "| two | 3 | 2.00x (2.00–2.00) |  |  |" in page


def page_of(plan, folder, tmp_path):
    """The page of another plan for the same runs."""
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(plan))
    for name in ("runs.csv", "curves.csv"):
        shutil.copy(folder / name, tmp_path)
    main(["--results", str(tmp_path)])
    file = tmp_path / "README.md"
    return file.read_text()


def test_names_that_are_not_all_numbers_are_bars_and_the_reference_has_no_advantage_over_itself(folder, tmp_path):
    arms = PLAN["blocks"][1]["arms"]
    named = [
        {
            "what": "Names",
            "from": "none",
            "axis": "bias",
            "arms": {"two": arms["2"], "nan": arms["6"], "4": "pos=none"},
        },
        {"what": "Itself", "from": "rope", "arms": {"none": "pos=none", "rope": "pos=rope"}},
    ]
    page = page_of({**PLAN, "blocks": [PLAN["blocks"][0], *named]}, folder, tmp_path)
    assert "| two | 3 | 2.00x (2.00–2.00) | 50% (50% to 50%) |" in page
    assert "| rope | 3 | 1.00x (1.00–1.00) | no share in 3 of 3 |" in page


def test_the_page_has_the_previous_token_score_of_each_layer(folder, tmp_path):
    study = Study(shutil.copytree(folder, tmp_path / "why"))
    keys = [result.key for result in study.results if result.pos == "none" and result.setting == "backbone"]
    rows = [HeadRow(*key, layer, 0.1 * layer) for key in keys for layer in (1, 2)]
    (study.folder / "heads.csv").write_text(table(HeadRow, rows))
    main(["--results", str(study.folder)])
    page = (study.folder / "README.md").read_text()
    assert "| arm | seeds | layer 1 | layer 2 |" in page
    assert "| none | 3 | 0.100 (0.100–0.100) | 0.200 (0.200–0.200) |" in page
    assert page.count("layer 2") == 1


def test_the_best_heads_of_a_finished_run_and_its_loss_with_masked_offsets_are_added_once(tmp_path):
    trained = train_here(tmp_path / "runs", "eval_every=10", "log_every=10", "attention_every=20")
    study = tmp_path / "study"
    study.mkdir()
    plan = {**PLAN, "experiment": "smoke", "unit": 20, "blocks": PLAN["blocks"][:1]}
    (study / "plan.yaml").write_text(yaml.safe_dump(plan))
    folders = [str(tmp_path / "runs"), str(tmp_path / "runs" / "smoke")]  # with the same run
    for _ in range(2):
        main([*folders, "--results", str(study), "--ablate", "--cache", str(ROOT / "data" / "cache")])
    heads = [row for row in read_csv(trained / "attention.csv") if row["step"] == "20"]
    best = {layer: max(float(head["1"]) for head in heads if head["layer"] == str(layer - 1)) for layer in (1, 2)}
    added = [(int(row["layer"]), float(row["previous_token"])) for row in read_csv(study / "heads.csv")]
    assert added == [*best.items()]
    losses = [(int(row["masked_offset"]), float(row["val_loss"])) for row in read_csv(study / "ablation.csv")]
    assert [offset for offset, _ in losses] == [0, *OFFSETS]
    assert losses[0][1] == pytest.approx(json.loads((trained / "summary.json").read_text())["val_loss"], abs=1e-4)
    cells = " | ".join(f"{loss:.2f}" for _, loss in losses)
    assert f"| rope | 5,120 | 1 | {cells} |" in (study / "README.md").read_text()


def test_what_people_found_opens_the_page(folder):
    (folder / "findings.md").write_text("A bias is enough.\n")
    main(["--results", str(folder)])
    assert (folder / "README.md").read_text().startswith("# Why\n\nA bias is enough.\n")


def test_findings_that_are_no_text_are_refused_in_a_sentence(folder, tmp_path, capsys):
    shutil.copytree(folder, tmp_path / "why", ignore=shutil.ignore_patterns("*.png"))
    (tmp_path / "why" / "findings.md").write_bytes(b"caf\xe9")
    with pytest.raises(SystemExit) as ended:
        main(["--results", str(tmp_path / "why")])
    assert ended.value.code == 2
    assert "findings.md cannot be read: it is not UTF-8 text" in capsys.readouterr().err


def test_a_whole_number_may_be_written_with_a_point(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "why")
    table = tmp_path / "why" / "curves.csv"
    table.write_text(table.read_text().replace(",0,4915200,", ",0.0,4915200.0,").replace(",4915200,1", ",4915200.0,1"))
    with_points, without = (
        Study(place).curves("pos=rope", Study(folder).corpora[0]) for place in (table.parent, folder)
    )
    assert with_points == without
    assert without[0][0][:2] == [10, 20]


def test_every_run_without_a_row_is_to_be_trained(folder, capsys):
    main(["--results", str(folder), "--todo", *text(folder, "a")])
    assert capsys.readouterr().out.splitlines() == [  # the others have a row
        "experiment=why pos=none intervention=offset_bias intervention.strength=6 trainer.precision=32-true "
        f"steps=1200 seed=2 data=text data.path={folder}/a.txt"
    ]


def test_with_nothing_missing_nothing_is_printed_for_train_py(folder, tmp_path, capsys):
    study = shutil.copytree(folder, tmp_path / "study")
    (study / "plan.yaml").write_text(yaml.safe_dump({**PLAN, "blocks": PLAN["blocks"][:1]}))
    main(["--results", str(study), "--todo", *text(folder, "a")])
    assert capsys.readouterr() == ("", "0 runs are missing.\n")


def test_on_another_text_every_run_is_to_be_trained(folder, capsys):
    (folder / "b.txt").write_text("And the earth\n" * 30)
    main(["--results", str(folder), "--todo", *text(folder, "b")])
    assert len(capsys.readouterr().out.splitlines()) == 12


def test_the_runs_of_a_stranger_cannot_command_the_terminal(folder, tmp_path, capsys):
    study = shutil.copytree(folder, tmp_path / "study")
    (tmp_path / "theirs" / "\x1b[2J" / "seed0-1").mkdir(parents=True)
    (tmp_path / "theirs" / "\x1b[2J" / "seed0-1" / "config.yaml").write_text("{")
    main(["--results", str(study), str(tmp_path / "theirs"), "--todo", *text(folder, "a")])
    told, _ = capsys.readouterr().err.splitlines()
    assert f"{tmp_path}/theirs/ [2J/seed0-1" in told


@pytest.mark.parametrize(
    ("name", "change", "sentence"),
    [
        ("plan.yaml", ("units: [1]", "units: [x]"), "plan.yaml cannot be read: units.0 is missing or invalid"),
        ("plan.yaml", ("arms:", "arm:"), "plan.yaml cannot be read: arms is missing or invalid"),
        ("plan.yaml", ("reference: rope", "reference: xpos"), "plan.yaml has no arm xpos"),
        ("plan.yaml", ("levels:", "level:"), "plan.yaml cannot be read: levels is missing or invalid"),
        ("plan.yaml", ("blocks:", "corpora: null\nblocks:"), "plan.yaml cannot be read: corpora is missing or invalid"),
        ("plan.yaml", ("axis: bias", "axis: [1]"), "plan.yaml cannot be read: blocks.1.axis is missing or invalid"),
        ("plan.yaml", ("from: none", "from: 5"), "plan.yaml cannot be read: blocks.1.from is missing or invalid"),
        ("plan.yaml", ("what: Dose", "what: Dose\n  alternative: [1]"), "cannot be read: alternative is missing or"),
        ("curves.csv", ("corpus", "corpse"), "curves.csv, row 1, column corpus cannot be read: Field required"),
        ("curves.csv", (",0,4915200,", ",zero,4915200,"), "curves.csv, row 1, column seed cannot be read: "),
    ],
)
def test_a_plan_or_a_table_that_is_not_one_is_refused_in_a_sentence(name, change, sentence, folder, tmp_path, capsys):
    shutil.copytree(folder, tmp_path / "why")
    (tmp_path / "why" / "plan.yaml").write_text(yaml.safe_dump(PLAN, sort_keys=False, default_flow_style=None))
    changed = (tmp_path / "why" / name).read_text().replace(*change)
    assert changed != (tmp_path / "why" / name).read_text()
    (tmp_path / "why" / name).write_text(changed)
    with pytest.raises(SystemExit) as ended:
        main(["--results", str(tmp_path / "why")])
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err
