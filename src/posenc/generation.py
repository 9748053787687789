"""Text from a trained model."""

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from posenc.data.tokens import Tokenizer
    from posenc.model import Transformer


@torch.no_grad()
def generate(
    model: "Transformer",
    tokenizer: "Tokenizer",
    prompt: str,
    tokens: int,
    context: int,
    temperature: float = 0.8,
    seed: int = 0,
) -> str:
    """The prompt and `tokens` sampled tokens after it; the model sees the last `context` of them at a time."""
    generator = torch.Generator().manual_seed(seed)
    written = [int(token) for chunk in tokenizer.encode([prompt.encode()]) for token in chunk]
    model.eval()
    for _ in range(tokens):
        logits = model(torch.tensor([written[-context:]]))[0, -1].float()
        chances = torch.softmax(logits / temperature, dim=-1)
        written.append(int(torch.multinomial(chances, 1, generator=generator)))
    return tokenizer.decode(written)
