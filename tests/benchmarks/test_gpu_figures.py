"""benchmarks/gpu.py at toy size: what it takes, passes over and kills."""

import json

from tests.benchmarks.scripts import script


def test_a_part_is_taken_once_and_one_over_its_time_is_killed_and_taken_again(tmp_path):
    line = ("--quick", "--out", tmp_path / "out", "--parts", "train")
    killed = script("gpu", *line, "--budget", "1")
    assert (killed.returncode, killed.stdout) == (0, "train: killed after 1 s\n")
    assert script("gpu", *line).stdout == "train: done\n"
    assert script("gpu", *line).stdout == "train: there\n"
    assert script("gpu", *line[:2], tmp_path / "new", *line[3:], "--from", tmp_path / "out").stdout == "train: done\n"
    figures = [json.loads((tmp_path / name / "train.json").read_text()) for name in ("out", "new")]
    assert figures[0] == figures[1]
    assert "validation loss" in figures[0]["came_out"]
    assert figures[0]["command"] in (tmp_path / "new" / "gpu.md").read_text()


def test_the_parts_are_listed_and_an_unknown_one_is_refused():
    assert "test_gpu" in script("gpu", "--list").stdout
    assert "there is no nonsense" in script("gpu", "--parts", "nonsense").stderr
