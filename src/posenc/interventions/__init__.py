"""Interventions: add a property to a scheme or remove one, to see what makes it converge faster.

Each wraps a position scheme and is itself one, so interventions combine with any scheme and with each other.
"""

from posenc.interventions.base import Intervention, nothing
from posenc.interventions.embeddings import FollowingAmplitude, Smear
from posenc.interventions.layers import EncodingInQK, KeyShift, OnlyLayers
from posenc.interventions.offsets import OffsetBias, OffsetMask
