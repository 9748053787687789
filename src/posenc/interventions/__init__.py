"""Interventions: what a scheme has is taken away, or given to another, to see what makes it converge faster.

Each wraps a position scheme and is one itself, so that it goes with any scheme, and with others of its kind.
"""

from posenc.interventions.base import Intervention
from posenc.interventions.embeddings import FollowingAmplitude, Smear
from posenc.interventions.layers import EncodingInQK, KeyShift, OnlyLayers
from posenc.interventions.offsets import OffsetBias, OffsetMask

__all__ = [
    "EncodingInQK",
    "FollowingAmplitude",
    "Intervention",
    "KeyShift",
    "OffsetBias",
    "OffsetMask",
    "OnlyLayers",
    "Smear",
]
