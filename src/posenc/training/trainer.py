"""Lightning's Trainer for one run, and which of its features are disabled.

Lightning provides the fit loop, devices, strategies, precision and hooks, and saves the states of optimiser, schedule
and callbacks in one checkpoint. Besides those switched off below, these features are not used:

- Its signal handlers, which no option disables (Lightning-AI/pytorch-lightning#1455): SIGTERM would end the fit
  without a checkpoint. `Signals.start_training` replaces them when the fit starts.
- Its broadcast of a received SIGTERM in every step, which synchronises the device (#21487): see `posenc.compat`. Ranks
  agree to stop at each row of metrics.csv instead.
- Its SLURM support, which requeues the job and saves hpc_ckpt_*.ckpt: on SLURM, too, a run uses the environment of a
  single process or of torchrun.
- Its validation, which repeats one at which a run resumes, or cuts it short (#19549, #20277, #20288): a signal must be
  able to postpone a validation until the run is resumed. See `posenc.training.validation`.
- Its search for hpc_ckpt_*.ckpt in `default_root_dir`, which would take precedence over `ckpt_path` (#20347, #12369):
  that folder is the run directory, which has none.
"""

import logging
import warnings
from collections.abc import Sequence

from lightning.pytorch import Callback, Trainer
from lightning.pytorch.plugins.environments import LightningEnvironment, TorchElasticEnvironment

from posenc.compat import without_sigterm_broadcast
from posenc.distributed import this_rank
from posenc.storage.run_directory import RunDirectory
from posenc.training.accelerator import Hardware, keep_freed_memory
from posenc.training.checkpoint_io import CheckpointIO


def build_trainer(hardware: Hardware, directory: RunDirectory, steps: int, callbacks: Sequence[Callback]) -> Trainer:
    """Lightning's Trainer on the hardware's device."""
    _silence_lightning()
    rank = this_rank()
    # Torchrun's variables may also come from srun. Either environment prevents Lightning's own SLURM support.
    environment = TorchElasticEnvironment() if rank.world_size > 1 else LightningEnvironment()
    trainer = Trainer(
        accelerator=hardware.device.type,
        precision=hardware.chosen_precision(),
        max_steps=steps,
        callbacks=list(callbacks),
        default_root_dir=directory.path,
        devices=rank.local_world_size,
        num_nodes=rank.world_size // rank.local_world_size,
        strategy=hardware.strategy(),
        plugins=[CheckpointIO(), environment],
        enable_checkpointing=False,  # `Checkpoint` puts a checksum into the file name, known only afterwards
        enable_progress_bar=False,  # `ProgressBar` prints plain lines if there is no terminal, and counts steps
        enable_model_summary=False,  # the run prints its own line
        logger=False,  # W&B starts once the run directory is locked: another process may be training the run
    )
    if hardware.device.type == "cpu":
        keep_freed_memory()
    without_sigterm_broadcast(trainer)
    return trainer


def _silence_lightning() -> None:
    """Lightning's info messages repeat the configuration. It sets its log levels on import, so this comes after."""
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")
