"""What ends a process whose companions have died."""

import json
import os
import subprocess
import sys
import threading
from contextlib import suppress
from typing import Any

from posenc.distributed.rank import Place
from posenc.distributed.rendezvous import LOST, tell

BEAT = 2.0
"""Seconds between two signs of life."""

MISSED = 15
"""Beats without a sign of life from a process that count as its death: half a minute."""

LEAVING = 15.0
"""Seconds to leave in order after the end was announced; who waits for a dead process would wait for ever."""


class Watch(threading.Thread):
    """Ends this process when another one has told its end, or died: its own work may be waiting for it for ever.

    Each process gives a sign of life in every beat, and looks at those of the one before it. The time is counted in
    beats, so that processes that were all halted, and go on, do not take each other for dead.
    """

    def __init__(self, where: Place, store: Any, children: tuple[subprocess.Popen[str], ...], run: int) -> None:
        super().__init__(daemon=True, name="watch over the other processes")
        self.place, self.store, self.children, self.training = where, store, children, run
        self._stopped = threading.Event()
        self._seen, self._missed = 0, 0

    def stop(self) -> None:
        """Nothing that happens to the others matters any more."""
        self._stopped.set()
        with suppress(RuntimeError):
            self.store.set(f"{self.training} done {self.place.rank}", "")

    def run(self) -> None:
        while not self._stopped.wait(BEAT):
            sentence, code = self._end()
            if sentence is None:
                continue
            for child in self.children:  # so that this process, if it waits for one of them, waits no longer
                child.kill()
            if not self._stopped.wait(LEAVING):  # let it leave in order, if it can
                self._leave(sentence, code)

    def _leave(self, sentence: str, code: int) -> None:
        if self.children:
            print(f"{os.path.basename(sys.argv[0])}: {sentence}", file=sys.stderr, flush=True)
        else:
            tell(sentence, code)
        os._exit(code)

    def _end(self) -> tuple[str | None, int]:
        """Why the run is at its end, and the exit code; None while it is not."""
        try:
            self.store.add(f"{self.training} beat {self.place.rank}", 1)
            if self.store.check(["end"]):
                sentence, code = json.loads(self.store.get("end"))
                return sentence, code
            before = (self.place.rank - 1) % self.place.world
            beats = self.store.add(f"{self.training} beat {before}", 0)
            done = self.store.check([f"{self.training} done {before}"])
        except RuntimeError:
            return LOST, 1
        self._missed = 0 if beats != self._seen or done else self._missed + 1
        self._seen = beats
        if self._missed < MISSED:
            return None, 0
        return f"process {before} of this run has given no sign of life for {MISSED * BEAT:.0f} s", 1
