"""One rank of a run, started by `posenc.distributed.launch`; its configuration is in the store."""

import json
import os
import signal
import sys

signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback for each rank before `Signals` handles it

from omegaconf import OmegaConf  # noqa: E402

from posenc.config.command_line import one_sentence_errors  # noqa: E402
from posenc.distributed.group import TASK, store  # noqa: E402
from posenc.distributed.launch import LAUNCHER  # noqa: E402
from posenc.distributed.stop_signals import TIME_LIMIT_SIGNALS, end_with_parent  # noqa: E402


def main() -> None:
    """Train as one rank."""
    end_with_parent(signal.SIGKILL, int(os.environ[LAUNCHER]))
    for one in TIME_LIMIT_SIGNALS:  # SLURM sends them to all processes of a job; the parent process handles them
        signal.signal(one, signal.SIG_IGN)
    task = json.loads(store().get(TASK))
    sys.argv = [task["command"]]
    with one_sentence_errors():
        from posenc.training.run import run

        run(OmegaConf.create(task["config"]), task["choices"])


if __name__ == "__main__":
    main()
