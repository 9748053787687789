"""The configuration as a contract: types, bounds, and which keys make a run what it is.

The signature of what a `_target_` names is the schema of its group; that of `Settings` is the schema of the rest.
"""

import difflib
import inspect
import json
import re
import typing
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated, Any, NotRequired, cast

from annotated_types import Ge, Le, Lt

from posenc.bounds import NonNegative, PositiveInt
from posenc.config.instantiate import GROUPS, target
from posenc.errors import UserError

NOT_THE_CURVE = ("name", "rerun", "fork_from", "runs", "cache", "logger", "checkpoint_seconds", "trainer", "data")
"""What may differ between two runs that give the same curve; the text itself and the precision still count."""

PLAIN = re.compile(r"\w[\w.+=-]{0,99}")

KINDS = {
    "integer": "a whole number",
    "number": "a finite number",
    "boolean": "true or false",
    "string": "text",
    "array": "a list, like [a,b]",
    "null": "null",
}
"""The types of JSON schema."""

BOUNDS = {"exclusiveMinimum": "above", "minimum": "at least", "exclusiveMaximum": "below", "maximum": "at most"}
"""The bounds of JSON schema."""

OUT_OF_BOUNDS = {"greater_than", "greater_than_equal", "less_than", "less_than_equal"}
"""pydantic's errors for a value of the right type."""


@dataclass(frozen=True)
class Settings:
    """The keys of config.yaml that belong to no group; each is explained there.

    Raises:
        UserError: if two values contradict each other, or one cannot name a folder.
    """

    seed: Annotated[int, Ge(0), Lt(2**63)]
    steps: Annotated[int, Ge(1), Le(10**9 - 1)]  # what fits into the names of checkpoints
    batch_size: PositiveInt
    context: Annotated[int, Ge(4)]
    eval_every: PositiveInt
    eval_windows: PositiveInt
    attention_every: PositiveInt
    log_every: PositiveInt
    checkpoint_seconds: NonNegative
    name: str
    rerun: bool
    fork_from: str | None
    runs: str
    cache: str

    def __post_init__(self) -> None:
        for key, of in (("steps", "eval_every"), ("attention_every", "eval_every"), ("eval_every", "log_every")):
            if getattr(self, key) % getattr(self, of):
                raise UserError(f"{key}={getattr(self, key)} must be a multiple of {of}={getattr(self, of)}")
        check_plain("name", self.name)
        for key in ("runs", "cache"):
            folder = getattr(self, key)
            if not folder or not folder.isprintable():
                raise UserError(f"{key}={folder!r} must be the name of a folder")


def check_plain(key: str, value: str) -> None:
    """Check that a value can name a folder inside another, on any file system.

    Raises:
        UserError: if it cannot, or might lead out of it.
    """
    if not PLAIN.fullmatch(value) or len(value.encode()) > 200:
        raise UserError(
            f"{key}={value} must be a plain folder name: letters, digits and _ . + = -, at most 100, a letter first"
        )


def check(config: Mapping[str, Any]) -> Settings:
    """Check every value in a resolved configuration against the signature that takes it.

    Raises:
        UserError: on the first unknown key or impossible value, naming the key, the value and what is allowed.
    """
    groups = [group for group in GROUPS if "." not in group]
    values = {key: value for key, value in config.items() if key not in groups}
    _check_values("", values, Settings)
    settings = Settings(**values)
    check_groups(config, groups)
    return settings


def check_groups(config: Mapping[str, Any], groups: Iterable[str]) -> None:
    """Check that these groups are there, and every value in them.

    Raises:
        UserError: on the first that is not there, unknown key or impossible value.
    """
    for group in groups:
        if not isinstance(config.get(group), Mapping):
            raise UserError(f"{group} is missing: choose one with {group}=")
        _check_group(group, config[group])


def _check_group(group: str, values: Mapping[str, Any]) -> None:
    """The keys of a group, and those of the groups inside it."""
    call = target(group, values.get("_target_"))
    inner = [key for key in values if f"{group}.{key}" in GROUPS]
    plain = {key: value for key, value in values.items() if key not in ("_target_", *inner)}
    _check_values(f"{group}.", plain, call, {*GROUPS[group].supplied, *inner})
    for key in inner:
        if not isinstance(values[key], Mapping):
            raise UserError(f"{group}.{key} is a group: choose one with {group}/{key}={values[key]}")
        _check_group(f"{group}.{key}", values[key])


def _check_values(
    prefix: str, values: Mapping[str, Any], call: Callable[..., Any], others: Collection[str] = ()
) -> None:
    """Check that values fit a signature, as they are: 3.0 is no whole number, and "3" is none either.

    Args:
        prefix: of the keys, like `pos.`.
        values: by argument.
        call: has the signature.
        others: arguments that are not among the values.
    """
    # Imported here, since --help and --cfg have no values to check.
    from pydantic import ConfigDict, Strict, TypeAdapter, ValidationError
    from typing_extensions import TypedDict  # pydantic takes no other before Python 3.12

    hints: dict[str, Any] = {}
    for name, argument in inspect.signature(call, eval_str=True).parameters.items():
        if name not in others and argument.kind is argument.POSITIONAL_OR_KEYWORD:
            hint = argument.annotation
            if typing.get_origin(hint) is tuple:
                hint = Annotated[hint, Strict(False)]  # YAML knows lists only
            hints[name] = hint if argument.default is argument.empty else NotRequired[hint]
    schema = cast(Any, TypedDict)("schema", hints)
    schema.__pydantic_config__ = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
    adapter = TypeAdapter(schema)
    try:
        adapter.validate_python(dict(values))
    except ValidationError as error:
        found = {details["loc"]: details["type"] for details in error.errors()}
        raise UserError(_sentence(prefix, values, adapter.json_schema()["properties"], found)) from error


def _sentence(
    prefix: str, values: Mapping[str, Any], schemas: Mapping[str, Any], errors: Mapping[tuple[Any, ...], str]
) -> str:
    """What is wrong with the first of the values that do not fit, an unknown one before one that is missing.

    Args:
        prefix: of the keys.
        values: all, by key.
        schemas: the JSON schema of each key.
        errors: pydantic's, by where they are: a key, and what lies inside its value or type.
    """
    key = min((where[0] for where in errors), key=lambda key: key not in values)
    if key not in schemas:
        return f"{prefix}{key} is not a key; {nearest(key, schemas, prefix)}"
    if key not in values:
        return f"{prefix}{key} is missing; see --cfg job for its default"
    in_bounds = not any(error in OUT_OF_BOUNDS for where, error in errors.items() if where[0] == key)
    close = difflib.get_close_matches(str(values[key]), map(str, schemas[key].get("enum", [])), n=1)
    meant = f"; did you mean {close[0]}?" if close else ""
    return f"{prefix}{key}={values[key]} must be {_in_words(schemas[key], in_bounds)}{meant}"


def _in_words(schema: Mapping[str, Any], kind: bool = True) -> str:
    """What a JSON schema allows, such as "a whole number at least 1 or auto"; without its kind, "at least 1"."""
    if "anyOf" in schema:
        return " or ".join(map(_in_words, schema["anyOf"]))
    if "enum" in schema or "const" in schema:
        return " or ".join(map(str, schema.get("enum", [schema.get("const")])))
    if "prefixItems" in schema:
        each = _in_words(schema["prefixItems"][0], kind=False)
        return f"{len(schema['prefixItems'])} numbers, like [0.9,0.95]" + (f", each {each}" if each else "")
    bounds = " and ".join(f"{words} {schema[bound]}" for bound, words in BOUNDS.items() if bound in schema)
    return f"{KINDS[schema['type']]} {bounds}".strip() if kind or not bounds else bounds


def nearest(key: str, known: Iterable[str], prefix: str = "") -> str:
    """'did you mean a or b?', or what there is to choose from, for a key that is not known."""
    known = sorted(known)
    last = key.rpartition(".")[2]
    same_ending = [name for name in known if name.rpartition(".")[2] == last]
    small = {name.lower(): name for name in known}
    near = difflib.get_close_matches(key.lower(), small, n=3, cutoff=0.5)
    close = same_ending[:3] or [small[name] for name in near]
    if close:
        return f"did you mean {' or '.join(prefix + name for name in close)}?"
    if len(known) > 12:
        return "see --help and --cfg job for those there are"
    return f"there are {', '.join(prefix + name for name in known)}"


def identity(config: Mapping[str, Any], text: str, precision: str) -> str:
    """Eight digits that two runs share exactly when their curves are to be the same.

    Args:
        config: the resolved configuration.
        text: the corpus's fingerprint, so that a text that has changed under its path is another run.
        precision: the one in use, where the configuration may say "auto".
    """
    kept = {key: value for key, value in config.items() if key not in NOT_THE_CURVE}
    return sha256(json.dumps({**kept, "text": text, "precision": precision}, sort_keys=True).encode()).hexdigest()[:8]
