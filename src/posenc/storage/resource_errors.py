"""Too little memory, or a disk that fails, in one sentence."""

import errno
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from posenc.errors import RunError

SIZES = ("batch_size", "context", "model.layers", "model.width")
"""What memory grows with."""

NOT_ALLOCATED = (
    "out of memory",
    "can't allocate memory",
    "not enough memory",
    "std::bad_alloc",
    "ALLOC_FAILED",  # cuBLAS, cuDNN
    "Storage size calculation overflowed",
    "integer multiplication overflow",
)
"""How torch says it: on a GPU, and on a CPU in several places."""


@contextmanager
def resource_errors(cfg: DictConfig) -> Iterator[None]:
    """Around a run: say what to lower where memory does not suffice, and which file the disk failed at.

    Raises:
        RunError: in place of the many ways in which torch, NumPy and Python say so.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        sizes = ", ".join(f"{key}={OmegaConf.select(cfg, key)}" for key in SIZES)
        raise RunError(f"out of memory: lower one of {sizes}") from error
    except OSError as error:
        if not _of_the_disk(error):
            raise
        raise RunError(f"{error.filename or 'a file'} could not be read or written: {error.strerror}") from error


@contextmanager
def disk_errors(file: Path, needed: Callable[[], str]) -> Iterator[None]:
    """Around what writes a file or folder: whatever the disk refuses, such as a full, read-only or removed one.

    Args:
        file: what is written.
        needed: how much it needs, in words; asked only if the disk is full.

    Raises:
        RunError: in place of the OSError.
    """
    try:
        yield
    except OSError as error:
        if not _of_the_disk(error):
            raise
        reason = error.strerror
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            reason = f"it needs {needed()}, and {shutil.disk_usage(file.parent).free:,} are free there"
        raise RunError(f"{file} could not be written: {reason}") from error


def out_of_memory(error: Exception) -> bool:
    """Whether an error says that memory did not suffice.

    torch.OutOfMemoryError is a RuntimeError, and on a CPU torch has nothing more exact.
    """
    return isinstance(error, MemoryError) or any(words in str(error) for words in NOT_ALLOCATED)


def _of_the_disk(error: OSError) -> bool:
    """Unlike a pipe that nobody reads any more, or a server."""
    return error.errno is not None and not isinstance(error, ConnectionError | TimeoutError)
