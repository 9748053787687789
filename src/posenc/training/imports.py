"""Heavy imports, made lighter."""

import functools
import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def importing() -> Iterator[None]:
    """Import without looking for garbage meanwhile: torch and Lightning make half a million objects, and all stay."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@functools.cache
def imported() -> None:
    """Never look for garbage in what is there now, also not when the process ends.

    Only the first call does so: what the runs of a sweep leave behind must still be found.
    """
    gc.freeze()
