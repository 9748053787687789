"""Lightning's Trainer for one run, and all of it that is switched off.

Lightning runs the fit loop, the devices and their processes, the precision and the hooks, and keeps the states of
optimiser, schedule and callbacks in one checkpoint. Not used are, beside OFF:

- Its signal handlers, which no option switches off (Lightning-AI/pytorch-lightning#1455): SIGTERM would end the fit
  without a checkpoint. `Signals.training` takes the signals back when the fit begins.
- Its broadcast of a received SIGTERM in every step, which waits for the device (#21487): see `posenc.compat`. Ranks
  agree to stop at each row of metrics.csv instead.
- Its own SLURM support, which requeues the job and saves hpc_ckpt_*.ckpt: a run has the environment of a plain
  process or of torchrun, also on SLURM (`Hardware.spread`).
- Its search for hpc_ckpt_*.ckpt in `default_root_dir`, from which it would resume before any `ckpt_path` (#20347,
  #12369): that folder is the run's, where there are none.
"""

import logging
import warnings
from collections.abc import Sequence
from typing import Any

from lightning.pytorch import Callback, Trainer
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from posenc.compat import without_sigterm_broadcast
from posenc.errors import UserError, first_line
from posenc.storage.run_directory import RunDirectory
from posenc.training.accelerator import Hardware, keep_freed_memory
from posenc.training.checkpoint_io import CheckpointIO

OFF: dict[str, Any] = {
    # A signal must be able to leave a validation to the next start. Lightning's loop repeats or cuts short the one that
    # it resumes beside (#19549, #20277, #20288), so `MetricsWriter` calls `validation_step`.
    "limit_val_batches": 0,
    # `Checkpoint` saves under the file's checksum, after the rows that belong to it are on disk; ModelCheckpoint needs
    # the name before.
    "enable_checkpointing": False,
    # `ProgressBar` prints plain lines where there is no terminal, and counts steps, not epochs.
    "enable_progress_bar": False,
    # The run prints its own line.
    "enable_model_summary": False,
    # W&B begins when the run's directory is held: until then another process may be training it.
    "logger": False,
    # Batches are a function of step and rank: there is no sampler to replace.
    "use_distributed_sampler": False,
}


def build_trainer(hardware: Hardware, directory: RunDirectory, steps: int, callbacks: Sequence[Callback]) -> Trainer:
    """
    Raises:
        UserError: if this machine lacks the device asked for.
    """
    _quiet()
    spread = hardware.spread()
    spread["plugins"] = [CheckpointIO(), *spread["plugins"]]
    try:
        trainer = Trainer(
            accelerator=hardware.accelerator,
            precision=hardware.chosen_precision(),
            max_steps=steps,
            callbacks=list(callbacks),
            default_root_dir=directory.path,
            **spread,
            **OFF,
        )
    except (MisconfigurationException, RuntimeError) as error:
        raise UserError(f"trainer.accelerator={hardware.accelerator}: {first_line(error)}") from error
    if trainer.strategy.root_device.type == "cpu":
        keep_freed_memory()
    without_sigterm_broadcast(trainer)
    return trainer


def _quiet() -> None:
    """Its announcements repeat what the configuration says. It sets its own levels when it is imported."""
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")
