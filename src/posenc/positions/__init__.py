"""Position schemes: the variable under study. Their doors are in `base.py`, with a file for each."""

from posenc.positions.additive import Learned, Sinusoidal
from posenc.positions.base import PositionScheme
from posenc.positions.bias import T5, Alibi
from posenc.positions.content import Forgetting
from posenc.positions.rotary import Bounded, NopeHybrid, Rotary, Xpos, permute_layout

__all__ = [
    "T5",
    "Alibi",
    "Bounded",
    "Forgetting",
    "Learned",
    "NopeHybrid",
    "PositionScheme",
    "Rotary",
    "Sinusoidal",
    "Xpos",
    "permute_layout",
]
