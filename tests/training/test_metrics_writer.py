"""What a row of metrics.csv costs, and what is in it."""

from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

from posenc.errors import RunError
from posenc.storage.csv_files import read_csv
from posenc.training.metrics_writer import MetricsWriter
from posenc.training.timer import Timer
from tests.conftest import only, train_here

LOSSES = (3.0, 2.0, 4.0)
"""The last is not their mean."""
SYNCHRONISING = {"tolist", "item", "__float__", "__bool__", "tensor", "cpu"}
"""Functions that wait for a GPU: they read from it, or write to it from pageable memory."""


class Synchronisations(TorchFunctionMode):
    """Names of the functions called in this context that would wait for a GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function.__name__ in SYNCHRONISING:
            self.names.append(function.__name__)
        return function(*args, **(kwargs or {}))


class Run:
    """A writer of a row every three steps, on a rank that writes no file; the other ranks have twice its loss."""

    def __init__(self, path: Any) -> None:
        settings: Any = SimpleNamespace(batch_size=2, context=8, log_every=3, eval_every=100, steps=100)
        directory: Any = SimpleNamespace(path=path, checkpoints=path)
        signals: Any = SimpleNamespace(asked=None, agree=lambda _: None, start_training=lambda **_: None)
        probe: Any = None
        self.metrics = MetricsWriter(directory, settings, probe, Timer(), signals, print)
        self.module = SimpleNamespace(
            device=torch.device("cpu"), gradient_norm=torch.tensor(0.5), learning_rate=lambda _: 1e-3
        )
        strategy = SimpleNamespace(reduce=lambda losses, **_: 1.5 * losses)
        self.trainer: Any = SimpleNamespace(global_step=0, is_global_zero=False, strategy=strategy, world_size=2)
        self.module.trainer = self.trainer

    def train(self, *losses: float, clock: Any = None, seconds: float = 0) -> None:
        for loss in torch.tensor(losses):
            self.trainer.global_step += 1
            self.metrics.on_train_batch_start()
            if clock is not None:
                clock.now += seconds
            self.metrics.on_train_batch_end(self.trainer, self.module, {"loss": loss})

    def resume(self, other: "Run") -> None:
        """As from a checkpoint of another run, whose rows are in its files."""
        metrics: Any = self.metrics
        metrics._check_rows = lambda _: None
        metrics.load_state_dict(other.metrics.state_dict())
        self.trainer.global_step = other.trainer.global_step


def test_a_row_waits_for_the_device_once(tmp_path):
    run = Run(tmp_path)
    run.train(*LOSSES[:-1])
    run.trainer.global_step += 1
    outputs = {"loss": torch.tensor(LOSSES[-1])}
    with Synchronisations() as waits:
        run.metrics.on_train_batch_end(run.trainer, run.module, outputs)
    assert waits.names == ["tolist"]


def test_the_rows_of_both_tables_are_flushed_to_disk(tmp_path):
    run = Run(tmp_path)
    flushed: list[str] = []
    for name in ("file", "probe_file"):
        setattr(run.metrics, name, SimpleNamespace(sync=partial(flushed.append, name)))
    run.metrics.sync()
    assert flushed == ["file", "probe_file"]


def test_a_row_has_the_mean_loss_of_its_steps_over_all_ranks_and_the_last_gradient_norm(tmp_path):
    run = Run(tmp_path)
    run.train(*LOSSES)
    assert (run.metrics.row["train_loss"], run.metrics.row["gradient_norm"]) == (4.5, 0.5)


def test_the_seconds_of_a_row_are_those_of_steps_and_its_speed_is_that_of_its_own(tmp_path, clock):
    run = Run(tmp_path)
    rows = []
    for seconds in (1, 2, 4):
        run.train(*LOSSES, clock=clock, seconds=seconds)
        clock.now += 50  # a validation
        rows.append((run.metrics.row["seconds"], run.metrics.row["tokens_per_s"]))
    assert rows == [(3, 16), (9, 8), (21, 4)]  # of 16 tokens a step


def test_a_row_in_which_a_run_was_stopped_has_the_losses_and_the_seconds_from_before(tmp_path, clock):
    stopped, resumed = Run(tmp_path), Run(tmp_path)
    stopped.train(*LOSSES[:-1], clock=clock, seconds=1)
    resumed.resume(stopped)
    clock.now += 50
    resumed.metrics.on_train_start(resumed.trainer, resumed.module)
    resumed.train(LOSSES[-1], clock=clock, seconds=1)
    row = resumed.metrics.row
    assert (row["train_loss"], row["seconds"], row["tokens_per_s"]) == (4.5, 3, 16)


@pytest.mark.parametrize("step", [1, 2, 3])
def test_a_loss_that_is_not_finite_is_reported_with_its_step(step, tmp_path):
    run = Run(tmp_path)
    advice = "before any update: a value" if step == 1 else "with a learning rate of 0.001: try a lower"
    with pytest.raises(RunError, match=f"the loss is inf at step {step}, {advice}"):
        run.train(*LOSSES[: step - 1], float("inf"))


def test_a_gradient_that_is_not_finite_is_reported_with_its_step(tmp_path):
    run = Run(tmp_path)
    run.module.gradient_norm = torch.tensor(float("nan"))
    with pytest.raises(RunError, match="the gradient norm is nan at step 1"):
        run.train(LOSSES[0])


def test_a_validation_loss_that_is_nan_ends_the_run_before_it_is_saved(tmp_path):
    """The first update makes the weights infinite; its own loss and gradient are finite."""
    steps = ("steps=1", "eval_every=1", "log_every=1", "schedule.warmup=0", "optim.lr=1e20")
    with pytest.raises(RunError, match=r"the validation loss is nan at step 1, with a learning rate of 1e\+20"):
        train_here(tmp_path, *steps)
    assert not list(tmp_path.rglob("*.ckpt"))
    (row,) = read_csv(only(tmp_path, "**/metrics.csv"))  # by which reports know that it has diverged
    assert (row["step"], row["tokens"], row["val_loss"]) == ("1", str(4 * 64), "nan")


def test_a_row_has_the_highest_score_of_each_kind(tmp_path):
    run, heads = Run(tmp_path), [{"1": 0.2, "induction": 0.7}, {"1": 0.5, "induction": 0.1}]
    metrics: Any = run.metrics
    metrics.settings.attention_every, metrics.row = 3, {"step": 3}
    metrics.probe = SimpleNamespace(position_share=lambda _: {}, measure=lambda _: heads)
    run.module.hardware = SimpleNamespace(unsharded=lambda *_, **__: nullcontext())
    run.module.loss = run.module.model = None
    run.trainer.precision_plugin = SimpleNamespace(forward_context=nullcontext)
    metrics._probe(run.trainer, run.module)
    assert (metrics.row["previous_token"], metrics.row["induction"]) == (0.5, 0.7)


def test_the_peak_is_that_of_all_ranks(tmp_path, monkeypatch):
    monkeypatch.setattr("posenc.training.metrics_writer.peak_flops", lambda *_: 100.0)
    monkeypatch.setattr("posenc.training.metrics_writer.flops_per_token", lambda *_: 50.0)
    run = Run(tmp_path)
    run.trainer.precision, run.trainer.strategy.root_device = "bf16-mixed", torch.device("cpu")
    run.module.model = None
    run.metrics.setup(run.trainer, run.module)
    assert run.trainer.world_size > 1
    assert run.metrics.peak_seconds_per_token == 50 / (100 * run.trainer.world_size)


def test_the_peak_and_the_machines_of_a_resumed_run_are_those_of_all_its_sessions(tmp_path):
    first, resumed = Run(tmp_path), Run(tmp_path)
    for run, peak, machine in ((first, 0.5, "fast"), (resumed, 0.25, "slow")):
        run.metrics.peak_seconds_per_token = peak
        run.metrics.machines.append(machine)
    first.train(*LOSSES)
    for _ in range(2):  # the second time on the same machine
        resumed.resume(first)
    resumed.train(*LOSSES)
    assert resumed.metrics.machines == ["fast", "slow"]
    assert resumed.metrics.peak_seconds == 3 * 16 * (0.5 + 0.25)


def test_a_resumed_run_knows_the_lowest_validation_loss_of_its_earlier_sessions(tmp_path):
    first, resumed = Run(tmp_path), Run(tmp_path)
    first.metrics.lowest = 1.5
    resumed.resume(first)
    assert resumed.metrics.lowest == 1.5


def test_a_session_whose_peak_is_unknown_leaves_the_run_without_one(tmp_path):
    first, resumed = Run(tmp_path), Run(tmp_path)
    first.train(*LOSSES)
    resumed.metrics.peak_seconds_per_token = 0.5
    resumed.resume(first)
    resumed.train(*LOSSES)
    assert resumed.metrics.peak_seconds is None


def test_a_signal_postpones_a_validation_except_after_the_last_step(tmp_path):
    metrics: Any = Run(tmp_path).metrics
    metrics.row, metrics.signals.asked = {"step": 3}, 15
    for steps, postponed in ((4, True), (3, False)):
        metrics.settings.steps = steps
        assert metrics._stopping() is postponed


def test_a_postponed_validation_is_no_validation(tmp_path):
    run = Run(tmp_path)
    metrics: Any = run.metrics
    metrics.settings.eval_every, metrics.signals.asked = 3, 15
    run.module.validation_batches = lambda: [(torch.tensor(2.0), None, 1.0)]
    run.train(*LOSSES)
    assert not run.metrics.just_validated(3)


def test_the_lowest_validation_loss_is_not_raised_by_a_later_one(tmp_path, monkeypatch):
    metrics: Any = Run(tmp_path).metrics
    losses, lowest = iter((2.0, 1.5, 1.75)), []
    monkeypatch.setattr("posenc.training.metrics_writer.validate", lambda *_: {"val_loss": next(losses)})
    metrics.settings.eval_every, metrics._probe = 3, lambda *_: None
    trainer: Any = SimpleNamespace(is_global_zero=False)
    for step in (3, 6, 9):
        metrics.row = {"step": step, "train_loss": 2.0}
        metrics._validate_and_write(trainer, None)
        lowest.append(metrics.lowest)
    assert lowest == [2.0, 1.5, 1.5]
