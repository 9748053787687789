import signal
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest

from posenc.errors import RunError, Stopped
from posenc.tracking import client, wandb_logger
from posenc.training import signals, watchdog
from posenc.training.signals import Signals
from tests.conftest import HANGUP
from tests.training.sending import send

SLOWEST = signals.GRACE + max(watchdog.MARGIN, wandb_logger.FAILED_UPLOAD + client.GRACE)
"""Seconds from a signal to the end of a single rank; before a fixture changes the limit."""


pytestmark = pytest.mark.usefixtures("as_before")


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, HANGUP])
def test_while_nothing_is_trained_a_signal_ends_the_process_at_once(signum):
    with pytest.raises(Stopped) as stopped, Signals():
        send(signum)
    assert stopped.value.exit_code == {signal.SIGTERM: 143, signal.SIGINT: 130, signal.SIGHUP: 129}[signum]


def test_a_closed_terminal_does_not_stop_a_run_under_nohup():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Signals() as taken:
            send(signal.SIGHUP)
            assert taken.received is None
    finally:
        signal.signal(signal.SIGHUP, before)


def test_in_training_a_signal_waits_for_the_step_to_be_saved():
    with Signals() as taken:
        taken.start_training()
        assert taken.received is None
        send(signal.SIGTERM)
        send(signal.SIGTERM)  # once is enough
        assert taken.received == signal.SIGTERM
        with pytest.raises(Stopped, match="^stopped by SIGTERM: it is saved$"):
            taken.stop("it is saved")


def test_a_signal_after_the_last_step_ends_the_process_at_once():
    with Signals() as taken:
        taken.start_training()
        taken.end_training()
        with pytest.raises(Stopped, match="^stopped by SIGTERM: nothing was lost"):
            send(signal.SIGTERM)


def test_a_process_that_ctrl_c_has_stopped_hears_no_other():
    with pytest.raises(Stopped, match="^stopped by Ctrl-C"), Signals():
        send(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_a_step_that_does_not_end_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(signals, "GRACE", 0.05)
    with Signals() as taken:
        taken.start_training()
        send(signal.SIGTERM)
        with pytest.raises(Stopped, match="resumes from the last checkpoint"):
            time.sleep(30)


def test_a_process_that_has_stopped_takes_the_time_it_needs():
    """To end W&B's process, for example."""
    code = """if True:
        import os, signal, time
        from posenc.errors import Stopped
        from posenc.training import signals, watchdog
        signals.GRACE = watchdog.MARGIN = 0.3
        try:
            with signals.Signals() as taken:
                try:
                    taken.start_training()
                    os.kill(os.getpid(), signal.SIGTERM)
                    taken.stop("it is saved")
                finally:
                    time.sleep(1.5)
        except Stopped as stopped:
            print(stopped)
    """
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "stopped by SIGTERM: it is saved\n", "")


@pytest.mark.parametrize(("ranks", "ignored"), [("1", False), ("2", True)])
def test_a_rank_that_fails_reports_it_although_torchrun_sends_a_sigterm(monkeypatch, ranks, ignored):
    environment = {"RANK": "0", "WORLD_SIZE": ranks, "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": ranks}
    for name, value in {**environment, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(RunError), Signals():
            raise RunError("the other rank has died")
        assert (signal.getsignal(signal.SIGTERM) == signal.SIG_IGN) == ignored
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_step_that_cannot_be_saved_does_not_undo_the_signal(signum):
    """Else a sweep would go on with the next run."""

    def train() -> None:
        with Signals() as taken:
            taken.start_training()
            send(signum)
            raise RunError("the disk is full")

    with pytest.raises(Stopped, match="^stopped by (Ctrl-C|SIGTERM): the disk is full$"):
        train()


def test_a_run_has_ended_before_senders_of_signals_kill_it():
    """After 10 seconds, and after 30 where several ranks must agree: docs/training.md."""
    assert SLOWEST < 10
    assert SLOWEST + signals.MULTI_RANK_GRACE < 30


def test_a_checkpoint_that_takes_long_is_waited_for(monkeypatch):
    monkeypatch.setattr(signals, "GRACE", 0.3)
    with Signals() as taken:
        taken.start_training()
        send(signal.SIGTERM)
        with taken.deferred():
            time.sleep(0.6)


def test_who_waited_for_a_signal_before_is_told_once_when_the_step_is_saved(usr1, capsys):
    """As a launcher of cluster jobs does, to put the job back into its queue."""
    with Signals() as taken:
        taken.start_training()
        send(signal.SIGUSR1)
        assert usr1 == []
        for _ in range(2):
            with pytest.raises(Stopped):
                taken.stop("it is saved")
    assert usr1 == [signal.SIGUSR1]
    assert "it is saved" in capsys.readouterr().err


def test_who_waited_for_a_signal_before_takes_the_time_it_needs():
    """As a busy cluster's controller does when a job is to be put back into its queue."""
    code = """
import os, signal, sys, time
from posenc.training import signals, watchdog
watchdog.MARGIN = 0.1
signal.signal(signal.SIGUSR1, lambda *_: (time.sleep(1), sys.exit(7)))
with signals.Signals() as taken:
    taken.start_training()
    os.kill(os.getpid(), signal.SIGUSR1)
    with taken.deferred():
        pass
    taken.stop("it is saved")
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 7


def test_a_requeue_is_not_interrupted_by_the_sigterm_that_slurm_sends_to_the_requeued_job():
    """SLURM sends it to every process of the job, so that the command that requeues it may not see its answer."""
    code = """
import os, signal, subprocess
from posenc.training.signals import Signals
requeue = "kill -TERM $$; kill -TERM $PPID; exit 0"
signal.signal(signal.SIGUSR1, lambda *_: subprocess.check_call(["sh", "-c", requeue]))
with Signals() as taken:
    taken.start_training()
    os.kill(os.getpid(), signal.SIGUSR1)
    taken.stop("it is saved")
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "CalledProcessError" not in ended.stderr
    assert ended.stderr.splitlines()[-1] == "posenc.errors.Stopped: stopped by SIGUSR1: it is saved"


def test_afterwards_signals_are_as_they_were():
    before = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)]
    with Signals() as taken:
        taken.start_training()
    assert [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)] == before


def test_a_signal_that_comes_where_nothing_can_be_raised_is_not_lost():
    class Deaf:
        def __del__(self) -> None:
            send(signal.SIGTERM)

    with Signals() as taken:
        Deaf()
        assert taken.received == signal.SIGTERM
        with pytest.raises(Stopped):
            time.sleep(30)


def test_a_signal_during_a_checkpoint_waits_for_it(monkeypatch):
    monkeypatch.setattr(signals, "GRACE", 0.05)
    with Signals() as taken:
        taken.start_training()
        with taken.deferred():
            send(signal.SIGTERM)
            time.sleep(0.2)
        with pytest.raises(Stopped, match="resumes from the last checkpoint"):  # unless the next step ends before
            time.sleep(30)


def test_a_signal_during_the_last_checkpoint_is_granted_after_it():
    with Signals() as taken:
        taken.start_training()
        with taken.deferred():
            send(signal.SIGTERM)
        with pytest.raises(Stopped, match="the last step is saved"):
            taken.end_training()


def test_a_timer_of_somebody_else_s_goes_on_afterwards():
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 100)
    try:
        with Signals() as taken:
            taken.start_training()
        assert 50 < signal.getitimer(signal.ITIMER_REAL)[0] <= 100
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_rank_does_not_stop_at_the_end_for_a_signal_that_no_other_knows_of():
    with Signals() as taken:
        taken.start_training(multi_rank=True)
        send(signal.SIGTERM)
        taken.end_training()


def test_a_rank_stops_for_the_signal_that_another_rank_has_received():
    strategy: Any = SimpleNamespace(root_device="cpu", reduce=lambda *_, **__: signal.SIGTERM)
    with Signals() as taken:
        taken.start_training(multi_rank=True)
        taken.agree(strategy)
        with pytest.raises(Stopped, match="^stopped by SIGTERM: it is saved$"):
            taken.stop("it is saved")


@pytest.mark.usefixtures("usr1")
def test_a_signal_of_a_time_limit_leaves_more_time():
    with Signals() as taken:
        taken.start_training()
        send(signal.SIGUSR1)
        assert signal.getitimer(signal.ITIMER_REAL)[0] > signals.MULTI_RANK_GRACE


@pytest.fixture
def usr1():
    """The signals that a handler of before has received, as SLURM's for a job that is requeued."""
    received: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda signum, _: received.append(signum))
    yield received
    signal.signal(signal.SIGUSR1, before)
