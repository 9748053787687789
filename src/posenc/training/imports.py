"""Garbage collection around heavy imports."""

import functools
import gc
from collections.abc import Iterator
from contextlib import contextmanager


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
