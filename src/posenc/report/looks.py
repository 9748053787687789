"""Colour and dash pattern of each scheme, in all figures."""

import itertools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Look:
    """Colour and dash of a scheme: distinguishable in greyscale and for colour-blind people (Okabe and Ito 2008)."""

    colour: str
    dash: str

    @property
    def on_a_page(self) -> dict[str, str]:
        """For SVG on a web page, in light and dark mode."""
        dark = _ON_DARK.get(self.colour, self.colour)
        return {"colour": f"light-dark({self.colour}, {dark})", "dash": _DASHES[self.dash]}

    @property
    def linestyle(self) -> Any:
        """For matplotlib."""
        return LINESTYLES[self.dash]


LINESTYLES: dict[str, Any] = {
    "solid": "-", "dash": (0, (6, 2)), "dot": (0, (1.2, 1.6)), "dashdot": (0, (6, 2, 1.2, 2))
}  # fmt: skip
"""matplotlib's line styles, by the dash of a `Look`."""


_SCHEMES = {
    "#767676": {"dot": "none"},
    "#0072B2": {"dash": "sinusoidal"},
    "#56B4E9": {"solid": "sinusoidal_raw", "dash": "sinusoidal_matched", "dot": "sinusoidal_vaswani"},
    "#009E73": {"solid": "fox", "dash": "cope", "dot": "pope", "dashdot": "learned"},
    "#D55E00": {"solid": "rope", "dash": "rope_truncated", "dot": "rope_trained", "dashdot": "rope_half_truncated"},
    "#E69F00": {"solid": "xpos", "dash": "rope_partial", "dot": "rope_bounded", "dashdot": "nope_hybrid"},
    "#CC79A7": {"solid": "alibi", "dash": "t5", "dot": "kerple", "dashdot": "fire"},
}
LOOKS = {scheme: Look(colour, dash) for colour, schemes in _SCHEMES.items() for dash, scheme in schemes.items()}

NAMES = {
    "none": "no positions",
    "learned": "learned positions",
    "sinusoidal": "sinusoid",
    "rope": "RoPE",
    "rope_partial": "RoPE on a quarter of the channels",
    "nope_hybrid": "RoPE in three layers of four",
    "alibi": "ALiBi",
    "t5": "T5",
}
"""Names of schemes as the text has them."""

_ON_DARK = {
    "#0072B2": "#4AA3E0", "#000000": "#F0F0F0", "#767676": "#A8A8A8", "#882255": "#D879A8", "#332288": "#9C8FE0",
    "#7A7A2B": "#C6C65A",
}  # fmt: skip
"""Replacements in dark mode."""

_DASHES = {"solid": "", "dash": "7 3", "dot": "2 3", "dashdot": "8 3 2 3"}
_OTHERS = [Look(colour, dash) for colour in ("#000000", "#882255", "#332288", "#7A7A2B") for dash in _DASHES]


def looks(schemes: Iterable[str]) -> dict[str, Look]:
    """The look of each scheme: fixed for those in LOOKS, assigned in order for others."""
    others = itertools.cycle(_OTHERS)
    return {scheme: LOOKS.get(scheme) or next(others) for scheme in sorted(set(schemes))}


def titled(name: str) -> str:
    """A name with its schemes as the text has them: RoPE for rope."""
    return re.sub(r"\w+", lambda word: NAMES.get(word[0], word[0]), name)
