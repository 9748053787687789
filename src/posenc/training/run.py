"""One run from configuration to summary."""

import functools
import gc
import os
import sys
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf

from posenc.compat import import_dynamo, import_torchmetrics
from posenc.config.instantiate import build
from posenc.config.schema import Settings, check, check_plain, identity
from posenc.data.corpora import Corpus
from posenc.distributed import broadcast, named_peer_failures, rank_zero_first, rank_zero_output, this_rank
from posenc.distributed.launch import launch
from posenc.errors import UserError, printable
from posenc.storage.atomic import check_writable
from posenc.storage.csv_files import MAX_ROWS
from posenc.storage.resource_errors import resource_errors
from posenc.storage.run_directory import RunDirectory
from posenc.training.signals import Signals
from posenc.training.timer import Timer


def run(cfg: DictConfig, choices: Mapping[str, str]) -> dict[str, Any]:
    """Train or resume a run, or print its result if it is finished.

    Args:
        choices: the choice of each configuration group; those of `pos` and `data` name folders.

    Returns:
        The run's summary.

    Raises:
        UserError: if the configuration or the corpus is invalid; nothing but caches has been written in that case.
        RunError: if training fails: out of memory, disk full, a loss that is NaN or infinite.
        Stopped: after a signal.
    """
    with Signals() as signals, resource_errors(cfg), rank_zero_output(), named_peer_failures():
        config = cast(dict[str, Any], OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True))
        with gc_paused():
            settings = check(config)
            for group in ("pos", "data"):
                check_plain(group, choices[group])
            corpus, hardware = build(config, "data"), build(config, "trainer")
        _check_apart(corpus, settings, Path(choices["pos"], f"seed{settings.seed}", "sample.txt"))
        text, precision = corpus.fingerprint(), hardware.chosen_precision()
        curve = identity(config, text, precision)
        directory = RunDirectory.of(
            Path(settings.runs), settings.name, choices["pos"], settings.seed, curve, settings.rerun
        )
        directory = replace(directory, path=Path(broadcast(lambda: str(directory.path))))  # a rank may look later
        if broadcast(directory.finished):
            return show_finished(directory, settings.fork_from)
        if this_rank().is_zero:
            check_writable(f"runs={settings.runs}", directory.path)
        ranks = hardware.world_size()
        if settings.batch_size % ranks:
            raise UserError(f"batch_size={settings.batch_size} must be a multiple of the {ranks} devices that share it")
        if ranks == this_rank().world_size:
            chosen = {group: choice for group, choice in choices.items() if not group.startswith("hydra/")}
            added = {"choices": chosen, "precision": precision, "text": text}
            return _train({**config, **added}, settings, directory, corpus, hardware, signals)
    # Outside of `Signals`: the ranks that this process starts handle signals themselves.
    launch("posenc.training.worker", ranks, {"command": sys.argv[0], "config": config, "choices": dict(choices)})
    return directory.summary()


def _check_table_sizes(settings: Settings, model: Mapping[str, Any]) -> None:
    """Check that the tables of a run do not become too long to be read when it resumes."""
    heads = settings.steps // settings.attention_every * model["layers"] * model["heads"]
    for key, rows in (("log_every", settings.steps // settings.log_every), ("attention_every", heads)):
        if rows >= MAX_ROWS:  # which counts the header
            given = f"{key}={getattr(settings, key)}"
            raise UserError(f"{given} would write {rows:,} rows; the maximum is {MAX_ROWS - 1:,}")


def _check_apart(corpus: Corpus, settings: Settings, sample: Path) -> None:
    """Check that neither the samples of runs nor the cache become part of the text of the next run."""
    written = {"runs": Path(settings.runs, settings.name, sample), "cache": Path(settings.cache, "tokens.bin")}
    for key, file in written.items():
        if corpus.reads(file):
            folder = getattr(settings, key)
            raise UserError(f"{key}={folder} is inside data.path, and would change that text: set another {key}=")


def _train(
    config: Mapping[str, Any],
    settings: Settings,
    directory: RunDirectory,
    corpus: Any,
    hardware: Any,
    signals: Signals,
) -> dict[str, Any]:
    timer = Timer()
    with gc_paused():
        from posenc.training.experiment import Experiment
    experiment = Experiment.of(config)
    _check_table_sizes(settings, config["model"])
    # Before importing Lightning, which takes seconds, so that errors in the text are reported immediately.
    with rank_zero_first():
        prepared = experiment.prepare(corpus, config["choices"]["data"])
    with gc_paused():
        import_dynamo()
        import_torchmetrics()
        from posenc.training.fit import TrainingRun
    freeze_imports()
    hardware = experiment.choose_compile(hardware, this_rank().world_size)
    summary = TrainingRun(experiment, prepared, settings, directory, hardware, signals, timer).train()
    if summary is None:
        return show_finished(directory, settings.fork_from)
    if this_rank().is_zero:
        show(summary, directory)
    return summary


def show_finished(directory: RunDirectory, fork_from: str | None) -> dict[str, Any]:
    """Print the result of a finished run, how to train it again, and whether it began elsewhere than at `fork_from`.

    Raises:
        UserError: if its summary cannot be read.
    """
    try:
        summary = directory.summary()
    except UserError as error:
        raise UserError(f"{error}; delete that file, and the same command writes it again") from error
    print(f"This run is finished (rerun=true trains it again next to {directory.path}):")
    began = summary.get("fork_from", fork_from)
    if fork_from and os.path.realpath(fork_from) != os.path.realpath(began or ""):
        print(f"  ignored          fork_from={fork_from}: it began {f'from {began}' if began else 'from scratch'}")
    show(summary, directory)
    return summary


def show(summary: Mapping[str, Any], directory: RunDirectory) -> None:
    """Print the result of a run."""
    losses = {order: summary.get(f"{order}_loss") for order in ("unigram", "bigram")}
    ngram = "".join(f" ({order} model: {loss:.4f})" for order, loss in losses.items() if loss)
    print(f"  validation loss  {summary['val_loss']:.4f} nats per token{ngram}")
    if "bits_per_byte" in summary:
        print(f"  bits per byte    {summary['bits_per_byte']:.4f}")
    mfu = f" ({summary['mfu']:.0%} MFU)" if "mfu" in summary else ""
    print(f"  speed            {summary['tokens_per_s']:,} tokens/s{mfu}, {summary['seconds']:.0f} s of training")
    if "time" in summary:  # missing in old runs
        total = sum(summary["time"].values())
        shares = {phase: seconds / total for phase, seconds in summary["time"].items() if seconds > 0.01 * total}
        print(f"  time             {', '.join(f'{share:.0%} {phase}' for phase, share in shares.items())}")
        print(f"  peak memory      {summary['peak_memory'] / 2**30:.2f} GiB")
    print(f"  sample           {textwrap.shorten(printable(directory.sample()), 60, placeholder=' ...')}")
    print(f"  written to       {directory.path}", flush=True)


@contextmanager
def gc_paused() -> Iterator[None]:
    """Disable garbage collection during imports: torch and Lightning create half a million permanent objects."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@functools.cache
def freeze_imports() -> None:
    """Exclude all current objects from garbage collection, also at exit.

    Only the first call has an effect, so that garbage from the runs of a sweep is still collected.
    """
    gc.freeze()
