"""Errors that are not bugs of the program; they are reported in one sentence without a traceback."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

FAILED = 1
"""Exit code of a failed run, or of a sweep with a failed run."""

MISUSE = 2
"""Exit code of an invalid command."""


NOT_ALLOCATED = (
    "out of memory",
    "can't allocate memory",
    "Cannot allocate memory",
    "not enough memory",
    "std::bad_alloc",
    "ALLOC_FAILED",  # cuBLAS, cuDNN
    "Storage size calculation overflowed",
    "integer multiplication overflow",
    "Overflow when unpacking long",
)
"""torch's messages, on a GPU and in several places on a CPU."""


class UserError(Exception):
    """An invalid key, value, file or directory, found before training starts. The message is the full explanation."""


class RunError(Exception):
    """A failure during training: a full disk, out of memory, a loss that is NaN or infinite.

    The message is the full explanation.
    """


class Stopped(BaseException):
    """A signal asked this process to exit; the message says what has been saved, and where.

    A BaseException, so that `except Exception` does not catch it.
    """

    def __init__(self, signum: int, message: str) -> None:
        super().__init__(signum, message)  # all arguments, so that it can be pickled
        self.signum, self.message = signum, message

    def __str__(self) -> str:
        return self.message

    @property
    def exit_code(self) -> int:
        """As in a shell: 130 after Ctrl-C, 143 after SIGTERM."""
        return 128 + self.signum


def out_of_memory(error: Exception) -> bool:
    """Whether an error means that memory ran out.

    torch.OutOfMemoryError is a RuntimeError, and on a CPU torch raises nothing more specific.
    """
    if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
        return True
    return any(message in str(error) for message in NOT_ALLOCATED)


def first_line(error: BaseException) -> str:
    """The first line of an error's message."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def printable(text: str) -> str:
    """Text that is safe to print: control characters, which could forge lines or colours, are replaced by spaces."""
    return "".join(character if character.isprintable() else " " for character in text)


def printable_lines(text: str) -> str:
    """The same for text with several lines, and tabs."""
    return "".join(one if one in "\n\t" else printable(one) for one in text)


@contextmanager
def needed_for(what: str) -> Iterator[None]:
    """Wraps the import of an optional package.

    Raises:
        UserError: if it is not installed; `what` needs it, as on the command line.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise UserError(missing_package(error, what)) from error


def missing_package(error: ModuleNotFoundError, what: str = "this") -> str:
    """The message for a missing package."""
    return f"{what} needs the package {str(error.name).partition('.')[0]}, which is not installed: see requirements.txt"
