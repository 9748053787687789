"""Bounds that a signature states, such as `base: Positive`; the configuration is held to them before anything is built.

Others are written in place: `Annotated[int, Gt(257)]`. A class that is called directly does not look at them.
"""

from typing import Annotated

from annotated_types import Ge, Gt, Le

PositiveInt = Annotated[int, Ge(1)]
Positive = Annotated[float, Gt(0)]
NonNegative = Annotated[float, Ge(0)]
Fraction = Annotated[float, Ge(0), Le(1)]
