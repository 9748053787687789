"""Position schemes: the variable under study. Three doors (`base.py`), a room for each."""

from posenc.positions.absolute import Learned, Sinusoidal
from posenc.positions.base import PositionScheme
from posenc.positions.rotary import Rotary

__all__ = ["Learned", "PositionScheme", "Rotary", "Sinusoidal"]
