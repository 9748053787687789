"""What came of trying a fault."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Outcome:
    """One fault, tried several times.

    Attributes:
        fault: in words.
        tried: how often.
        survived: how often the promise held.
        lost: what it cost, in words, or what went wrong.
    """

    fault: str
    tried: int
    survived: int
    lost: str
