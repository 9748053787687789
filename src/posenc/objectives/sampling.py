"""Text from a trained model."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from posenc.errors import UserError

if TYPE_CHECKING:
    from posenc.data.tokenizers import Tokenizer
    from posenc.model import Transformer


@dataclass(frozen=True)
class Sampling:
    """How text is drawn from a model.

    Attributes:
        tokens: how many.
        temperature: above 0; lower is safer.
        seed: another seed, another text.
    """

    tokens: int = 200
    temperature: float = 0.8
    seed: int = 0


@torch.no_grad()
def generate(model: "Transformer", tokenizer: "Tokenizer", prompt: str, context: int, sampling: Sampling) -> str:
    """The prompt and sampled tokens after it; the model sees the last `context` of them at a time.

    All that it sees is read again for each token, on the model's device. So every scheme and attention samples as it
    was trained, and on a GPU a short text takes no longer than with kept keys and values: what takes time there is to
    start the kernels of a layer, and there are as many.
    """
    device = model.embedding.weight.device
    generator = torch.Generator().manual_seed(sampling.seed)
    written = [int(token) for chunk in tokenizer.encode([prompt.encode()]) for token in chunk]
    model.eval()
    for _ in range(sampling.tokens):
        last = model.hidden(torch.tensor([written[-context:]], device=device))[:, -1]
        chances = torch.softmax(model.output(last)[0].float() / sampling.temperature, dim=-1).cpu()
        written.append(int(torch.multinomial(chances, 1, generator=generator)))
    return tokenizer.decode(written)


@torch.no_grad()
def fill(model: "Transformer", tokenizer: "Tokenizer", prompt: str, blank: int, context: int) -> str:
    """The prompt with each _ filled by the token that a masked model holds likeliest; it sees `context` at a time.

    Raises:
        UserError: if there is no _ in the prompt.
    """
    if "_" not in prompt:
        raise UserError(f"a masked model fills blanks: --prompt={prompt} must hold a _ where it is to fill one")
    pieces = [[int(token) for chunk in tokenizer.encode([part.encode()]) for token in chunk] if part else []
              for part in prompt.split("_")]  # fmt: skip
    written = [token for piece in pieces for token in (blank, *piece)][1:]
    model.eval()
    for first in range(0, len(written), context):
        seen = written[first : first + context]
        guesses = model(torch.tensor([seen], device=model.embedding.weight.device))[0, :, :blank].argmax(-1).tolist()
        filled = [guess if token == blank else token for token, guess in zip(seen, guesses, strict=True)]
        written[first : first + context] = filled
    return tokenizer.decode(written)
