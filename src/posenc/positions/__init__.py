"""Position schemes, the variable under study. `base.py` defines their hooks; each hook has its own file."""

from posenc.positions.additive import Learned, Sinusoidal
from posenc.positions.base import PositionScheme
from posenc.positions.bias import T5, Alibi, Fire, Kerple
from posenc.positions.content import Contextual, Forgetting
from posenc.positions.polar import Polar
from posenc.positions.rotary import Bounded, NopeHybrid, Rotary, TrainedFrequencies, Truncated, Xpos, permute_layout
