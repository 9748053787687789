"""Heavy imports, made lighter."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def importing() -> Iterator[None]:
    """Import without looking for garbage meanwhile, and never look at what was imported again.

    Torch and Lightning make half a million objects that stay: each search for garbage goes through all of them, many
    times while they are imported and once more when the process ends.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
