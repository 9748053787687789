"""The configuration files: their folder, the choices in each group, and their descriptions."""

import re
from pathlib import Path

_PACKAGED = Path(__file__).parents[1] / "conf"
_CHECKOUT = Path(__file__).parents[3] / "conf"

CONF = _PACKAGED if _PACKAGED.is_dir() else _CHECKOUT
"""Their folder: inside the installed package, or next to train.py in a checkout."""


def choices_in(conf: Path) -> dict[str, set[str]]:
    """The choices of each group in a folder of configuration files."""
    groups: dict[str, set[str]] = {}
    for file in conf.glob("*/**/*.yaml"):
        groups.setdefault(str(file.parent.relative_to(conf)), set()).add(file.stem)
    return groups


def description(file: Path) -> str:
    """The first sentence of a configuration file's header comment; empty if it has none."""
    comment = re.match(r"(?:# @package.*\n)?((?:# .+\n)+)", file.read_text())
    text = " ".join(line.removeprefix("# ") for line in comment[1].splitlines()) if comment else ""
    return re.split(r"(?<!al)\.\s+(?=[A-Z0-9])", text)[0].removesuffix(".")
