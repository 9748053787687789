"""The step of profiles and benchmarks is the one that a run takes, and batches are those of the seed and the step."""

from unittest.mock import Mock

import pytest
import torch

from posenc.config.instantiate import build, build_model
from posenc.storage.csv_files import read_csv
from posenc.training.accelerator import Hardware
from posenc.training.experiment import Experiment
from posenc.training.step import clip_gradients
from tests.conftest import composed, train_here


@pytest.mark.parametrize("schedule", ["cosine", "wsd"])
def test_the_step_without_lightning_gives_the_curve_of_a_run_to_the_bit(schedule, tmp_path):
    arguments = ("experiment=smoke", "logger=csv", "trainer=cpu", "log_every=1", f"schedule={schedule}")
    rows = read_csv(train_here(tmp_path, *arguments) / "metrics.csv")
    config = composed(*arguments)
    experiment = Experiment.of(config)
    update = experiment.training_step(build(config, "trainer"), torch.device("cpu"))
    batches = experiment.batches(experiment.prepare(build(config, "data"), "kjv"))
    losses, rates = [], []
    for batch in batches.stream(0, config["steps"]):
        rates.append(update.optimizer.param_groups[0]["lr"])
        losses.append(update(*experiment.objective.inputs_and_targets(*batch)).item())
    assert losses == [float(row["train_loss"]) for row in rows]
    assert rates == [float(row["learning_rate"]) for row in rows]


@pytest.mark.parametrize(("steps", "compiled"), [(20, False), (100_000, True)])
def test_the_step_without_lightning_is_compiled_if_the_run_is(steps, compiled, monkeypatch):
    compiler = Mock()
    monkeypatch.setattr(torch, "compile", compiler)
    monkeypatch.setattr(torch.compiler, "reset", lambda: None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    experiment = Experiment.of(composed("experiment=smoke", f"steps={steps}"))
    experiment.training_step(Hardware(precision="32-true"), torch.device("cpu"))
    assert compiler.called == compiled


def test_the_gradient_norm_is_that_before_clipping():
    layer = torch.nn.Linear(2, 1, bias=False)
    layer.weight.grad = torch.tensor([[3.0, 4.0]])
    assert clip_gradients(layer.parameters(), 1.0).item() == pytest.approx(5)
    assert layer.weight.grad.norm().item() == pytest.approx(1)


def test_batches_are_windows_of_the_training_split_and_validation_is_on_the_validation_split():
    config = composed("experiment=smoke")
    experiment, corpus = Experiment.of(config), build(config, "data")
    prepared = experiment.prepare(corpus, "kjv")
    train, valid = (b"".join(corpus.stream(split)) for split in ("train", "valid"))
    windows = [bytes(window.tolist()) for step in (0, 7) for window in experiment.batches(prepared).batch(step)]
    assert all(window in train and window not in valid for window in windows)
    assert valid.startswith(bytes(experiment.validation(prepared)[0][0].tolist()))


def test_the_seed_of_a_configuration_is_that_of_its_weights_whatever_the_scheme():
    def embedding(pos: str, seed: int) -> torch.Tensor:
        config = composed(f"pos={pos}", f"seed={seed}")
        return build_model(config, build(config, "objective", vocab_size=256)).embedding.weight

    weights = {(pos, seed): embedding(pos, seed) for pos in ("rope", "learned", "none") for seed in (0, 1)}
    for seed in (0, 1):
        assert torch.equal(weights["rope", seed], weights["learned", seed])
        assert torch.equal(weights["rope", seed], weights["none", seed])
    assert not torch.equal(weights["rope", 0], weights["rope", 1])


def test_batches_are_those_of_the_seed_and_validation_is_the_same_for_all_whatever_the_scheme():
    def of(*overrides):
        config = composed("experiment=smoke", "objective=masked", *overrides)
        experiment = Experiment.of(config)
        prepared = experiment.prepare(build(config, "data"), "kjv")
        windows, targets = experiment.validation(prepared)
        return next(iter(experiment.batches(prepared).stream(7, 8))), (windows, *targets)

    rope, none, other = of("pos=rope"), of("pos=none"), of("pos=rope", "seed=1")
    assert all(map(torch.equal, (*rope[0], *rope[1]), (*none[0], *none[1])))
    assert all(map(torch.equal, rope[1], other[1]))
    assert not torch.equal(rope[0][0], other[0][0])
    assert not torch.equal(rope[0][1], other[0][1])


def test_the_step_without_lightning_tells_an_intervention_the_step_in_which_it_acts():
    experiment = Experiment.of(composed("experiment=smoke", "intervention=offset_mask", "intervention.start=1"))
    update = experiment.training_step(Hardware(precision="32-true"), torch.device("cpu"))
    tokens, acts = torch.zeros(2, 64, dtype=torch.long), []
    for _ in range(2):
        update(tokens, tokens)
        acts.append(bool(experiment.model.scheme.active))
    assert acts == [False, True]


@pytest.mark.parametrize(("precision", "dtype"), [("32-true", torch.float32), ("bf16-mixed", torch.bfloat16)])
def test_the_step_without_lightning_has_the_precision_of_the_run(precision, dtype):
    experiment, seen = Experiment.of(composed("experiment=smoke")), []
    experiment.model.output.register_forward_hook(lambda *parts: seen.append(parts[-1].dtype))
    tokens = torch.zeros(2, 64, dtype=torch.long)
    experiment.training_step(Hardware(precision=precision), torch.device("cpu"))(tokens, tokens)
    assert seen == [dtype]


def test_the_ranks_share_the_tokens_that_decide_about_compiling():
    experiment, hardware = Experiment.of(composed("experiment=smoke")), Mock()
    experiment.choose_compile(hardware, ranks=2)
    config = experiment.config
    tokens = config["batch_size"] * config["context"] // 2
    ((steps, of_rank, layers, _), _) = hardware.choose_compile.call_args
    assert (steps, of_rank, layers) == (config["steps"], tokens, config["model"]["layers"])


def test_all_schemes_are_compiled_or_none():
    hardware = Mock()
    for pos in ("none", "learned", "cope"):
        Experiment.of(composed("experiment=smoke", f"pos={pos}")).choose_compile(hardware)
    first, *others = hardware.choose_compile.call_args_list
    assert others == [first, first]
