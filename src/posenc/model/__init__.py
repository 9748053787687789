"""The transformer shared by all schemes: plain torch, without Lightning or configuration objects."""

from posenc.model.attention import Softmax
from posenc.model.block import Family
from posenc.model.linear_attention import Linear
from posenc.model.transformer import Transformer
