"""What a user types wrong is answered in one sentence, with exit code 2, and nothing is left behind."""

import errno
import io
import os
import signal
import subprocess
import sys
from contextlib import closing
from tempfile import TemporaryDirectory

import pytest

from posenc.config.arguments import Arguments
from posenc.config.command_line import one_sentence_errors
from posenc.config.files import choices_in, description
from posenc.config.help import manual
from posenc.errors import RunError, Stopped, printable, printable_lines
from tests.config.bad_inputs import WRONG
from tests.config.wrong_input import SECRET, answer, as_a_user, may_read_all, warm_python
from tests.conftest import CONF, HANGUP, ROOT, clean_environment


@pytest.fixture(scope="module")
def warm():
    with closing(warm_python()) as warm:
        yield warm


@pytest.mark.parametrize("signum", [signal.SIGTERM, HANGUP])
def test_a_command_that_is_stopped_by_a_signal_removes_its_temporary_files(signum, tmp_path, capsys):
    with pytest.raises(SystemExit) as ended, Arguments(prog="posenc test").parsed([]), TemporaryDirectory(dir=tmp_path):
        os.kill(os.getpid(), signum)
    assert ended.value.code == 128 + signum
    assert capsys.readouterr().err == f"posenc test: stopped by {signum.name}\n"
    assert not [*tmp_path.iterdir()]
    assert signal.getsignal(signum) is signal.SIG_DFL


def test_a_command_goes_on_after_a_signal_that_nohup_ignores():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Arguments(prog="posenc test").parsed([]):
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_what_is_printed_has_no_control_character_but_tabs_and_ends_of_lines():
    assert printable("a\x1b[31m\nd\te\u202e") == "a [31m d e "
    assert printable_lines("a\tb\n\x1b") == "a\tb\n "


@pytest.mark.parametrize("wrong", WRONG, ids=[wrong.title for wrong in WRONG])
def test_a_wrong_input_is_answered_in_one_sentence_and_leaves_nothing(wrong, warm, tmp_path):
    if wrong.forbids and may_read_all():
        pytest.skip("whoever runs this may read and write everything")
    here = tmp_path / "here"
    here.mkdir()
    given = answer(wrong, here, warm)
    assert wrong.sentence.replace("{here}", str(here)) in given.errors
    assert given.code == 2
    assert given.errors.count("\n") == 1
    assert "Traceback" not in given.errors
    assert SECRET not in given.errors
    assert not given.left


def test_a_working_directory_that_was_removed_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    tmp_path.rmdir()
    with pytest.raises(SystemExit) as ended, one_sentence_errors(conf=ROOT / "conf"):
        pytest.fail("it went on")
    assert ended.value.code == 2
    assert "the working directory cannot be used: No such file or directory" in capsys.readouterr().err


@pytest.mark.skipif(may_read_all(), reason="whoever runs this may read and write everything")
def test_a_working_directory_that_may_not_be_entered_is_named(tmp_path):
    code = (
        "import os, posenc.config.command_line as c; os.chmod('.', 0); c.one_sentence_errors(conf='conf').__enter__()"
    )
    result = subprocess.run([*as_a_user(), sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert "the working directory cannot be used: Permission denied" in result.stderr


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (KeyboardInterrupt(), 130, "stopped by Ctrl-C"),
        (BrokenPipeError(), 141, "stdout was closed (broken pipe)"),
        (Stopped(signal.SIGTERM, "it is saved"), 143, "it is saved"),
        (RunError("it diverged"), 1, "it diverged"),
        (MemoryError(), 1, "out of memory: it needs more than"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), 1, "out of memory: it needs more than"),
        (RuntimeError("CUDA out of memory."), 1, "out of memory: it needs more than"),
        (PermissionError(errno.EACCES, "Permission denied", "a.ckpt"), 1, "a.ckpt could not be read or written: Perm"),
        (ModuleNotFoundError(name="scipy.stats"), 2, "this needs the package scipy, which is not installed: see req"),
    ],
)
def test_each_end_has_its_exit_code(error, code, sentence, capsys, monkeypatch):
    monkeypatch.setattr("posenc.config.command_line.discard_stdout", lambda: None)
    with pytest.raises(SystemExit) as ended, one_sentence_errors():
        raise error
    assert ended.value.code == code
    assert f": {sentence}" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", ["--help", "report --help"])
def test_a_full_disk_behind_stdout_is_told_once(arguments):
    command = [sys.executable, "-m", "posenc", *arguments.split()]
    buffered = {name: value for name, value in clean_environment().items() if name != "PYTHONUNBUFFERED"}
    with open("/dev/full", "w") as full:
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=buffered)
    name = f"posenc {arguments}".removesuffix(" --help")
    sentence = f"{name}: a file or stdout could not be read or written: No space left on device\n"
    assert (result.returncode, result.stderr) == (1, sentence)


def test_without_stdin_stdout_and_stderr_a_command_runs():
    command = f"{sys.executable} -m posenc report nowhere <&- >&- 2>&-"
    assert subprocess.run(["sh", "-c", command], check=False).returncode == 2


@pytest.mark.parametrize(
    ("encoding", "shown"), [("ascii", b"1-2 ?"), ("latin-1", b"1-2 \xe9"), ("utf-8", b"1\xe2\x80\x932 \xc3\xa9")]
)
def test_a_terminal_shows_what_it_can(encoding, shown, monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding)
    monkeypatch.setattr(sys, "stdout", stream)
    with one_sentence_errors():
        print("1\N{EN DASH}2 \xe9", end="", flush=True)
    assert stream.buffer.getvalue() == shown


def test_help_reads_like_a_manual_and_says_in_80_columns_what_every_choice_is():
    shown = manual(CONF)
    assert max(map(len, shown.splitlines())) <= 80
    said = " ".join(shown.split())
    for group, choices in choices_in(CONF).items():
        for choice in choices if not group.startswith("hydra/") else ():
            assert f" {choice} {description(CONF / group / f'{choice}.yaml')}" in said
    for word in ("USAGE", "EXAMPLES", "python train.py pos=rope", " -m +sweep= ", " -m experiment= ", "rope_bounded"):
        assert word in said


def test_a_choice_without_a_comment_has_no_description(tmp_path):
    (tmp_path / "mine.yaml").write_text("_target_: mine.Scheme\n")
    assert description(tmp_path / "mine.yaml") == ""


@pytest.mark.parametrize("arguments", [["--help"], ["--cfg=job"], ["pos=none", "--cfg", "job"]])
def test_nothing_heavy_is_imported_to_answer_a_question(arguments):
    """What makes these answer in well under a second; the seconds themselves depend on the machine."""
    code = (
        "import runpy, sys\n"
        "try: runpy.run_path('train.py', run_name='__main__')\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'lightning', 'numpy', 'wandb', 'datasets', 'pydantic'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=clean_environment(),
    )
    assert result.returncode == 0, result.stderr
    assert ("# The files in " in result.stdout) == (arguments != ["--help"])
