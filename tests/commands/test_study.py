"""The tables of a study, to which several commands may add rows at a time."""

import math
from typing import Any

import yaml

from posenc.analysis.results import Result, ShareRow, table
from posenc.analysis.study import Study
from posenc.commands.study import add_rows
from posenc.storage.csv_files import read_rows


def test_rows_that_another_process_adds_meanwhile_are_kept(tmp_path):
    plan = {"experiment": "claim_map", "precision": "32-true", "search_seeds": [], "blocks": []}
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(plan))
    first, second = (
        Result("wiki", "backbone", "sinusoidal", seed, 4096, 0.003, "0.1", "10000", 2.0, math.nan, 2.5, "abc", "CPU")
        for seed in (0, 1)
    )
    file = tmp_path / "shares.csv"
    run: Any = None  # nothing reads it

    def while_another_adds(_: Any, result: Result) -> list[ShareRow]:
        file.write_text(table(ShareRow, [ShareRow(*second.key, 0.1, 0.2)]))
        return [ShareRow(*result.key, 0.3, 0.4)]

    add_rows(Study(tmp_path), [(run, first), (run, second)], "shares.csv", ShareRow, while_another_adds)
    assert read_rows(file, ShareRow) == [ShareRow(*second.key, 0.1, 0.2), ShareRow(*first.key, 0.3, 0.4)]
