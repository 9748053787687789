"""One run from configuration to summary: check, instantiate, prepare, train, show."""

import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf

from posenc.compat import import_dynamo
from posenc.config.instantiate import build
from posenc.config.schema import Settings, check, check_plain, identity
from posenc.distributed import named_peer_failures, rank_zero_first, rank_zero_output, this_rank
from posenc.distributed.launch import launch
from posenc.errors import UserError
from posenc.storage.atomic import check_writable
from posenc.storage.resource_errors import resource_errors
from posenc.storage.run_directory import RunDirectory
from posenc.training.experiment import Experiment
from posenc.training.imports import freeze_imports, gc_paused
from posenc.training.signals import Signals
from posenc.training.timer import Timer


def run(cfg: DictConfig, choices: Mapping[str, str]) -> dict[str, Any]:
    """Train what a configuration describes, or resume it, or show it if it is finished.

    Args:
        cfg: the composed configuration.
        choices: the choice made in each group; `pos` and `data` name folders.

    Returns:
        The run's summary.

    Raises:
        UserError: if the configuration or the corpus cannot be used. Nothing has been written then.
        RunError: if it cannot go on: no memory, no space on disk, a loss that is NaN or infinite.
        Stopped: after a signal.
    """
    with Signals() as signals, resource_errors(cfg), rank_zero_output(), named_peer_failures():
        config, settings, directory, corpus, hardware = _checked(cfg, choices)
        if directory.finished():
            return show_finished(directory)
        if this_rank().is_zero:
            check_writable(f"runs={settings.runs}", directory.path)
        world_size = _world_size(hardware, settings)
        if world_size == this_rank().world_size:
            chosen = {group: choice for group, choice in choices.items() if not group.startswith("hydra/")}
            made_of = {"choices": chosen, "precision": hardware.chosen_precision(), "text": corpus.fingerprint()}
            return _train({**config, **made_of}, settings, directory, corpus, hardware, signals)
    # Out of reach of this process's signals: the ranks that it starts have their own.
    task = {"command": sys.argv[0], "config": config, "choices": dict(choices)}
    launch("posenc.training.worker", world_size, task)
    return directory.summary()


def _checked(cfg: DictConfig, choices: Mapping[str, str]) -> tuple[dict[str, Any], Settings, RunDirectory, Any, Any]:
    """The configuration as plain data, its settings, the run's directory, the corpus and the hardware."""
    config = cast(dict[str, Any], OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True))
    with gc_paused():
        settings = check(config)
        for group in ("pos", "data"):
            check_plain(group, choices[group])
        corpus, hardware = build(config, "data"), build(config, "trainer")
    curve = identity(config, corpus.fingerprint(), hardware.chosen_precision())
    directory = RunDirectory.of(
        Path(settings.runs), settings.name, choices["pos"], settings.seed, curve, settings.rerun
    )
    return config, settings, directory, corpus, hardware


def _world_size(hardware: Any, settings: Settings) -> int:
    """How many ranks train together."""
    ranks = hardware.world_size()
    if settings.batch_size % ranks:
        raise UserError(f"batch_size={settings.batch_size} must be a multiple of the {ranks} devices that share it")
    return ranks


def _train(
    config: Mapping[str, Any],
    settings: Settings,
    directory: RunDirectory,
    corpus: Any,
    hardware: Any,
    signals: Signals,
) -> dict[str, Any]:
    timer = Timer()
    experiment = Experiment.of(config)
    # Before Lightning, which takes seconds to import: what is wrong with a text is said at once.
    with rank_zero_first():
        prepared = experiment.prepare(corpus, config["choices"]["data"])
    with gc_paused():
        import_dynamo()
        from posenc.training.fit import TrainingRun
    freeze_imports()
    tokens = settings.batch_size * settings.context // this_rank().world_size
    hardware = hardware.for_run(settings.steps, tokens, experiment.parameters())
    summary = TrainingRun(experiment, prepared, settings, directory, hardware, signals, timer).train()
    if summary is None:
        return show_finished(directory)
    if this_rank().is_zero:
        show(summary, directory)
    return summary


def show_finished(directory: RunDirectory) -> dict[str, Any]:
    """Print what a finished run came to, and how to train it again."""
    print(f"This run is finished (rerun=true trains it again beside {directory.path}):")
    show(directory.summary(), directory)
    return directory.summary()


def show(summary: Mapping[str, Any], directory: RunDirectory) -> None:
    """Print how a run ended."""
    print(f"  validation loss  {summary['val_loss']:.4f} nats per token{_ngram(summary)}")
    if "bits_per_byte" in summary:
        print(f"  bits per byte    {summary['bits_per_byte']:.4f}")
    of_peak = f" ({summary['mfu']:.0%} of the chip's peak)" if "mfu" in summary else ""
    print(f"  speed            {summary['tokens_per_s']:,} tokens/s{of_peak}, {summary['seconds']:.0f} s of training")
    if "time" in summary:  # a run finished before this was measured has none
        total = sum(summary["time"].values())
        shares = {phase: seconds / total for phase, seconds in summary["time"].items() if seconds >= 0.01 * total}
        print(f"  time             {', '.join(f'{share:.0%} {phase}' for phase, share in shares.items())}")
        print(f"  memory           {summary['peak_memory'] / 2**30:.2f} GiB at most")
    print(f"  sample           {textwrap.shorten(directory.sample(), 60, placeholder=' ...')}")
    print(f"  written to       {directory.path}", flush=True)


def _ngram(summary: Mapping[str, Any]) -> str:
    """The loss of the n-gram model that knows no order, where there is one."""
    losses = {order: summary.get(f"{order}_loss") for order in ("unigram", "bigram")}
    return "".join(f"; {loss:.4f} of the text's {order} model" for order, loss in losses.items() if loss)
