"""From configuration to objects: what `_target_` names is called with the values beside it."""

from collections.abc import Mapping
from typing import Any

from posenc.errors import UserError


def build(configuration: Mapping[str, Any], group: str, within: str = "", **supplied: Any) -> Any:
    """Call what a group's `_target_` names, with its values, the groups inside it and what the program supplies.

    Args:
        configuration: holds the group.
        group: its name.
        within: the names of the groups it lies in, each with a dot behind it.
        supplied: further arguments.

    Raises:
        UserError: if it refuses a value; the sentence names the key with its group.
    """
    from hydra.utils import instantiate

    values = configuration[group]
    groups = [key for key, value in values.items() if isinstance(value, Mapping)]
    inner = {key: build(values, key, f"{within}{group}.") for key in groups}
    plain = {key: value for key, value in values.items() if key not in groups}
    # Hydra would turn supplied objects into configuration: it only binds the values, and the call is ours.
    call = instantiate({**plain, "_partial_": True, "_convert_": "all"})
    try:
        return call(**inner, **supplied)
    except ValueError as error:
        key = str(error).partition("=")[0]
        raise UserError(f"{within}{group}.{error}" if key in values else str(error)) from error


def _check_sizes(configuration: Mapping[str, Any]) -> None:
    """Refuse a scheme or an attention of another size than the model's."""
    model = configuration["model"]
    sizes = {key: model[key] for key in ("width", "heads")} | {"head_dim": model["width"] // max(1, model["heads"])}
    for group in ("pos", "attention"):
        for key, size in sizes.items():
            given = configuration[group].get(key, size)
            if given != size:
                raise UserError(f"{group}.{key}={given} must be {size}, as the model has it")


def build_model(configuration: Mapping[str, Any], objective: Any) -> Any:
    """The model of a configuration, with the initial weights of its seed.

    Raises:
        UserError: if a value is refused.
    """
    _check_sizes(configuration)
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
