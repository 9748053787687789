"""The colour and dash that a scheme has in every figure."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Look:
    """Colour and dash of a scheme: told apart by colour-blind people (Okabe and Ito 2008) and in grey."""

    colour: str
    dash: str

    @property
    def on_a_page(self) -> dict[str, str]:
        """For SVG on a web page, whose paper may be dark."""
        dark = _ON_DARK.get(self.colour, self.colour)
        return {"colour": f"light-dark({self.colour}, {dark})", "dash": _DASHES[self.dash]}


LOOKS: Mapping[str, Look] = {
    "none": Look("#767676", "dot"),
    "learned": Look("#009E73", "dashdot"),
    "sinusoidal": Look("#0072B2", "dash"),
    "sinusoidal_matched": Look("#56B4E9", "dash"),
    "rope": Look("#D55E00", "solid"),
    "alibi": Look("#CC79A7", "solid"),
    "t5": Look("#CC79A7", "dash"),
    "xpos": Look("#E69F00", "solid"),
    "rope_partial": Look("#E69F00", "dash"),
    "rope_bounded": Look("#E69F00", "dot"),
}
_ON_DARK = {"#0072B2": "#4AA3E0", "#000000": "#F0F0F0", "#767676": "#A8A8A8"}
"""What cannot be seen on dark paper, and its lighter kin."""

_DASHES = {"solid": "", "dash": "7 3", "dot": "2 3", "dashdot": "8 3 2 3"}
_OTHERS = [Look(colour, dash) for dash in ("solid", "dash", "dot", "dashdot") for colour in ("#56B4E9", "#000000")]


def looks(schemes: Sequence[str]) -> dict[str, Look]:
    """The look of each scheme: always the same for those that come with the project, from a list for the rest."""
    others = itertools.cycle(_OTHERS)
    return {scheme: LOOKS.get(scheme) or next(others) for scheme in sorted(set(schemes))}
