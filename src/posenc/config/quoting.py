"""Overrides written so that Hydra reads them as they are meant."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from hydra.core.override_parser.types import Quote, QuotedString

STRANGE_PATH = re.compile(r"^([\w.+/]+=)(/[^,'\"]*[^\w./:*?@%+,'\"-][^,'\"]*)$", re.ASCII)
"""An absolute path that Hydra would not read without quotes."""

STRANGE_RELATIVE_PATH = re.compile(
    r"^((?:data\.path|runs|cache|fork_from)=)([^,'\"${[]*[^\w./:*?@%+,'\"${[-][^,'\"${[]*)$", re.ASCII
)
"""Likewise a relative one, of a key whose value is a path."""


def flags_first(arguments: Sequence[str]) -> list[str]:
    """The command line with options such as -m before the overrides, as Hydra requires, and these `quoted`."""
    return sorted(
        map(quoted, arguments), key=lambda one: one.startswith("~") or ("=" in one and not one.startswith("-"))
    )


def quoted(override: str) -> str:
    """An override with ~/ expanded, and a path with blanks, accents and the like in quotes, for Hydra."""
    home = os.path.expanduser("~")
    at_home = re.sub(r"^([\w.+/]+=)~(?=/)", lambda key: f"{key[1]}{home}", override)
    return STRANGE_RELATIVE_PATH.sub(r"\1'\2'", STRANGE_PATH.sub(r"\1'\2'", at_home))


def folder_override(key: str, folder: Path) -> str:
    """An override whose value is a path with any characters."""
    return f"{key}={QuotedString(str(folder), Quote.single).with_quotes()}"
