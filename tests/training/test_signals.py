import os
import signal
import time

import pytest

from posenc.errors import Stopped
from posenc.training import signals
from posenc.training.signals import Signals


def send(signum: int) -> None:
    os.kill(os.getpid(), signum)
    time.sleep(0.01)  # Python runs handlers between two instructions


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_while_nothing_is_trained_a_signal_ends_the_process_at_once(signum, code):
    with pytest.raises(Stopped) as stopped, Signals():
        send(signum)
    assert stopped.value.exit_code == code


def test_in_training_a_signal_waits_for_the_step_to_be_saved():
    with Signals() as taken:
        taken.training()
        assert taken.received is None
        send(signal.SIGTERM)
        send(signal.SIGTERM)  # once is enough
        assert taken.received == signal.SIGTERM
        with pytest.raises(Stopped, match="stopped by SIGTERM: it is saved; the same command goes on from there"):
            taken.stop("it is saved")


def test_a_step_that_does_not_end_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(signals, "GRACE", 0.05)
    with Signals() as taken:
        taken.training()
        send(signal.SIGTERM)
        with pytest.raises(Stopped, match="the last checkpoint stays"):
            time.sleep(30)


def test_a_checkpoint_that_takes_long_is_waited_for(monkeypatch):
    monkeypatch.setattr(signals, "GRACE", 0.05)
    with Signals() as taken:
        taken.training()
        send(signal.SIGTERM)
        taken.saving()
        time.sleep(0.2)


def test_who_waited_for_a_signal_before_is_told_when_the_step_is_saved(capsys):
    """As a launcher of cluster jobs does, to put the job back into its queue."""
    told = []
    before = signal.signal(signal.SIGUSR1, lambda signum, _: told.append(signum))
    try:
        with Signals() as taken:
            taken.training()
            send(signal.SIGUSR1)
            assert told == []
            with pytest.raises(Stopped):
                taken.stop("it is saved")
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert told == [signal.SIGUSR1]
    assert "it is saved" in capsys.readouterr().err


def test_afterwards_signals_are_as_they_were():
    before = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)]
    with Signals() as taken:
        taken.training()
    assert [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)] == before
