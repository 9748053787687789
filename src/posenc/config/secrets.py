"""Keys and passwords: they come from the environment or `wandb login`, and are never written down or shown."""

import os
import re
from collections.abc import Iterable

from posenc.errors import UserError

_NAMES = re.compile(r"(^|[._-])(api[_-]?key|token|secret|passw(or)?d)$", re.IGNORECASE)
"""What arguments that hold one are called; `tokenizer`, `tokens` and `queries_per_key` are none."""

_VARIABLES = ("WANDB_API_KEY", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
"""The variables that W&B and the Hugging Face hub read theirs from."""

_VALUES = re.compile(r"\b([0-9a-f]{40}|wandb_v\d+_\w{20,}|hf_[A-Za-z0-9]{20,})\b")
"""What W&B's and the Hugging Face hub's look like."""

_SHORTEST = 8
"""Letters; a shorter value of such a variable is a word like `none`."""


def refuse_secrets(arguments: Iterable[str]) -> None:
    """Refuse a command line with a secret in it, without showing it: it would go into config.yaml and the logs.

    Raises:
        UserError: naming the key, not the value.
    """
    for argument in arguments:
        name, assigned, value = argument.partition("=")
        if name.endswith("revision"):  # a commit's hash, which looks like W&B's key
            continue
        if (assigned and value and _NAMES.search(name)) or hidden(argument) != argument:
            what = name if assigned and hidden(name) == name else "an argument"
            raise UserError(
                f"{what} looks like a secret, which must not be on a command line: "
                "use `wandb login`, or the environment's WANDB_API_KEY and HF_TOKEN"
            )


def hidden(text: str) -> str:
    """The text with *** for everything in it that is, or looks like, a secret."""
    for value in map(os.environ.get, _VARIABLES):
        if value is not None and len(value) >= _SHORTEST:
            text = text.replace(value, "***")
    return _VALUES.sub("***", text)
