"""Heavy imports, made lighter."""

import functools
import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def gc_paused() -> Iterator[None]:
    """Import without collecting garbage meanwhile: torch and Lightning make half a million objects, and all stay."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@functools.cache
def freeze_imports() -> None:
    """Never scan what is there now for garbage, also not when the process ends.

    Only the first call does so: what the runs of a sweep leave behind must still be found.
    """
    gc.freeze()
