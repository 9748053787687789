"""Train one language model, or a sweep: `posenc train pos=rope` or `python train.py pos=rope`."""

import math
import shlex
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from posenc.config.files import CONF

if TYPE_CHECKING:
    from omegaconf import DictConfig


def main(conf: Path = CONF) -> None:
    """The command line, parsed by Hydra except for --help and --version."""
    from posenc.config.argument_checks import check_sweep
    from posenc.config.command_line import one_sentence_errors
    from posenc.config.overrides import flags_of
    from posenc.config.quoting import flags_first
    from posenc.sweeps.jobs import check_jobs, jobs_of

    sys.argv[1:] = flags_first(sys.argv[1:])
    arguments = set(sys.argv)
    if not arguments & {"-h", "--help", "--version"}:
        with one_sentence_errors(sys.argv[1:], conf):
            flags = flags_of(sys.argv[1:])
            if flags.multirun:
                check_sweep(sys.argv[1:], conf)
                check_jobs(*jobs_of(sys.argv[1:], conf))
            _compose_and_train(conf)
            if flags.cfg:
                print(f"# The files in {conf} explain each key.")
        return
    from posenc.config.help import manual

    with one_sentence_errors():
        print(f"posenc {version('posenc')}" if "--version" in arguments else manual(conf))


def _compose_and_train(conf: Path) -> None:
    import hydra

    from posenc.config.compose import register_resolvers

    register_resolvers()
    hydra.main(version_base="1.3", config_path=str(conf.resolve()), config_name="config")(job)()


def job(cfg: "DictConfig") -> float | None:
    """Train one run, alone or in a sweep. Heavy imports happen here, so that --cfg is fast.

    Returns:
        The final validation loss, for sweepers that search: NaN if the run has diverged, None if it failed otherwise.
    """
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    from posenc.config.argument_checks import check_single_run
    from posenc.config.command_line import one_sentence_errors
    from posenc.distributed import this_rank
    from posenc.sweeps.failures import diverged, failures_recorded

    hydra_config = HydraConfig.get()
    single = hydra_config.mode is not RunMode.MULTIRUN
    with one_sentence_errors() if single else failures_recorded(cfg):
        if single:
            check_single_run(hydra_config)
        from posenc.training.run import run

        summary = run(cfg, choices=dict(hydra_config.runtime.choices))
        if single and this_rank().is_zero:
            print("Next: train another scheme, and compare them:")
            print(f"  python -m posenc.report {shlex.quote(str(Path(cfg.runs, cfg.name)))}")
        return summary["val_loss"]
    return math.nan if diverged(cfg) else None


if __name__ == "__main__":
    main()
