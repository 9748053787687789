"""What goes wrong without being a fault of the program, told in one sentence; no traceback is shown for it."""


class UserError(Exception):
    """A wrong key, value, file or directory, found before anything is trained. The message is the whole explanation."""


class RunError(Exception):
    """What ended a run while it went on: a full disk, too little memory, a loss that is no number.

    The message is the whole explanation.
    """


class Stopped(BaseException):
    """A signal asked this process to end; not an error, so that nothing takes it for one.

    Args:
        signum: the signal.
        message: what has been saved, and where.
    """

    def __init__(self, signum: int, message: str) -> None:
        super().__init__(message)
        self.signum = signum

    @property
    def exit_code(self) -> int:
        """As a shell has it: 130 after Ctrl-C, 143 after SIGTERM."""
        return 128 + self.signum
