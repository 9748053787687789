"""From configuration to objects: what `_target_` names is called with the values beside it.

Whatever it names is called, and a configuration may come from a stranger: with a run directory, or a command to paste.
So it may name what belongs to its group only: a class or function of this package, or of one that is installed here
and declares it under the entry points of the group, like `posenc.pos`.
"""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from posenc.errors import UserError
from posenc.storage.resource_errors import out_of_memory


@dataclass(frozen=True)
class Group:
    """Where a group's classes live.

    Attributes:
        room: the package or module.
        supplied: arguments of its classes that the program supplies, not the configuration.
    """

    room: str
    supplied: frozenset[str] = frozenset()


GROUPS = {
    "data": Group("posenc.data.corpora"),
    "tokenizer": Group("posenc.data.tokenizers"),
    "logger": Group("posenc.tracking.loggers", frozenset(("directory", "config"))),
    "pos": Group("posenc.positions"),
    "model": Group("posenc.model", frozenset(("vocab_size", "context", "scheme", "attention", "causal", "seed"))),
    "model.family": Group("posenc.model"),
    "attention": Group("posenc.model"),
    "objective": Group("posenc.objectives", frozenset(("vocab_size",))),
    "optim": Group("posenc.training.optim"),
    "schedule": Group("posenc.training.schedule"),
    "trainer": Group("posenc.training"),
}
"""In the order in which they are checked: modules of the first three do not import torch, so they answer at once."""


def target(group: str, name: Any) -> Callable[..., Any]:
    """What a group's `_target_` names. Nothing else is imported to find out, and nothing is called.

    Args:
        group: with the groups it lies in, like model.family.
        name: dotted, from a configuration.

    Raises:
        UserError: if there is no such group, or it names what is neither public in the group's room nor declared.
    """
    if group not in GROUPS:
        raise UserError(f"{group} is not a key; see --help and --cfg job")
    room = GROUPS[group].room
    if re.fullmatch(rf"{re.escape(room)}(\.[a-z]\w*)*\.[A-Za-z]\w*", str(name), re.ASCII):
        found = _found(*str(name).rpartition(".")[::2])
        if callable(found) and str(getattr(found, "__module__", "")).startswith(room):
            return found
    for declared in entry_points(group=f"posenc.{group}"):
        if declared.value.replace(":", ".") == name:
            return declared.load()
    raise UserError(
        f"{group}._target_={name} must name a class or function of {room}, or of a module in it, "
        f"or one that an installed package declares among the entry points of posenc.{group}"
    )


def _found(module: str, name: str) -> Any:
    try:
        return getattr(import_module(module), name, None)
    except ModuleNotFoundError as error:
        if error.name is not None and not error.name.startswith("posenc"):
            raise  # a package that ours needs
        return None


def build(configuration: Mapping[str, Any], group: str, within: str = "", **supplied: Any) -> Any:
    """Call what a group's `_target_` names, with its values, the groups inside it and what the program supplies.

    Args:
        configuration: holds the group.
        group: its name.
        within: the names of the groups it lies in, each with a dot behind it.
        supplied: further arguments.

    Raises:
        UserError: if it names what is not to be called, refuses a value, or does not fit in memory; the sentence names
            the key with its group.
    """
    values = configuration[group]
    call = target(f"{within}{group}", values["_target_"])
    groups = [key for key, value in values.items() if isinstance(value, Mapping)]
    inner = {key: build(values, key, f"{within}{group}.") for key in groups}
    plain = {key: value for key, value in values.items() if key not in groups and key != "_target_"}
    try:
        return call(**plain, **inner, **supplied)
    except ValueError as error:
        key = str(error).partition("=")[0]
        raise UserError(f"{within}{group}.{error}" if key in values else str(error)) from error
    except (MemoryError, RuntimeError, OverflowError) as error:
        if not out_of_memory(error):
            raise
        sizes = ", ".join(f"{within}{group}.{key}={value}" for key, value in plain.items() if type(value) is int)
        raise UserError(f"this does not fit in memory: {sizes or f'{within}{group}'}") from error


def _check_sizes(configuration: Mapping[str, Any]) -> None:
    """Refuse a scheme or an attention of another size than the model's."""
    model = configuration["model"]
    sizes = {key: model[key] for key in ("layers", "width", "heads")} | {
        "head_dim": model["width"] // max(1, model["heads"])
    }
    for group in ("pos", "attention"):
        for key, size in sizes.items():
            given = configuration[group].get(key, size)
            if given != size:
                raise UserError(f"{group}.{key}={given} must be {size}, as the model has it")


def _check_memory(configuration: Mapping[str, Any], vocab_size: int) -> None:
    """Refuse what no machine like this could hold, before it is asked to: it might try for long, or be killed.

    Counted are the least that a model's weights and the token numbers of a batch take.
    """
    model, batch = configuration["model"], configuration["batch_size"] * configuration["context"]
    layers, width = model["layers"], model["width"]
    weights = f"the weights of model.layers={layers}, model.width={width} and {vocab_size} tokens"
    tokens = f"the tokens of batch_size={configuration['batch_size']} windows of context={configuration['context']}"
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for what, needed in ((weights, 4 * (2 * layers * width**2 + vocab_size * width)), (tokens, 8 * batch)):
        if needed > there:
            sizes = f"at least {needed / 2**30:,.0f} GiB, and this machine has {there / 2**30:,.0f} GiB of memory"
            raise UserError(f"{what} need {sizes}")


def build_model(configuration: Mapping[str, Any], objective: Any) -> Any:
    """The model of a configuration, with the initial weights of its seed.

    Raises:
        UserError: if a value is refused.
    """
    _check_sizes(configuration)
    _check_memory(configuration, objective.vocab_size)
    return build(
        configuration,
        "model",
        vocab_size=objective.vocab_size,
        context=configuration["context"],
        scheme=build(configuration, "pos"),
        attention=build(configuration, "attention"),
        causal=objective.causal,
        seed=configuration["seed"],
    )
