"""Bounds for constructor signatures, such as `base: Positive`; the configuration is validated against them.

Others are written inline: `Annotated[int, Gt(257)]`. They are not checked when a class is called directly; position
schemes call `at_least_one` and `positive`.
"""

import math
from typing import Annotated

from annotated_types import Ge, Gt, Le, Lt

PositiveInt = Annotated[int, Ge(1)]
NonNegativeInt = Annotated[int, Ge(0)]
Distance = Annotated[int, Ge(1), Le(2**20)]  # in tokens; angle tables have as many positions
Positive = Annotated[float, Gt(0)]
NonNegative = Annotated[float, Ge(0)]
Fraction = Annotated[float, Ge(0), Le(1)]
Seed = Annotated[int, Ge(0), Lt(2**32)]  # torch's CPU generator uses no more bits: others would draw equal weights


def at_least_one(**values: int) -> None:
    """Check the sizes of a class that may be called directly.

    Raises:
        ValueError: for the first value below 1.
    """
    for name, value in values.items():
        if value < 1:
            raise ValueError(f"{name}={value} must be at least 1")


def positive(**values: float) -> None:
    """Likewise, for real numbers.

    Raises:
        ValueError: for the first value that is not a positive finite number.
    """
    for name, value in values.items():
        if not 0 < value < math.inf:
            raise ValueError(f"{name}={value} must be a positive number")
