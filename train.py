"""Train one language model: `python train.py pos=rope`. See `python train.py --help`."""

import sys
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from posenc.config.command_line import flags_first, one_sentence_errors
from posenc.config.compose import register_resolvers
from posenc.config.overrides import check_single_run
from posenc.sweeps.callback import failures_noted

register_resolvers()


@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def main(cfg: DictConfig) -> float | None:
    """One run, alone or in a sweep. The heavy imports happen here, so that --help and --cfg answer at once.

    Returns:
        The last validation loss, for sweepers that search; None if the run failed.
    """
    hydra_config = HydraConfig.get()
    with failures_noted() if hydra_config.mode is RunMode.MULTIRUN else one_sentence_errors():
        if hydra_config.mode is not RunMode.MULTIRUN:
            check_single_run(hydra_config)
        from posenc.training.run import run

        return run(cfg, choices=dict(hydra_config.runtime.choices))["val_loss"]
    return None


if __name__ == "__main__":
    sys.argv[1:] = flags_first(sys.argv[1:])
    with one_sentence_errors(sys.argv[1:], conf=Path(__file__).parent / "conf"):
        main()
