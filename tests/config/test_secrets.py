"""Nothing that looks like a key is taken from a command line or shown; names that only sound alike are let through."""

import base64
from pathlib import Path

import pytest

from posenc.config.secrets import check_no_secrets, redact
from posenc.errors import UserError
from tests.conftest import ROOT, python
from tests.tracking.wandb_answers import KEY
from tests.tracking.wandb_stand_in import answers_500, stand_in

SMOKE = ("experiment=smoke", "trainer=cpu")

HUB_KEY = "hf_" + "aB3" * 11


@pytest.mark.parametrize(
    "argument",
    [
        f"logger.api_key={KEY}",
        "+logger.api_key=hunter2",
        f"logger.entity={KEY}",
        f"logger.entity='{KEY}",
        f"--api-key={KEY}",
        f"WANDB_API_KEY={KEY}",
        KEY,
        f"{KEY}=1",
        f"data.hf_token={HUB_KEY}",
        f"data.name={HUB_KEY}",
        "password=hunter2",
    ],
)
def test_a_secret_on_a_command_line_is_refused_and_not_shown(argument):
    with pytest.raises(UserError, match="looks like a secret") as refused:
        check_no_secrets(["pos=rope", argument])
    assert not any(secret in str(refused.value) for secret in (KEY, HUB_KEY, "hunter2"))


@pytest.mark.parametrize(
    "argument",
    [
        "tokenizer=bpe",
        "tokenizer.vocab_size=8192",
        "model.family.queries_per_key=2",
        "pos.base=10000",
        f"data.revision={KEY}",
        "data.path=keys.txt",
        f"data.path=hub/datasets--a--b/snapshots/{KEY}/train.parquet",
        "-m",
    ],
)
def test_what_only_sounds_like_one_is_let_through(argument):
    check_no_secrets([argument])


def test_the_value_of_a_secret_variable_is_hidden_wherever_it_stands(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "as-long-as-this")
    assert redact("cannot open as-long-as-this/file") == "cannot open ***/file"
    with pytest.raises(UserError, match="^data.path looks like a secret"):
        check_no_secrets(["data.path=as-long-as-this"])


@pytest.mark.parametrize("variable", ["WANDB_API_KEY", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"])
def test_each_secret_variable_is_known_and_one_without_a_secret_hides_nothing(variable, monkeypatch):
    monkeypatch.setenv(variable, "local-12")
    assert redact("the key local-12 is wrong") == "the key *** is wrong"
    for value in ("", "none"):
        monkeypatch.setenv(variable, value)
        assert redact("pos=none") == "pos=none"


@pytest.mark.parametrize("name", ["client_secret", "logger.passwd", "+a-token", "apikey"])
def test_an_argument_with_a_secret_s_name_is_refused(name):
    with pytest.raises(UserError, match="looks like a secret"):
        check_no_secrets([f"{name}=hunter2"])


@pytest.mark.parametrize("program", ["train.py", "-m posenc.report"])
def test_the_command_says_so_in_one_sentence(program):
    result = python(*program.split(), "runs", f"+logger.api_key={KEY}")
    assert result.returncode == 2
    assert "+logger.api_key looks like a secret" in result.stderr
    assert KEY not in result.stdout + result.stderr
    assert result.stderr.count("\n") == 1


def test_a_run_a_failed_run_and_a_report_leave_no_key_behind(train, tmp_path):
    """One key in a .netrc, one in the environment beside the hub's; everything printed and written is searched."""
    home, netrc_key = tmp_path / "home", KEY[::-1]
    home.mkdir()
    cache = f"cache={tmp_path}/cache"
    places = {
        "HOME": str(home),
        "NETRC": str(home / ".netrc"),
        "HF_TOKEN": HUB_KEY,
        "WANDB_CACHE_DIR": str(home),
        "XDG_CACHE_HOME": str(Path.home() / ".cache"),  # where fonts are known
    }
    with stand_in() as server:
        (home / ".netrc").write_text(f"machine 127.0.0.1:{server.port}\nlogin user\npassword {netrc_key}\n")
        first = train(*SMOKE, cache, env={**places, "WANDB_BASE_URL": server.url})
        assert (first.returncode, len(server.runs)) == (0, 1), first.stdout
        (home / ".netrc").unlink()
        server.fault_then = answers_500
        failed = train(*SMOKE, cache, "optim.lr=1e30", "logger.upload=2", env={**places, **server.environment})
        assert (failed.returncode, len(server.runs)) == (1, 2), failed.stderr
        server.fault = None
        environment = {**places, **server.environment, "PYTHONPATH": str(ROOT / "src")}
        report = python("-m", "posenc.report", "wandb://team/posenc/smoke", cwd=tmp_path, env=environment)
        assert report.returncode == 0, report.stderr
    said = "".join(done.stdout + done.stderr for done in (first, failed, report)).encode()
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert {"config.yaml", "debug-internal.log", "report.html", "summary.json"} <= {file.name for file in files}
    for key in (KEY, netrc_key, HUB_KEY):
        for form in (key.encode(), base64.b64encode(f"api:{key}".encode())):
            assert form not in said
            assert not [file for file in files if form in file.read_bytes()]
