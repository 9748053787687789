"""The transformer that every scheme shares: plain torch, no Lightning, no configuration objects."""

from posenc.model.transformer import Transformer

__all__ = ["Transformer"]
