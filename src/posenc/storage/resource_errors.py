"""Too little memory, or disk, told in one sentence."""

from collections.abc import Iterator
from contextlib import contextmanager

from omegaconf import DictConfig, OmegaConf

from posenc.errors import RunError
from posenc.storage.atomic import FULL

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
def limits_told(cfg: DictConfig) -> Iterator[None]:
    """Say what to lower where memory did not suffice, and what could not be written to a full disk.

    Raises:
        RunError: in place of the many ways in which torch, NumPy and Python say so.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not too_large(error):
            raise
        raise RunError(_sentence(cfg)) from error
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise RunError(f"{error.filename or 'what is due'} could not be written: there is no space left") from error


def too_large(error: Exception) -> bool:
    """Whether an error says that memory did not suffice.

    torch.OutOfMemoryError is a RuntimeError, and on a CPU torch has nothing more exact.
    """
    return isinstance(error, MemoryError) or any(words in str(error) for words in NOT_ALLOCATED)


def _sentence(cfg: DictConfig) -> str:
    sizes = ", ".join(f"{key}={OmegaConf.select(cfg, key)}" for key in SIZES)
    return f"out of memory: lower one of {sizes}"
