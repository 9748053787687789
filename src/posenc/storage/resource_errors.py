"""One-sentence errors for lack of memory and disk failures."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from posenc.errors import RunError, out_of_memory

SIZES = ("batch_size", "context", "model.layers", "model.width")
"""Keys that determine memory use."""

OUT_OF_MEMORY = "out of memory: it needs more than this machine, or its GPU, has free"


@contextmanager
def resource_errors(cfg: DictConfig | None = None) -> Iterator[None]:
    """Context for a run: reports what to reduce if memory runs out, and the file of an I/O error.

    Args:
        cfg: its configuration; None if its sizes cannot be changed.

    Raises:
        RunError: in place of the various errors of torch, NumPy and Python.
    """
    try:
        yield
    except (MemoryError, RuntimeError, OSError) as error:
        if out_of_memory(error):
            sizes = ", ".join(f"{key}={OmegaConf.select(cfg, key)}" for key in SIZES) if cfg else ""
            raise RunError(f"out of memory: lower one of {sizes}" if sizes else OUT_OF_MEMORY) from error
        if not isinstance(error, OSError) or not of_the_disk(error):
            raise
        file = error.filename or "a file or stdout"
        raise RunError(f"{file} could not be read or written: {error.strerror}") from error


@contextmanager
def disk_errors(file: Path) -> Iterator[None]:
    """Context for writing a file or folder: reports I/O errors, such as those of a full or read-only disk.

    Raises:
        RunError: in place of the OSError.
    """
    try:
        yield
    except OSError as error:
        if not of_the_disk(error):
            raise
        raise RunError(f"{file} could not be written: {error.strerror}") from error


def of_the_disk(error: OSError) -> bool:
    """Whether it is a disk error, not a broken pipe or a network error."""
    return error.errno is not None and not isinstance(error, ConnectionError | TimeoutError)
