"""Ctrl-C waits for the step, says so if it takes long, and a second one does not wait."""

import os
import signal
import subprocess
import sys
import time

import pytest

from posenc.errors import Stopped
from posenc.training import signals
from posenc.training.signals import Signals
from tests.training.sending import send

pytestmark = pytest.mark.usefixtures("as_before")


def test_ctrl_c_waits_longer_for_the_step_and_says_so(monkeypatch, capfd):
    monkeypatch.setattr(signals, "GRACE", 0.05)
    with Signals() as taken:
        taken.start_training()
        send(signal.SIGINT)
        time.sleep(0.2)
        assert capfd.readouterr().err == "\nStopping after this step; a second Ctrl-C stops at once.\n"
        with pytest.raises(Stopped, match="^stopped by Ctrl-C: it is saved$"):
            taken.stop("it is saved")


def test_a_terminal_that_is_gone_does_not_keep_the_step_from_being_saved(monkeypatch):
    """As in `train.py 2>&1 | tee log`: Ctrl-C ends tee, too."""
    monkeypatch.setattr(signals, "GRACE", 0.05)

    def refuse(*_: object) -> None:
        raise BrokenPipeError

    with Signals() as taken:
        taken.start_training()
        monkeypatch.setattr(os, "write", refuse)
        send(signal.SIGINT)
        time.sleep(0.2)
        with pytest.raises(Stopped, match="it is saved$"):
            taken.stop("it is saved")


@pytest.mark.parametrize(
    ("signum", "training", "times"), [(signal.SIGINT, True, 2), (signal.SIGINT, False, 1), (signal.SIGTERM, False, 1)]
)
def test_a_library_that_keeps_python_waiting_hides_no_signal(signum, training, times):
    """Before training nothing is waited for, and one Ctrl-C is enough."""
    code = f"""if True:
        import hashlib, os, signal, threading, time
        from posenc.training import signals, watchdog
        signals.GRACE = watchdog.MARGIN = 0.3
        def press():
            for _ in range({times}):
                time.sleep(0.8)
                os.kill(os.getpid(), {int(signum)})
        with signals.Signals() as taken:
            if {training}:
                taken.start_training()
            threading.Thread(target=press, daemon=True).start()
            hashlib.pbkdf2_hmac("sha256", b"a", b"b", 10**9)  # releases the GIL, but runs no handlers
    """
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 128 + signum
    assert "stopped at once" in ended.stderr


def test_a_step_that_does_not_end_is_waited_for_only_so_long_after_ctrl_c(monkeypatch):
    monkeypatch.setattr(signals, "GRACE", 0.05)
    monkeypatch.setattr(signals, "CTRL_C_GRACE", 0.05)
    with Signals() as taken:
        taken.start_training()
        send(signal.SIGINT)
        with pytest.raises(Stopped, match="no step ended within 0.1 s"):
            time.sleep(30)


def test_a_second_ctrl_c_does_not_wait_for_the_step():
    code = """if True:
        import os, signal, time
        from posenc.training.signals import Signals
        with Signals() as taken:
            taken.start_training()
            for _ in range(2):
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.1)
            print("went on")
    """
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout) == (130, "")
    assert "stopped at once" in ended.stderr
