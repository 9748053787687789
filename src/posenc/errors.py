"""What goes wrong without being a fault of the program, told in one sentence; no traceback is shown for it."""

from collections.abc import Iterator
from contextlib import contextmanager

FAILED = 1
"""Exit code of a run that ended, or of a sweep in which one did."""

MISUSE = 2
"""Exit code of a wrong command."""


class UserError(Exception):
    """A wrong key, value, file or directory, found before anything is trained. The message is the whole explanation."""


class RunError(Exception):
    """What ended a run while it went on: a full disk, too little memory, a loss that is NaN or infinite.

    The message is the whole explanation.
    """


class Stopped(BaseException):
    """A signal asked this process to end; not an error, so that nothing takes it for one.

    Args:
        signum: the signal.
        message: what has been saved, and where.
    """

    def __init__(self, signum: int, message: str) -> None:
        super().__init__(signum, message)  # all that it is made of, so that it passes between processes
        self.signum, self.message = signum, message

    def __str__(self) -> str:
        return self.message

    @property
    def exit_code(self) -> int:
        """As a shell has it: 130 after Ctrl-C, 143 after SIGTERM."""
        return 128 + self.signum


def first_line(error: BaseException) -> str:
    """What a library's error says, in one line."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def printable(text: str) -> str:
    """What may be shown on a terminal: a name may hold what starts a new line, or moves, colours or reverses it."""
    return "".join(character if character.isprintable() else " " for character in text)


def printable_lines(text: str) -> str:
    """The same for several lines."""
    return "\n".join(map(printable, text.split("\n")))


@contextmanager
def needed_for(what: str) -> Iterator[None]:
    """Around the import of a package that only some runs need.

    Args:
        what: needs it, as on the command line.

    Raises:
        UserError: if it is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise UserError(missing_package(error, what)) from error


def missing_package(error: ModuleNotFoundError, what: str = "this") -> str:
    """The sentence for a package that is not there."""
    return f"{what} needs the package {str(error.name).partition('.')[0]}, which is not installed: see requirements.txt"
