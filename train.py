"""Train one language model: `python train.py pos=rope`. See `python train.py --help`."""

import sys
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from posenc.command import flags_first, one_sentence_errors
from posenc.config import register_resolvers

register_resolvers()


@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def main(cfg: DictConfig) -> None:
    """One run. The heavy imports happen here, so that --help and --cfg answer at once."""
    with one_sentence_errors():
        from posenc.training.run import run

        run(cfg, choices=dict(HydraConfig.get().runtime.choices))


if __name__ == "__main__":
    sys.argv[1:] = flags_first(sys.argv[1:])
    with one_sentence_errors(sys.argv[1:], conf=Path(__file__).parent / "conf"):
        main()
