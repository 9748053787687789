"""Instantiates a configuration: calls each `_target_` with the values of its group.

A configuration may be untrusted: it may come with a run directory, or a pasted command. So a `_target_` may only name a
class or function that belongs to its group: one of this package, or one that an installed package declares as an entry
point of the group, such as `posenc.pos`.
"""

import inspect
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from typing_extensions import get_protocol_members, is_protocol  # in typing from Python 3.13 on

from posenc.errors import UserError, first_line, out_of_memory
from posenc.storage.reading import leaves


@dataclass(frozen=True)
class Group:
    """The classes of a group.

    Attributes:
        package: the package or module that contains them.
        interface: their base class or protocol.
        supplied: arguments of its classes that the program supplies, not the configuration.
    """

    package: str
    interface: str
    supplied: tuple[str, ...] = ()


GROUPS = {
    "data": Group("posenc.data.corpora", "posenc.data.corpora.Corpus"),
    "tokenizer": Group("posenc.data.tokenizers", "posenc.data.tokenizers.Tokenizer"),
    "logger": Group("posenc.tracking.loggers", "posenc.tracking.logger.Logger", ("directory", "config")),
    "pos": Group("posenc.positions", "posenc.positions.base.PositionScheme"),
    "intervention": Group("posenc.interventions", "posenc.positions.base.PositionScheme", ("scheme",)),
    "model": Group(
        "posenc.model",
        "posenc.model.transformer.Transformer",
        ("vocab_size", "context", "scheme", "attention", "causal", "seed"),
    ),
    "model.family": Group("posenc.model", "posenc.model.block.Family"),
    "attention": Group("posenc.model", "posenc.model.attention.AttentionOp"),
    "objective": Group("posenc.objectives", "posenc.objectives.objective.Objective", ("vocab_size",)),
    "optim": Group("posenc.training.optim", "posenc.training.optim.Optimizer"),
    "schedule": Group("posenc.training.schedule", "posenc.training.schedule.Schedule"),
    "trainer": Group("posenc.training", "posenc.training.accelerator.Hardware"),
}
"""In the order in which they are checked: the first three do not import torch, so their errors come quickly."""


def target(group: str, name: Any) -> Callable[..., Any]:
    """Resolve the `_target_` of a group, such as model.family, without importing or calling anything else.

    Raises:
        UserError: if there is no such group, the name is neither in the group's package nor declared, or it is that of
            a protocol or of another group's class.
    """
    if group not in GROUPS:
        raise UserError(f"{group} is not a key; see --help and --cfg job")
    package, there = GROUPS[group].package, ""
    if re.fullmatch(rf"{re.escape(package)}(\.[a-z]\w*)*\.[A-Za-z]\w*", str(name), re.ASCII):
        found = _find(str(name))
        there = "" if found is not None else f"; there is no {name}"
        if callable(found) and str(getattr(found, "__module__", "")).startswith(package):
            if isinstance(found, type) and (is_protocol(found) or not _may_be(group, found)):
                raise UserError(f"{group}._target_={name} is not an implementation of {GROUPS[group].interface}")
            return found
    for declared in entry_points(group=f"posenc.{group}"):
        if declared.value.replace(":", ".") == name:
            try:
                return declared.load()
            except (AttributeError, ImportError, TypeError) as error:
                if isinstance(error, ModuleNotFoundError):
                    raise  # a missing dependency
                raise UserError(f"{group}._target_={name} cannot be loaded: {first_line(error)}") from error
    raise UserError(
        f"{group}._target_={name} must name a class or function of {package}, or of a module in it, "
        f"or one that an installed package declares as an entry point of posenc.{group}{there}"
    )


def _interface(group: str) -> type:
    """The base class or protocol of a group's classes."""
    found: type = _find(GROUPS[group].interface)
    return found


def _may_be(group: str, found: type) -> bool:
    """Whether the instances of a class may have the interface of a group: a protocol's attributes may be set later."""
    return is_protocol(interface := _interface(group)) or issubclass(found, interface)


def _is(group: str, built: Any) -> bool:
    """Whether an object has the interface of a group."""
    interface = _interface(group)
    if not is_protocol(interface):
        return isinstance(built, interface)
    return all(hasattr(built, name) for name in get_protocol_members(interface))


def _find(dotted: str) -> Any:
    """The attribute of a module with this dotted name; None if there is none."""
    module, _, name = dotted.rpartition(".")
    try:
        return getattr(import_module(module), name, None)
    except ModuleNotFoundError as error:
        if error.name is not None and not error.name.startswith("posenc"):
            raise  # a missing dependency
        return None


def build(configuration: Mapping[str, Any], group: str, within: str = "", **supplied: Any) -> Any:
    """Call a group's `_target_` with its values, its subgroups and the supplied arguments.

    Args:
        within: the parent groups, each followed by a dot.

    Raises:
        UserError: if the target is not allowed, rejects a value, or does not fit in memory; the message names the key
            with its group.
    """
    values, path = configuration[group], f"{within}{group}"
    call = target(path, values["_target_"])
    groups = [key for key in values if f"{path}.{key}" in GROUPS]
    inner = {key: build(values, key, f"{path}.") for key in groups}
    plain = {key: value for key, value in values.items() if key not in groups and key != "_target_"}
    try:
        arguments = dict(**plain, **inner, **supplied)
        inspect.signature(call).bind(**arguments)
    except TypeError as error:
        raise UserError(f"{path}._target_={values['_target_']} cannot be called: {error}") from error
    try:
        built = call(**arguments)
    except ValueError as error:
        raise _of_group(path, values, error) from error
    except (MemoryError, RuntimeError, OverflowError, TypeError) as error:
        if not isinstance(error, OverflowError) and not out_of_memory(error):
            raise
        numbers = ((key, value) for key, value in leaves(values) if type(value) in (int, float))
        sizes = ", ".join(f"{path}.{key}={value}" for key, value in numbers)
        raise UserError(f"this does not fit in memory: {sizes or path}") from error
    if not _is(path, built):
        what = f"an implementation of {GROUPS[path].interface}"
        raise UserError(f"{path}._target_={values['_target_']} does not return {what}")
    return built


def _of_group(path: str, values: Mapping[str, Any], error: ValueError) -> UserError:
    """The error of a group's class, whose message begins with one of the class's arguments or is about others."""
    return UserError(f"{path}.{error}" if str(error).partition("=")[0] in values else str(error))


def head_dim(width: Any, heads: Any) -> int:
    """The channels of each head; in configuration files `${head_dim:${model.width},${model.heads}}`.

    Raises:
        UserError: if one of the two is not a positive integer, or the width is not a multiple of the heads.
    """
    for key, value in (("model.width", width), ("model.heads", heads)):
        if not (type(value) is int and value > 0):
            raise UserError(f"{key}={value} must be an integer, at least 1")
    if width % heads:
        raise UserError(f"model.width={width} must be a multiple of model.heads={heads}")
    return width // heads


def _check_sizes(configuration: Mapping[str, Any]) -> None:
    """Check that the sizes of scheme, intervention and attention match the model's."""
    model = configuration["model"]
    sizes = {key: model[key] for key in ("layers", "width", "heads")}
    sizes["head_dim"] = head_dim(model["width"], model["heads"])
    for group in ("pos", "intervention", "attention"):
        for key, size in sizes.items():
            given = configuration[group].get(key, size)
            if given != size:
                raise UserError(f"{group}.{key}={given} must be {size}, as in the model")


def _check_memory(configuration: Mapping[str, Any], vocab_size: int) -> None:
    """Reject sizes that cannot fit into memory up front, since allocating might take long or get the process killed.

    Counts a lower bound for the model's weights and for the token ids of a batch.
    """
    model, batch = configuration["model"], configuration["batch_size"] * configuration["context"]
    layers, width = model["layers"], model["width"]
    weights = f"the weights of model.layers={layers}, model.width={width} and {vocab_size} tokens"
    tokens = f"the tokens of batch_size={configuration['batch_size']} windows of context={configuration['context']}"
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for what, needed in ((weights, 4 * (2 * layers * width**2 + vocab_size * width)), (tokens, 8 * batch)):
        if needed > total:
            sizes = f"at least {needed / 2**30:,.0f} GiB, but this machine has {total / 2**30:,.0f} GiB of memory"
            raise UserError(f"{what} need {sizes}")


def build_model(configuration: Mapping[str, Any], objective: Any) -> Any:
    """The model of a configuration, with the initial weights of its seed.

    Raises:
        UserError: if a value is invalid.
    """
    _check_sizes(configuration)
    _check_memory(configuration, objective.vocab_size)
    layers, context, steps = configuration["model"]["layers"], configuration["context"], configuration["steps"]
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(configuration["seed"])  # for parameters made in a scheme's constructor
        scheme = build(configuration, "pos")
        wrapped = build(configuration, "intervention", scheme=scheme)
    for group, built in (("pos", scheme), ("intervention", wrapped)):
        try:
            built.check_effect(layers, context, steps)
        except ValueError as error:
            raise _of_group(group, configuration[group], error) from error
    return build(
        configuration,
        "model",
        vocab_size=objective.vocab_size,
        context=context,
        scheme=wrapped,
        attention=build(configuration, "attention"),
        causal=objective.causal,
        seed=configuration["seed"],
    )
