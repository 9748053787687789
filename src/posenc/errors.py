"""What a user can cause, told in one sentence."""


class UserError(Exception):
    """A wrong key, value, file or directory. The message is the whole explanation; no traceback is shown."""
