"""Files of a run directory, which may be damaged or a stranger's: read with limits, as plain data, or refused."""

import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from posenc.errors import UserError

MOST_BYTES = 2**20
"""Of a configuration, a summary or notes."""

DEEPEST = 50
"""Mappings and lists inside one another."""


def read_text(file: Path, limit: int = MOST_BYTES) -> str:
    """A text file's content.

    Raises:
        UserError: if it is missing, no plain file, larger than `limit` bytes, or not UTF-8.
    """
    try:
        # Opening a named pipe to read it would otherwise wait for somebody to write.
        with open(os.open(file, os.O_RDONLY | os.O_NONBLOCK), "rb") as stream:
            status = os.fstat(stream.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise UserError(f"{file} cannot be read: it is no plain file")
            if status.st_size > limit:
                raise UserError(f"{file} cannot be read: it has {status.st_size:,} bytes, where {limit:,} are allowed")
            return stream.read(limit).decode()
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{file} cannot be read: it is not UTF-8 text") from error


def read_json(file: Path) -> Any:
    """
    Raises:
        UserError: if it cannot be read.
    """
    return _parsed(file, json.loads)


def read_mapping(file: Path) -> dict[str, Any]:
    """A .yaml or .json that holds one mapping; nothing in it is looked up on this machine.

    Raises:
        UserError: if it cannot be read, or holds anything else.
    """
    held = read_json(file) if file.suffix == ".json" else _parsed(file, _plain_yaml)
    if not isinstance(held, dict) or not all(isinstance(key, str) for key in held):
        raise UserError(f"{file} cannot be read: it holds no mapping")
    return held


def check_types(file: Path, held: Any, kind: Any) -> None:
    """Check what was read from a file.

    Args:
        held: plain data.
        kind: its type, such as a TypedDict; keys beside its own are let be.

    Raises:
        UserError: naming the first key that is missing, or holds something else.
    """
    from pydantic import TypeAdapter, ValidationError

    try:
        TypeAdapter(kind).validate_python(held)
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"])) or "its content"
        raise UserError(f"{file} cannot be read: {where} is missing, or not what this program writes") from error


def _parsed(file: Path, parse: Callable[[str], Any]) -> Any:
    text = read_text(file)
    try:
        return parse(text)
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise UserError(f"{file} cannot be read: {' '.join(str(error).split())[:200]}") from error


def _plain_yaml(text: str) -> Any:
    """YAML without aliases, by which a few bytes may stand for gigabytes, and not nested for ever."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    depth = 0
    for event in yaml.parse(text, loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST or isinstance(event, yaml.AliasEvent):
            raise ValueError("it has aliases, or is nested too deeply")
    return yaml.load(text, loader)


def leaves(tree: Mapping[str, Any], within: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of nested mappings under its dotted key, such as optim.lr."""
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{within}{key}.")
        else:
            yield f"{within}{key}", value
