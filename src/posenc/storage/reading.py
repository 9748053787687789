"""Reading the files of a run directory, which may be damaged or untrusted: with limits, and as plain data only."""

import functools
import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any

import yaml

from posenc.errors import UserError

MAX_BYTES = 2**20
"""Maximum size of a configuration, summary or sample."""

MAX_DEPTH = 50
"""Maximum nesting of mappings and lists."""


@contextmanager
def open_regular(file: Path) -> Iterator[BufferedReader]:
    """Open a file for reading, without waiting for a named pipe.

    Raises:
        UserError: if it cannot be opened or read, or is not a regular file.
    """
    try:
        with open(file, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NONBLOCK)) as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise UserError(f"{file} cannot be read: it is not a regular file")
            yield stream
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}") from error


def read_text(file: Path, limit: int = MAX_BYTES) -> str:
    """The contents of a text file.

    Raises:
        UserError: if it is missing, not a regular file, larger than `limit` bytes, or not UTF-8.
    """
    try:
        return read_bytes(file, limit).decode()
    except UnicodeDecodeError as error:
        raise UserError(f"{file} cannot be read: it is not UTF-8 text") from error


def read_bytes(file: Path, limit: int) -> bytes:
    """The contents of a file.

    Raises:
        UserError: if it is missing, not a regular file, or larger than `limit` bytes.
    """
    with open_regular(file) as stream:
        size = os.fstat(stream.fileno()).st_size
        if size > limit:
            raise UserError(f"{file} cannot be read: {size:,} bytes, at most {limit:,} are allowed")
        return stream.read(limit)


def read_json(file: Path) -> Any:
    """The content of a JSON file.

    Raises:
        UserError: if it cannot be read, or is not JSON.
    """
    return _parsed(file, functools.partial(json.loads, object_pairs_hook=_unique))


def read_mapping(file: Path) -> dict[str, Any]:
    """Read a .yaml or .json file that contains a mapping; interpolations are not resolved.

    Raises:
        UserError: if it cannot be read, or contains anything else.
    """
    content = read_json(file) if file.suffix == ".json" else _parsed(file, _plain_yaml)
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise UserError(f"{file} cannot be read: it is not a mapping")
    return content


def check_types(source: Path | str, content: Any, expected: Any) -> Any:
    """Plain data of a source, such as a file, as a type: a TypedDict or a dataclass. Other keys are ignored.

    Raises:
        UserError: names the first key that is missing or has the wrong type.
    """
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(expected).validate_python(content)
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"])) or "its content"
        raise UserError(f"{source} cannot be read: {where} is missing or invalid") from error


def _parsed(file: Path, parse: Callable[[str], Any]) -> Any:
    text = read_text(file)
    try:
        content = parse(text)
        _check_integers(content)
        return content
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise UserError(f"{file} cannot be read: {' '.join(str(error).split())[:200]}") from error


def _check_integers(content: Any) -> None:
    """Refuse integers of more than 64 bits, of which arithmetic and even printing may fail."""
    if isinstance(content, int) and content.bit_length() > 64:
        raise ValueError("it has an integer of more than 64 bits")
    if isinstance(content, Mapping):
        content = (*content.keys(), *content.values())
    if isinstance(content, list | tuple | set):
        for item in content:
            _check_integers(item)


def _unique(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    """A mapping without duplicate keys, of which parsers would silently keep the last."""
    mapping: dict[Any, Any] = {}
    for key, value in pairs:
        if key in mapping:
            raise ValueError(f"duplicate key {key}")
        mapping[key] = value
    return mapping


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Refuses duplicate keys."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        _unique((str(key.value), None) for key, _ in node.value)
        return super().construct_mapping(node, deep)


def _plain_yaml(text: str) -> Any:
    """Parse YAML without aliases, which could expand to gigabytes, and with limited nesting."""
    depth, refused = 0, ValueError("it has aliases, or is nested too deeply")
    try:
        for event in yaml.parse(text, _Loader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH or isinstance(event, yaml.AliasEvent):
                raise refused
    except yaml.MarkedYAMLError as error:  # PyYAML 6.0.4 looks ahead, and has a limit of its own
        raise refused if "nesting depth" in str(error) else error from None
    return yaml.load(text, _Loader)


def leaves(tree: Mapping[str, Any], within: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of nested mappings with its dotted key, such as optim.lr."""
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{within}{key}.")
        else:
            yield f"{within}{key}", value
