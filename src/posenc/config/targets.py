"""What `_target_` may name: a class or function of this package, from the room of its group.

Whatever it names is called, and a configuration may come from a stranger: with a run directory, or a command to paste.
"""

import re
from collections.abc import Callable
from importlib import import_module
from typing import Any

from posenc.errors import UserError

ROOMS = {
    "pos": "posenc.positions",
    "model": "posenc.model",
    "model.family": "posenc.model",
    "attention": "posenc.model",
    "objective": "posenc.objectives",
    "data": "posenc.data.corpora",
    "tokenizer": "posenc.data.tokenizers",
    "optim": "posenc.training.optim",
    "schedule": "posenc.training.schedule",
    "trainer": "posenc.training",
    "logger": "posenc.tracking.loggers",
}
"""The package or module of each group."""


def target(group: str, name: Any) -> Callable[..., Any]:
    """What a group's `_target_` names. Nothing outside the package is imported to find out, and nothing is called.

    Args:
        group: with the groups it lies in, like model.family.
        name: dotted, from a configuration.

    Raises:
        UserError: if there is no such group, or it names anything but a public class or function of its room.
    """
    room = ROOMS.get(group)
    if room is None:
        raise UserError(f"{group} is not a key; see --help and --cfg job")
    module, _, last = str(name).rpartition(".")
    if re.fullmatch(rf"{re.escape(room)}(\.[a-z]\w*)*\.[A-Za-z]\w*", str(name), re.ASCII):
        found = _found(module, last)
        if callable(found) and str(getattr(found, "__module__", "")).startswith(room):
            return found
    raise UserError(f"{group}._target_={name} must name a class or function of {room}, or of a module in it")


def _found(module: str, name: str) -> Any:
    try:
        return getattr(import_module(module), name, None)
    except ModuleNotFoundError as error:
        if error.name is not None and not error.name.startswith("posenc"):
            raise  # a package that ours needs
        return None
