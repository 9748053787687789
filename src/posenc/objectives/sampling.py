"""Sampling from a trained model."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from posenc.errors import UserError

if TYPE_CHECKING:
    from posenc.data.tokenizers import Tokenizer
    from posenc.model import Transformer


@dataclass(frozen=True)
class Sampling:
    """Sampling parameters.

    Attributes:
        tokens: number of tokens to generate.
        temperature: above 0.
        seed: of the sampled tokens.
    """

    tokens: int = 200
    temperature: float = 0.8
    seed: int = 0


@torch.no_grad()
def generate(model: "Transformer", tokenizer: "Tokenizer", prompt: str, context: int, sampling: Sampling) -> str:
    """The prompt, continued by sampled tokens; the model sees the last `context` tokens.

    There is no KV cache: all visible tokens are processed again for each new one, so that every scheme and attention op
    runs as in training. For short texts on a GPU this takes no longer, since kernel launches dominate.
    """
    device = model.embedding.weight.device
    generator = torch.Generator().manual_seed(sampling.seed)
    tokens = [int(token) for chunk in tokenizer.encode([prompt.encode()]) for token in chunk]
    model.eval()
    for _ in range(sampling.tokens):
        last = model.hidden(torch.tensor([tokens[-context:]], device=device))[:, -1]
        probs = torch.softmax(model.output(last)[0].float() / sampling.temperature, dim=-1).cpu()
        tokens.append(int(torch.multinomial(probs, 1, generator=generator)))
    return tokenizer.decode(tokens)


@torch.no_grad()
def fill_mask(model: "Transformer", tokenizer: "Tokenizer", prompt: str, mask_token: int, context: int) -> str:
    """The prompt with each _ replaced by the likeliest token of a masked model, `context` tokens at a time.

    Raises:
        UserError: if there is no _ in the prompt.
    """
    if "_" not in prompt:
        raise UserError(f"--prompt={prompt} must contain a _ for each token that the masked model is to predict")
    pieces = [[int(token) for chunk in tokenizer.encode([part.encode()]) for token in chunk] if part else []
              for part in prompt.split("_")]  # fmt: skip
    tokens = [token for piece in pieces for token in (mask_token, *piece)][1:]
    model.eval()
    for first in range(0, len(tokens), context):
        inputs = tokens[first : first + context]
        likeliest = model(torch.tensor([inputs], device=model.embedding.weight.device))[0, :, :mask_token].argmax(-1)
        filled = [new if old == mask_token else old for old, new in zip(inputs, likeliest.tolist(), strict=True)]
        tokens[first : first + context] = filled
    return tokenizer.decode(tokens)
