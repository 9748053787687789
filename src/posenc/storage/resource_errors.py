"""One-sentence errors for lack of memory and disk failures."""

import errno
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from posenc.errors import RunError

SIZES = ("batch_size", "context", "model.layers", "model.width")
"""Keys that determine memory use."""

NOT_ALLOCATED = (
    "out of memory",
    "can't allocate memory",
    "not enough memory",
    "std::bad_alloc",
    "ALLOC_FAILED",  # cuBLAS, cuDNN
    "Storage size calculation overflowed",
    "integer multiplication overflow",
)
"""torch's messages, on a GPU and in several places on a CPU."""


@contextmanager
def resource_errors(cfg: DictConfig) -> Iterator[None]:
    """Context for a run: reports what to reduce if memory runs out, and the file of an I/O error.

    Raises:
        RunError: in place of the various errors of torch, NumPy and Python.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        sizes = ", ".join(f"{key}={OmegaConf.select(cfg, key)}" for key in SIZES)
        raise RunError(f"out of memory: lower one of {sizes}") from error
    except OSError as error:
        if not of_the_disk(error):
            raise
        file = error.filename or "a file or stdout"
        raise RunError(f"{file} could not be read or written: {error.strerror}") from error


@contextmanager
def disk_errors(file: Path, needed: Callable[[], str]) -> Iterator[None]:
    """Context for writing a file or folder: reports I/O errors, such as those of a full or read-only disk.

    Args:
        needed: describes the space needed; called only if the disk is full.

    Raises:
        RunError: in place of the OSError.
    """
    try:
        yield
    except OSError as error:
        if not of_the_disk(error):
            raise
        reason = error.strerror
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            reason = f"it needs {needed()}, but only {shutil.disk_usage(file.parent).free:,} are free"
        raise RunError(f"{file} could not be written: {reason}") from error


def out_of_memory(error: Exception) -> bool:
    """Whether an error means that memory ran out.

    torch.OutOfMemoryError is a RuntimeError, and on a CPU torch raises nothing more specific.
    """
    return isinstance(error, MemoryError) or any(message in str(error) for message in NOT_ALLOCATED)


def of_the_disk(error: OSError) -> bool:
    """Whether it is a disk error, not a broken pipe or a network error."""
    return error.errno is not None and not isinstance(error, ConnectionError | TimeoutError)
