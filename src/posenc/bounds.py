"""Bounds for constructor signatures, such as `base: Positive`; the configuration is validated against them.

Others are written inline: `Annotated[int, Gt(257)]`. They are not checked when a class is called directly.
"""

from typing import Annotated

from annotated_types import Ge, Gt, Le, Lt

PositiveInt = Annotated[int, Ge(1)]
NonNegativeInt = Annotated[int, Ge(0)]
Positive = Annotated[float, Gt(0)]
NonNegative = Annotated[float, Ge(0)]
Fraction = Annotated[float, Ge(0), Le(1)]
Seed = Annotated[int, Ge(0), Lt(2**32)]  # torch's CPU generator uses no more bits: others would draw equal weights
