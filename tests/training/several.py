"""Trains several runs one after the other in the ranks that it is started as, as `python train.py` would each.

    torchrun --nproc-per-node 2 tests/training/several.py '[{"arguments": ["trainer=ddp"], "stopped": false}, ...]'

They train in double precision: what differs between one rank and several, beyond the order of a sum, is then a fault.
A run that is to be stopped gets a SIGTERM in the last rank alone once it has written rows.
"""

import json
import os
import signal
import sys
import threading
import time
from functools import partial
from pathlib import Path

import torch

from posenc.config.compose import composed
from posenc.distributed import this_rank
from posenc.errors import Stopped
from posenc.storage.csv_files import read_csv
from posenc.training.run import run

CONF = Path(__file__).parents[2] / "conf"
ROWS = 3

torch.set_default_dtype(torch.float64)
torch.compile = partial(torch.compile, backend="aot_eager")  # Inductor takes a minute, and has no part in communication


def stop_after_rows(runs: Path, name: str) -> None:
    before = len(written(runs, name))
    while len(written(runs, name)) < before + ROWS:
        time.sleep(0.002)
    os.kill(os.getpid(), signal.SIGTERM)


def written(runs: Path, name: str) -> list[dict[str, str]]:
    return [row for file in runs.glob(f"{name}/*/*/metrics.csv") for row in read_csv(file)]


for job in json.loads(sys.argv[1]):
    configuration, choices = composed(CONF, job["arguments"])
    if job["stopped"] and this_rank().rank == this_rank().world_size - 1:
        where = (Path(configuration.runs), configuration.name)
        threading.Thread(target=stop_after_rows, args=where, daemon=True).start()
    try:
        run(configuration, choices)
        assert not job["stopped"]
    except Stopped:
        assert job["stopped"]
