"""One rank of a run, for `posenc.distributed.launch`: what it trains is in the store."""

import json
import signal
import sys

from omegaconf import OmegaConf

from posenc.config.command_line import one_sentence_errors
from posenc.distributed.group import TASK, store
from posenc.distributed.launch import AHEAD, end_with_parent


def main() -> None:
    """Train together with the others."""
    end_with_parent(signal.SIGKILL)
    for one in AHEAD:  # SLURM sends them to all processes of a job; the one that started this takes them
        signal.signal(one, signal.SIG_IGN)
    task = json.loads(store().get(TASK))
    sys.argv = [task["command"]]
    with one_sentence_errors():
        from posenc.training.run import run

        run(OmegaConf.create(task["config"]), task["choices"])


if __name__ == "__main__":
    main()
