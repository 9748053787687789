"""A study of two runs, for the tests of its command."""

import shlex

import pytest
import yaml

from tests.conftest import ROOT, python

SHORT = ["data=text", "logger=csv", "eval_every=10", "log_every=10", "trainer=cpu"]


def command(folder, *arguments):
    result = python(*arguments, cwd=folder)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A folder with a plan of two runs, both trained."""
    folder = tmp_path_factory.mktemp("map")
    (folder / "text.txt").write_text("".join(f"Line {number} of a text.\n" for number in range(20_000)))
    arms = ["pos=rope", "pos=sinusoidal pos.scale=0.1"]
    plan = {
        "experiment": "smoke",
        "precision": "32-true",
        "unit": 10,
        "search_seeds": [9],
        "blocks": [{"units": [1], "seeds": [0], "arms": arms}],
    }
    (folder / "kept").mkdir()
    (folder / "kept" / "plan.yaml").write_text(yaml.safe_dump(plan))
    lines = command(folder, "-m", "posenc.claim_map", "--results", "kept", "--todo", "data.path=text.txt", *SHORT)
    for line in lines.splitlines():
        command(folder, ROOT / "train.py", *shlex.split(line))
    command(folder, "-m", "posenc.claim_map", "runs/smoke", "--results", "kept")
    return folder
