"""One run from configuration to summary: check, instantiate, fit, finish."""

import logging
import math
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from filelock import FileLock, Timeout
from omegaconf import DictConfig, OmegaConf

from posenc.config import Settings, check, identity
from posenc.directory import RunDirectory
from posenc.errors import UserError


def run(cfg: DictConfig, choices: Mapping[str, str]) -> dict[str, Any]:
    """Train what a configuration describes, or go on with it, or show it if it is finished.

    Args:
        cfg: the composed configuration.
        choices: the choice made in each group; `pos` and `data` name folders.

    Returns:
        The run's summary.

    Raises:
        UserError: if the configuration or the corpus cannot be used. Nothing has been written then.
    """
    config = cast(dict[str, Any], OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True))
    settings = check(config)
    corpus, hardware = build(config, "data"), build(config, "trainer")
    curve = identity(config, corpus.fingerprint(), hardware.chosen_precision())
    directory = RunDirectory.of(
        Path(settings.runs), settings.name, choices["pos"], settings.seed, curve, settings.rerun
    )
    if directory.finished():
        return show_finished(directory)
    chosen = {group: choice for group, choice in choices.items() if "/" not in group}
    made_of = {"choices": chosen, "precision": hardware.chosen_precision(), "text": corpus.fingerprint()}
    return train({**config, **made_of}, settings, directory, corpus, hardware)


def train(
    config: Mapping[str, Any], settings: Settings, directory: RunDirectory, corpus: Any, hardware: Any
) -> dict[str, Any]:
    """Instantiate, fit and finish."""
    objective, optim, scheme, tokenizer = (build(config, group) for group in ("objective", "optim", "pos", "tokenizer"))
    model = build(
        config,
        "model",
        vocab_size=tokenizer.vocab_size,
        context=settings.context,
        scheme=scheme,
        causal=objective.causal,
        seed=settings.seed,
    )
    from lightning.pytorch.plugins.environments import LightningEnvironment

    from posenc.data.batches import Batches, validation_windows
    from posenc.data.bigram import bigram_loss
    from posenc.data.prepare import prepare
    from posenc.training import loggers
    from posenc.training.callbacks import AtomicCheckpoints, Checkpoints, Curve, Progress
    from posenc.training.heads import Heads
    from posenc.training.module import LanguageModelling

    _hush()
    progress = Progress(f"{directory.scheme}, seed {settings.seed}", settings.steps)
    curve = Curve(directory, settings.log_every, settings.batch_size * settings.context, [progress.show])
    try:
        trainer = hardware.trainer(
            max_steps=settings.steps,
            val_check_interval=settings.eval_every,
            check_val_every_n_epoch=None,
            num_sanity_val_steps=0,
            use_distributed_sampler=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            logger=False,
            # Where Lightning would look for checkpoints of its own making: no other run's must be found there.
            default_root_dir=directory.path,
            plugins=[AtomicCheckpoints(), LightningEnvironment()],
            callbacks=[curve, Checkpoints(directory, settings.checkpoint_seconds), progress],
        )
    except ValueError as error:
        raise UserError(f"trainer.{error}") from error

    window = settings.context + objective.lookahead
    prepared = prepare(corpus, tokenizer, Path(settings.cache), config["choices"]["data"], window)
    batches = Batches(prepared.train, settings.seed, settings.batch_size, window)
    windows = validation_windows(prepared.valid, settings.eval_windows, window)
    heads = Heads(windows, settings.context, settings.attention_every)
    module = LanguageModelling(model, objective, optim, batches, windows, heads, settings.steps, config)
    if hardware.compile:
        model.compile()

    with _held(directory):
        if directory.finished():  # by another process, while this one was preparing
            return show_finished(directory)
        directory.create(config)
        tokenizer.save(directory.path)
        try:
            trainer.loggers = build(config, "logger", directory=directory, config=config)
            summary = _fit(trainer, module, curve, settings, directory)
            targets = objective.inputs_and_targets(windows)[1]
            bytes_per_token = tokenizer.byte_lengths()[targets.numpy()].mean().item()
            summary["bigram_loss"] = bigram_loss(prepared.train.ids, windows.numpy(), tokenizer.vocab_size)
            summary["bits_per_byte"] = summary["val_loss"] / math.log(2) / bytes_per_token
            _finish(trainer, model, tokenizer, settings, directory, summary)
        except BaseException as error:
            loggers.close(trainer.loggers, failed=True)
            if isinstance(error, SystemExit) and trainer.interrupted:  # how Lightning ends after Ctrl-C
                raise KeyboardInterrupt from error
            raise
    return summary


def build(configuration: Mapping[str, Any], group: str, **supplied: Any) -> Any:
    """Call what a group's `_target_` names, with its values and what the program supplies.

    Raises:
        UserError: if it refuses a value; the sentence names the key with its group.
    """
    from hydra.utils import instantiate

    # Hydra would turn supplied objects into configuration: it only binds the values, and the call is ours.
    call = instantiate({**configuration[group], "_partial_": True, "_convert_": "all"})
    try:
        return call(**supplied)
    except ValueError as error:
        key = str(error).partition("=")[0]
        raise UserError(f"{group}.{error}" if key in configuration[group] else str(error)) from error


def _fit(
    trainer: Any,
    module: Any,
    curve: Any,
    settings: Settings,
    directory: RunDirectory,
) -> dict[str, Any]:
    """Train to the last step and say how it went."""
    from posenc.training import provenance

    checkpoint = directory.last_checkpoint()
    parameters = sum(weight.numel() for weight in module.model.parameters())
    size = f"{parameters / 1e6:.2f}M parameters"
    print(
        f"{directory.scheme}, seed {settings.seed}: {size}, {settings.steps} steps in {directory.path}",
        flush=True,
    )
    if checkpoint is not None:
        print(f"Resuming from {checkpoint.name}.", flush=True)
    trainer.fit(module, ckpt_path=checkpoint, weights_only=True)
    return {
        "pos": directory.scheme,
        "seed": settings.seed,
        "steps": trainer.global_step,
        "tokens": curve.row["tokens"],
        "parameters": parameters,
        "val_loss": curve.row["val_loss"],
        "seconds": curve.row["seconds"],
        "tokens_per_s": round(curve.row["tokens"] / curve.row["seconds"]),
        "precision": str(trainer.precision),
        "versions": provenance.versions(),
        "hardware": provenance.hardware(trainer.strategy.root_device),
        "commit": provenance.commit(),
        "date": datetime.now(UTC).date().isoformat(),
    }


def _finish(
    trainer: Any,
    model: Any,
    tokenizer: Any,
    settings: Settings,
    directory: RunDirectory,
    summary: dict[str, Any],
) -> None:
    """Write a sample of what the model says, then the summary, which marks the run as finished."""
    from posenc.generation import generate
    from posenc.training import loggers

    sample = generate(model.cpu(), tokenizer, prompt="In the beginning", tokens=200, context=settings.context)
    (directory.path / "sample.txt").write_text(sample + "\n")
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
    print(f"  bits per byte    {summary['bits_per_byte']:.4f}")
    print(f"  speed            {summary['tokens_per_s']:,} tokens/s, {summary['seconds']:.0f} s of training")
    print(f"  written to       {directory.path}", flush=True)


@contextmanager
def _held(directory: RunDirectory) -> Iterator[None]:
    """Keep a second process with the same command out of the directory."""
    directory.path.mkdir(parents=True, exist_ok=True)
    lock = FileLock(directory.path / ".lock", timeout=0)
    try:
        lock.acquire()
    except Timeout as error:
        raise UserError(f"another process is training this run, in {directory.path}") from error
    try:
        yield
    finally:
        lock.release()


def _hush() -> None:
    """Lightning's announcements repeat what the configuration says. It sets its own levels when imported."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    logging.getLogger("lightning.fabric").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")
