"""Validation of the configuration, and the identity of a run.

The signature of each `_target_` is the schema of its group; that of `Settings` is the schema of the rest.
"""

import difflib
import inspect
import json
import math
import re
import typing
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated, Any, NotRequired, cast

from annotated_types import Ge, Le

from posenc.bounds import NonNegative, PositiveInt, Seed
from posenc.config.instantiate import GROUPS, target
from posenc.errors import UserError, first_line

NOT_IN_IDENTITY = ("name", "rerun", "fork_from", "runs", "cache", "logger", "checkpoint_seconds", "trainer", "data")
"""Keys that do not affect the curve; the contents of the text and the precision do, and are added separately."""

SHARED = {
    *NOT_IN_IDENTITY, "seed", "steps", "batch_size", "context", "tokenizer", "objective",
    "eval_every", "eval_windows", "log_every", "attention_every",
}  # fmt: skip
"""Keys, and all below them, that no hyperparameter search may vary, because the runs that it compares must agree."""

MAX_NAME, MAX_NAME_BYTES = 100, 200
"""The longest name, in characters and in UTF-8, of which file systems allow 255 bytes."""

PLAIN = re.compile(rf"\w[\w.+=-]{{0,{MAX_NAME - 1}}}")

KINDS = {
    "integer": "an integer",
    "number": "a finite number",
    "boolean": "true or false",
    "string": "text",
    "array": "a list, like [a,b]",
    "object": "a mapping, like {a: b}",
    "null": "null",
}
"""The types of JSON schema."""

PACKAGE_LINE = "a file in conf/{} must begin with the line # @package _global_"
"""Why the keys in it are not those of a run."""

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

    seed: Seed
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
        for key in ("runs", "cache", "fork_from"):
            folder = getattr(self, key)
            if folder is not None and not (folder and folder.isprintable()):
                raise UserError(f"{key}={folder!r} must be the name of a folder")
            if (folder or "").startswith("~"):  # the command line expands ~/
                raise UserError(f"{key}={folder!r}: spell out the home folder")


def check_plain(key: str, value: str) -> None:
    """Check that a value is safe as a folder name, on any file system.

    Raises:
        UserError: if it is not, or might be a path out of the parent folder.
    """
    if not PLAIN.fullmatch(value) or len(value.encode()) > MAX_NAME_BYTES:
        raise UserError(
            f"{key}={value} must be a plain folder name: letters, digits and _ . + = -, at most {MAX_NAME} "
            f"and {MAX_NAME_BYTES} bytes, with a letter, digit or _ first"
        )


def check(config: Mapping[str, Any]) -> Settings:
    """Check every value of a resolved configuration against the signature of its target.

    Raises:
        UserError: on the first unknown key or invalid value; names the key, the value and what is allowed.
    """
    for group in ("experiment", "sweep"):
        if group in config:
            raise UserError(f"{group} is not a key: {PACKAGE_LINE.format(group)}")
    groups = [group for group in GROUPS if "." not in group]
    values = {key: value for key, value in config.items() if key not in groups}
    _check_values("", values, Settings)
    settings = Settings(**values)
    check_groups(config, groups)
    return settings


def check_settings(config: Mapping[str, Any], keys: Collection[str]) -> None:
    """Check that these keys of `Settings` are there and valid.

    Raises:
        UserError: otherwise, as `check`.
    """
    others = Settings.__annotations__.keys() - set(keys)
    _check_values("", {key: config[key] for key in keys if key in config}, Settings, others)


def check_groups(config: Mapping[str, Any], groups: Iterable[str]) -> None:
    """Check that these groups are there, and that every key and value in them is valid.

    Raises:
        UserError: otherwise, as `check`.
    """
    for group in groups:
        if not isinstance(config.get(group), Mapping):
            raise UserError(f"{group} is missing: choose one with {group}=")
        _check_group(group, config[group])


def _check_group(group: str, values: Mapping[str, Any]) -> None:
    """Check a group and its subgroups."""
    from pydantic import PydanticUserError  # lazily, as below

    call = target(group, values.get("_target_"))
    inner = [key for key in values if f"{group}.{key}" in GROUPS]
    plain = {key: value for key, value in values.items() if key not in ("_target_", *inner)}
    try:
        _check_values(f"{group}.", plain, call, {*GROUPS[group].supplied, *inner})
    except (NameError, TypeError, PydanticUserError) as error:
        raise UserError(f"{group}._target_={values['_target_']} cannot be validated: {first_line(error)}") from error
    for key in inner:
        if not isinstance(values[key], Mapping):
            raise UserError(f"{group}.{key} is a group: choose one with {group}/{key}={values[key]}")
        _check_group(f"{group}.{key}", values[key])


def _check_values(
    prefix: str, values: Mapping[str, Any], call: Callable[..., Any], others: Collection[str] = ()
) -> None:
    """Check that values match a signature, without conversion: 3.0 and "3" are not integers.

    Args:
        prefix: of the keys, such as `pos.`.
        others: arguments that are not among the values.
    """
    # Imported lazily, since --help and --cfg do not need it.
    from pydantic import ConfigDict, Strict, TypeAdapter, ValidationError
    from typing_extensions import TypedDict  # required by pydantic before Python 3.12

    hints: dict[str, Any] = {}
    for name, argument in inspect.signature(call, eval_str=True).parameters.items():
        if name not in others and argument.kind in (argument.POSITIONAL_OR_KEYWORD, argument.KEYWORD_ONLY):
            hint = argument.annotation
            if hint is argument.empty:
                raise UserError(f"{prefix}{name} has no type: annotate it in the signature, as in {name}: int")
            if typing.get_origin(hint) is tuple:
                hint = Annotated[hint, Strict(False)]  # YAML has only lists
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
    """The error message for the first invalid value; unknown keys come before missing ones.

    Args:
        schemas: the JSON schema of each key.
        errors: pydantic's error types by location: a key, and a path inside its value or type.
    """
    key = min((where[0] for where in errors), key=lambda key: key not in values)
    if key not in schemas:
        return f"{prefix}{key} is not a key; {nearest(key, schemas, prefix)}"
    if key not in values:
        return f"{prefix}{key} is missing; add it to the YAML file, or as +{prefix}{key}="
    in_bounds = not any(error in OUT_OF_BOUNDS for where, error in errors.items() if where[0] == key)
    close = difflib.get_close_matches(str(values[key]), map(str, schemas[key].get("enum", [])), n=1)
    meant = f"; did you mean {close[0]}?" if close else ""
    forms = (schemas[key], *schemas[key].get("anyOf", ()))
    any_text = any(form.get("type") == "string" and not {"enum", "const"} & form.keys() for form in forms)
    if any_text and type(values[key]) in (int, float):  # Hydra reads 2026 as a number
        meant = f"""; quote it twice, '{prefix}{key}="{values[key]}"'"""
    allowed = _describe(schemas[key], in_bounds)
    if isinstance(values[key], list):
        items = (form["items"] for form in forms if form.get("items"))
        allowed = next((f"a list, each of which is {_describe(each)}" for each in items), allowed)
    return f"{prefix}{key}={values[key]} must be {allowed}{meant}"


def _describe(schema: Mapping[str, Any], kind: bool = True) -> str:
    """Description of a JSON schema, such as "an integer at least 1 or auto"; without the type, "at least 1"."""
    if "anyOf" in schema:
        return " or ".join(map(_describe, schema["anyOf"]))
    if "description" in schema:
        return str(schema["description"])
    if "enum" in schema or "const" in schema:
        return " or ".join(map(str, schema.get("enum", [schema.get("const")])))
    if "prefixItems" in schema:
        each = _describe(schema["prefixItems"][0], kind=False)
        return f"{len(schema['prefixItems'])} numbers, like [0.9,0.95]" + (f", each {each}" if each else "")
    bounds = " and ".join(f"{text} {schema[bound]}" for bound, text in BOUNDS.items() if bound in schema)
    return f"{KINDS.get(schema.get('type', ''), 'of another type')} {bounds}".strip() if kind or not bounds else bounds


def nearest(key: str, known: Iterable[str], prefix: str = "") -> str:
    """'did you mean a or b?', or 'choose from ...', for an unknown key."""
    known = sorted(known)
    last = key.rpartition(".")[2]
    same_ending = [name for name in known if name.rpartition(".")[2] == last]
    small = {name.lower(): name for name in known}
    near = difflib.get_close_matches(key.lower(), small, n=3, cutoff=0.5)
    close = same_ending[:3] or [small[name] for name in near]
    if close:
        return f"did you mean {' or '.join(prefix + name for name in close)}?"
    if not known:
        return "there is none here"
    if len(known) > 12:
        return "see --help and --cfg job"
    return f"choose from {', '.join(prefix + name for name in known)}"


def identity(config: Mapping[str, Any], text: str, precision: str) -> str:
    """Eight hexadecimal digits that are equal for two runs if and only if their curves should be.

    Args:
        config: the resolved configuration.
        text: the corpus's fingerprint, so that a changed file is a different run.
        precision: the precision in use, where the configuration may have "auto".
    """
    kept = canonical({key: value for key, value in config.items() if key not in NOT_IN_IDENTITY})
    return sha256(json.dumps({**kept, "text": text, "precision": precision}, sort_keys=True).encode()).hexdigest()[:8]


def canonical(value: Any) -> Any:
    """Canonical form of a value: 10000.0 becomes 10000, and NaN, which is not equal to itself, text."""
    if isinstance(value, Mapping):
        return {key: canonical(item) for key, item in value.items()}
    if isinstance(value, list):
        return [canonical(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value
