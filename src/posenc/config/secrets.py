"""Keeps API keys and passwords, which come from the environment or `wandb login`, out of files and messages."""

import os
import re
from collections.abc import Iterable

from posenc.errors import UserError, printable

_NAMES = re.compile(r"(^|[._-])(api[_-]?key|token|secret|passw(or)?d)$", re.IGNORECASE)
"""Names of arguments that contain a secret; must not match `tokenizer`, `tokens` and `queries_per_key`."""

_VARIABLES = ("WANDB_API_KEY", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
"""Environment variables of W&B and the Hugging Face Hub with secrets."""

_VALUES = re.compile(r"(?<!snapshots/)\b([0-9a-f]{40}|wandb_v\d+_\w{20,}|hf_[A-Za-z0-9]{20,})\b")
"""Secrets of W&B and the Hugging Face Hub, whose cache has folders named by a commit in `snapshots`."""

_MIN_LENGTH = 8
"""A shorter value of such a variable is a word like `none`."""


_LONG_WORD = re.compile(r"(\S{200})\S{200,}(\S{100})")


def check_no_secrets(arguments: Iterable[str]) -> None:
    """Reject a command line with a secret, which would end up in config.yaml and the logs; names only its key."""
    for argument in arguments:
        name, assigned, value = argument.partition("=")
        if name.endswith("revision"):  # a commit hash, which looks like a W&B key
            continue
        if (assigned and value and _NAMES.search(name)) or redact(argument) != argument:
            what = name if assigned and redact(name) == name else "an argument"
            raise UserError(
                f"{what} looks like a secret, which must not be on a command line: "
                "use `wandb login`, or the environment variables WANDB_API_KEY and HF_TOKEN"
            )


def redact(text: str) -> str:
    """The text with *** in place of anything that is, or looks like, a secret."""
    for value in map(os.environ.get, _VARIABLES):
        if value is not None and len(value) >= _MIN_LENGTH:
            text = text.replace(value, "***")
    return _VALUES.sub("***", text)


def presentable(message: str) -> str:
    """An error message that may be printed and stored: without secrets, control characters and very long words."""
    return _LONG_WORD.sub(r"\1...\2", printable(redact(message)))
