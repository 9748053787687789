"""Position schemes: the variable under study. Three doors (`base.py`), a room for each."""

from posenc.positions.additive import Learned, Sinusoidal
from posenc.positions.base import PositionScheme
from posenc.positions.bias import T5, Alibi
from posenc.positions.rotary import Bounded, Rotary, Xpos, permute_layout

__all__ = ["T5", "Alibi", "Bounded", "Learned", "PositionScheme", "Rotary", "Sinusoidal", "Xpos", "permute_layout"]
