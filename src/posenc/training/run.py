"""One run from configuration to summary: check, instantiate, fit, finish."""

import logging
import math
import sys
import warnings
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf

from posenc.config.instantiate import build, build_model
from posenc.config.schema import Settings, check, check_plain, identity
from posenc.distributed import broadcast, named_peer_failures, rank_zero_first, rank_zero_output, this_rank
from posenc.distributed.launch import launch
from posenc.errors import UserError
from posenc.storage.atomic import atomic_write, check_writable
from posenc.storage.resource_errors import resource_errors
from posenc.storage.run_directory import RunDirectory
from posenc.training.imports import imported, importing
from posenc.training.signals import Signals
from posenc.training.timing import Phases


def run(cfg: DictConfig, choices: Mapping[str, str]) -> dict[str, Any]:
    """Train what a configuration describes, or go on with it, or show it if it is finished.

    Args:
        cfg: the composed configuration.
        choices: the choice made in each group; `pos` and `data` name folders.

    Returns:
        The run's summary.

    Raises:
        UserError: if the configuration or the corpus cannot be used. Nothing has been written then.
        RunError: if it cannot go on: no memory, no space on disk, a loss that is no number.
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
            return train({**config, **made_of}, settings, directory, corpus, hardware, signals)
    # Out of reach of this process's signals: the ranks that it starts have their own.
    task = {"command": sys.argv[0], "config": config, "choices": dict(choices)}
    launch("posenc.training.worker", world_size, task)
    return directory.summary()


def _checked(cfg: DictConfig, choices: Mapping[str, str]) -> tuple[dict[str, Any], Settings, RunDirectory, Any, Any]:
    """The configuration as plain data, its settings, the run's directory, the corpus and the hardware."""
    config = cast(dict[str, Any], OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True))
    with importing():
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


def train(
    config: Mapping[str, Any],
    settings: Settings,
    directory: RunDirectory,
    corpus: Any,
    hardware: Any,
    signals: Signals,
) -> dict[str, Any]:
    """Instantiate, fit and finish. Rank 0 writes, and the others only train."""
    phases = Phases()
    optim, schedule, tokenizer = (build(config, group) for group in ("optim", "schedule", "tokenizer"))
    objective = build(config, "objective", vocab_size=tokenizer.vocab_size)
    model = build_model(config, objective)
    window = settings.context + objective.lookahead
    # Before Lightning, which takes seconds to import: what is wrong with a text is told at once.
    with importing():
        from posenc.data.prepare import prepare
    with rank_zero_first():
        prepared = prepare(corpus, tokenizer, Path(settings.cache), config["choices"]["data"], settings.context, window)
    with importing():
        import torch._dynamo  # noqa: F401  an optimiser brings it in at its first step

        from posenc.data.batches import Batches, validation_noise, validation_windows
        from posenc.tracking import loggers
        from posenc.training.attention_probe import Heads
        from posenc.training.checkpoints import CheckpointFiles, Checkpoints
        from posenc.training.efficiency import forget_peak_memory
        from posenc.training.loop import Curve, Progress
        from posenc.training.module import LanguageModelling
    imported()
    _hush()
    progress = Progress(f"{directory.scheme}, seed {settings.seed}", settings.steps)
    tokens_per_step = settings.batch_size * settings.context
    curve = Curve(
        directory,
        settings.log_every,
        settings.eval_every,
        settings.attention_every,
        tokens_per_step,
        phases,
        signals,
        [progress.show],
    )
    checkpoints = Checkpoints(directory, settings.checkpoint_seconds, phases, curve, signals)
    try:
        trainer = hardware.trainer(
            max_steps=settings.steps,
            limit_val_batches=0,  # validation is ours: it can be left and taken up again at the next start
            use_distributed_sampler=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            logger=False,
            # Where Lightning would look for checkpoints of its own making: no other run's must be found there.
            default_root_dir=directory.path,
            plugins=[CheckpointFiles()],
            callbacks=[curve, checkpoints, progress],
        )
    except ValueError as error:
        raise UserError(f"trainer.{error}") from error

    batches = Batches(prepared.train, settings.seed, settings.batch_size, window, objective.noise_per_token)
    windows = validation_windows(prepared.valid, settings.eval_windows, window)
    validation = objective.inputs_and_targets(
        windows, validation_noise(prepared.valid, windows, objective.noise_per_token)
    )
    heads = Heads(windows, settings.context, settings.attention_every)
    module = LanguageModelling(
        model, objective, optim, schedule, batches, validation, heads, settings.steps, config, phases, hardware
    )

    if not this_rank().is_zero:
        if not broadcast(directory.finished):
            _fit(trainer, module, curve, settings, directory)
        return curve.row
    with directory.held():
        if broadcast(directory.finished):  # by another process, while this one was preparing
            return show_finished(directory)
        directory.create(config)
        tokenizer.save(directory.path)
        try:
            trainer.loggers = build(config, "logger", directory=directory, config=config)
            forget_peak_memory(trainer.strategy.root_device)
            summary = _fit(trainer, module, curve, settings, directory)
            summary |= objective.ngram_baseline(prepared.train.ids, windows, validation)
            if objective.likelihood:
                bytes_per_token = tokenizer.byte_lengths()[validation[1].numpy()].mean().item()
                summary["bits_per_byte"] = summary["val_loss"] / math.log(2) / bytes_per_token
            _finish(trainer, settings, directory, summary)
        except BaseException:
            loggers.close(trainer.loggers, failed=True)
            raise
    return summary


def _fit(
    trainer: Any,
    module: Any,
    curve: Any,
    settings: Settings,
    directory: RunDirectory,
) -> dict[str, Any]:
    """Train to the last step and say how it went."""
    from posenc.training import environment
    from posenc.training.checkpoints import usable
    from posenc.training.efficiency import peak_memory

    checkpoint = broadcast(lambda: _text(usable(directory)))
    parameters = sum(weight.numel() for weight in module.model.parameters())
    size = f"{parameters / 1e6:.2f}M parameters"
    print(
        f"{directory.scheme}, seed {settings.seed}: {size}, {settings.steps} steps in {directory.path}",
        flush=True,
    )
    if checkpoint is not None:
        print(f"Resuming from {Path(checkpoint).name}.", flush=True)
    trainer.fit(module, ckpt_path=checkpoint, weights_only=True)
    tokens_per_s = curve.row["tokens"] / curve.row["seconds"]
    mfu = {} if curve.share_of_peak is None else {"mfu": tokens_per_s * curve.share_of_peak}
    return {
        "pos": directory.scheme,
        "seed": settings.seed,
        "steps": trainer.global_step,
        "tokens": curve.row["tokens"],
        "parameters": parameters,
        "val_loss": curve.row["val_loss"],
        "seconds": curve.row["seconds"],
        "tokens_per_s": round(tokens_per_s),
        **mfu,
        "devices": this_rank().world_size,
        "peak_memory": peak_memory(trainer.strategy.root_device),
        "time": {phase: round(seconds, 3) for phase, seconds in module.phases.spent().items()},
        "precision": str(trainer.precision),
        "versions": environment.versions(),
        "hardware": environment.hardware(trainer.strategy.root_device),
        "commit": environment.commit(),
        "date": datetime.now(UTC).date().isoformat(),
    }


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _finish(trainer: Any, settings: Settings, directory: RunDirectory, summary: dict[str, Any]) -> None:
    """Write a sample of what the model says, then the summary, which marks the run as finished."""
    from posenc.evaluation.load import load
    from posenc.objectives.sampling import Sampling
    from posenc.tracking import loggers

    trained = load(directory.path)  # from the last checkpoint: in memory the weights may be shared out
    objective = trained.objective
    sample = objective.sample(trained.model, trained.tokenizer, objective.prompt, settings.context, Sampling())
    atomic_write(directory.path / "sample.txt", sample + "\n")
    directory.finish(summary)  # before W&B, which may wait for the network
    try:
        loggers.finish(trainer.loggers, sample, summary)
        loggers.close(trainer.loggers, failed=False)
    except Exception as error:  # the result is on disk: W&B must not make it look lost
        print(f"W&B did not take the end of this run: {error}")
    show(summary, directory)


def show_finished(directory: RunDirectory) -> dict[str, Any]:
    """Print what a finished run came to, and how to train it again."""
    print(f"This run is finished (rerun=true trains it again beside {directory.path}):")
    show(directory.summary(), directory)
    return directory.summary()


def show(summary: Mapping[str, Any], directory: RunDirectory) -> None:
    """Print how a run ended."""
    print(f"  validation loss  {summary['val_loss']:.4f} nats per token")
    if "bits_per_byte" in summary:
        print(f"  bits per byte    {summary['bits_per_byte']:.4f}")
    of_peak = f" ({summary['mfu']:.0%} of the chip's peak)" if "mfu" in summary else ""
    print(f"  speed            {summary['tokens_per_s']:,} tokens/s{of_peak}, {summary['seconds']:.0f} s of training")
    if "time" in summary:  # a run finished before this was measured has none
        whole = sum(summary["time"].values())
        told = {phase: part / whole for phase, part in summary["time"].items() if part >= 0.01 * whole}
        print(f"  time             {', '.join(f'{share:.0%} {phase}' for phase, share in told.items())}")
        print(f"  memory           {summary['peak_memory'] / 2**30:.2f} GiB at most")
    print(f"  written to       {directory.path}", flush=True)


def _hush() -> None:
    """Lightning's announcements repeat what the configuration says. It sets its own levels when imported."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    logging.getLogger("lightning.fabric").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")
