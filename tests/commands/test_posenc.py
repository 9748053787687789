"""The package as it is installed: the command `posenc`, and position schemes for other programs."""

import inspect
import re
import shutil
import signal
import subprocess
import sys
import tomllib

import pytest
import torch
import yaml

from posenc.__main__ import COMMANDS, main
from posenc.model import Transformer
from posenc.positions.apply_rotary import apply_rotary
from posenc.positions.tables import AngleTable, frequencies
from tests.conftest import CONF, ROOT, clean_environment, only


def test_an_installed_package_has_its_configuration_and_trains_in_any_folder(tmp_path):
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["force-include"] == {"conf": "posenc/conf"}
    installed = tmp_path / "installed"
    for folder in wheel["packages"]:
        shutil.copytree(ROOT / folder, installed / ROOT.joinpath(folder).name)
    shutil.copytree(CONF, installed / "posenc" / "conf")
    composed = subprocess.run(
        [sys.executable, "-m", "posenc", "train", "pos=alibi", "--cfg", "job"],
        cwd=tmp_path, capture_output=True, text=True, env={**clean_environment(), "PYTHONPATH": str(installed)},
    )  # fmt: skip
    assert composed.returncode == 0, composed.stderr
    assert "posenc.positions.Alibi" in composed.stdout
    assert composed.stdout.endswith(f"# The files in {installed}/posenc/conf explain each key.\n")
    trained = subprocess.run(
        [sys.executable, "-m", "posenc", "train", "experiment=smoke", "logger=csv", "trainer=cpu"],
        cwd=tmp_path, capture_output=True, text=True, env={**clean_environment(), "PYTHONPATH": str(installed)},
    )  # fmt: skip
    assert trained.returncode == 0, trained.stderr
    assert (only(tmp_path / "runs" / "smoke" / "rope") / "summary.json").exists()


def test_posenc_has_every_command_of_the_package(capsys, monkeypatch):
    files = (ROOT / "src" / "posenc" / "commands").glob("*.py")
    assert set(COMMANDS) == {file.stem for file in files if "\ndef main(" in file.read_text()}
    monkeypatch.setattr(sys, "argv", ["posenc"])
    main()
    assert re.findall(r"^  (\w+) ", capsys.readouterr().out, re.MULTILINE) == list(COMMANDS)
    monkeypatch.setattr(sys, "argv", ["posenc", "sample", "--help"])
    with pytest.raises(SystemExit):
        main()
    assert capsys.readouterr().out.startswith("usage: posenc sample ")


def test_what_is_no_command_is_told_in_a_sentence(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["posenc", "trian"])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    assert capsys.readouterr().err.startswith("posenc: trian is not a command; choose from train, ")


@pytest.mark.parametrize("command", [["posenc"], ["train.py"]])
def test_version_is_the_package_s(command, capsys, monkeypatch):
    from posenc.commands import train

    monkeypatch.setattr(sys, "argv", [*command, "--version"])
    (main if command == ["posenc"] else train.main)()
    assert re.fullmatch(r"posenc \d+\.\d+\.\d+\n", capsys.readouterr().out)
    assert signal.getsignal(signal.SIGPIPE) == signal.SIG_IGN  # a closed connection ends no process


def test_the_readme_s_rope_for_an_attention_of_ones_own_rotates_queries_and_keys():
    (snippet,) = re.findall(r"```python\n(.+?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert snippet.count("\n") <= 6
    torch.manual_seed(0)
    names: dict = {}
    exec(snippet, names)
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 8, 128, 64)
    cos, sin = AngleTable(frequencies(64, 10_000.0))(torch.arange(128))
    q, k = (apply_rotary(x, cos, sin, "half") for x in (q, k))
    logits = (q @ k.mT / 8).masked_fill(torch.ones(128, 128, dtype=torch.bool).triu(1), -torch.inf)
    torch.testing.assert_close(names["mixed"], logits.softmax(-1) @ v)


def test_the_scheme_in_the_documentation_is_a_scheme_and_its_file_that_of_its_arguments():
    page = (ROOT / "docs" / "schemes.md").read_text()
    both, (file, *_) = (re.findall(rf"```{kind}\n(.+?)```", page, re.DOTALL) for kind in ("python", "yaml"))
    names: dict = {}
    for code in both:
        exec(code, names)
    target, *arguments = yaml.safe_load(file)
    assert (target, arguments) == ("_target_", [*inspect.signature(names["LinearBias"]).parameters])
    bias = names["LinearBias"](2, slope=0.5).bias(torch.arange(3))
    assert bias.tolist() == [[[0, 0.5, 1], [-0.5, 0, 0.5], [-1, -0.5, 0]]] * 2
    Transformer(256, 8, 1, 16, 2, names["LinearBias"](2))
    fainter = names["FainterBias"](names["LinearBias"](2, slope=0.5), factor=0.5).layer(0)
    assert fainter.bias(torch.arange(3)).equal(bias / 2)
