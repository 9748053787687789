"""Training objectives: what is predicted from a window of text, and the loss."""

from dataclasses import dataclass
from typing import Annotated, Protocol

import torch
import torch.nn.functional as F
from annotated_types import Gt, Lt
from torch import Tensor

from posenc.bounds import Fraction
from posenc.data.tokenizers import Tokenizer
from posenc.errors import UserError
from posenc.model import Transformer
from posenc.model.cross_entropy import LARGE_VOCAB, summed_cross_entropy
from posenc.objectives.ngram import Ids, bigram_loss, token_frequencies

IGNORE_INDEX = -100
"""The target of a token that is not predicted."""


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


class Objective(Protocol):
    """The interface of objectives.

    Attributes:
        causal: whether a token attends only to itself and earlier tokens.
        lookahead: tokens in a window beyond the context length.
        noise_per_token: random numbers needed for each token of a window.
        likelihood: whether the losses sum to the likelihood of the text, so that bits per byte are defined.
        vocab_size: the model's vocabulary size, which may exceed the tokenizer's.
        prompt: for the sample at the end of a run.
    """

    causal: bool
    lookahead: int
    noise_per_token: int
    likelihood: bool
    vocab_size: int
    prompt: str

    def inputs_and_targets(self, window: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """window (B, T + lookahead), noise (B, T + lookahead, noise_per_token) -> inputs and targets, (B, T) each.

        The noise, uniform in [0, 1), is the only source of randomness, and the same for every scheme. Every window has
        the same number of targets, so that several devices can average their losses.
        """
        ...

    def ngram_baseline(self, train: Ids, validation: tuple[Tensor, Tensor]) -> dict[str, float | None]:
        """The validation loss at which a network without positions plateaus, an n-gram model's.

        Its key, `bigram_loss` or `unigram_loss`, is that of a run's summary, from which reports read it.

        Args:
            train: token ids of the training split, (tokens,).
            validation: inputs and targets of the validation windows, (windows, T) each.
        """
        ...

    def sample(self, model: Transformer, tokenizer: Tokenizer, prompt: str, context: int, sampling: Sampling) -> str:
        """Complete a prompt with a trained model."""
        ...


def loss(logits: Tensor, targets: Tensor) -> Tensor:
    """logits (B, T, V), targets (B, T), may contain IGNORE_INDEX -> mean nats per target, float32, shape ()."""
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), ignore_index=IGNORE_INDEX)


def loss_of(model: Transformer, inputs: Tensor, targets: Tensor) -> Tensor:
    """The loss of a model on inputs and targets, (B, T) each; computed in chunks if the vocabulary is large."""
    if model.output.out_features < LARGE_VOCAB:
        return loss(model(inputs), targets)
    summed = summed_cross_entropy(model.hidden(inputs), model.output.weight, targets, IGNORE_INDEX)
    return summed / (targets != IGNORE_INDEX).sum()


class Causal:
    """Predict every token from the preceding ones (GPT).

    Args:
        vocab_size: of the tokenizer.
    """

    causal = True
    lookahead = 1
    noise_per_token = 0
    likelihood = True
    prompt = "In the beginning"

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size

    def inputs_and_targets(self, window: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        """All but the last token, and all but the first."""
        return window[:, :-1], window[:, 1:]

    def ngram_baseline(self, train: Ids, validation: tuple[Tensor, Tensor]) -> dict[str, float | None]:
        """The bigram loss: without positions the model still knows the current token."""
        inputs, targets = validation
        windows = torch.cat([inputs, targets[:, -1:]], dim=1)
        return {"bigram_loss": bigram_loss(train, windows.numpy(), self.vocab_size)}

    @torch.no_grad()
    def sample(self, model: Transformer, tokenizer: Tokenizer, prompt: str, context: int, sampling: Sampling) -> str:
        """The prompt, continued by sampled tokens; the model sees the last `context` tokens.

        There is no KV cache: all visible tokens are processed again for each new one, so that every scheme and
        attention op runs as in training. For short texts on a GPU this takes no longer, since kernel launches dominate.
        """
        device = model.embedding.weight.device
        generator = torch.Generator().manual_seed(sampling.seed)
        tokens = _ids(tokenizer, prompt)
        model.eval()
        for _ in range(sampling.tokens):
            last = model.hidden(torch.tensor([tokens[-context:]], device=device))[:, -1]
            probs = torch.softmax(model.output(last)[0].float() / sampling.temperature, dim=-1).cpu()
            tokens.append(int(torch.multinomial(probs, 1, generator=generator)))
        return tokenizer.decode(tokens)


class Masked:
    """Masked language modelling (BERT; Devlin et al. 2019, section 3.1).

    As in BERT's code, every window has the same number of targets, so that the mean loss does not depend on the
    number of devices. The mask token's id follows those of the tokenizer.

    Args:
        vocab_size: of the tokenizer.
        mlm_probability: fraction of a window's tokens to predict.
        mask_replace_prob: fraction of those replaced by the mask token.
        random_replace_prob: fraction of those replaced by a random token; the rest are left unchanged.

    Raises:
        ValueError: if mask_replace_prob and random_replace_prob sum to more than 1.
    """

    causal = False
    lookahead = 0
    noise_per_token = 2
    likelihood = False
    prompt = "In the beg_nning God cr_ated the heav_n and the e_rth."

    def __init__(
        self,
        vocab_size: int,
        mlm_probability: Annotated[float, Gt(0), Lt(1)] = 0.15,
        mask_replace_prob: Fraction = 0.8,
        random_replace_prob: Fraction = 0.1,
    ) -> None:
        if not 0 <= random_replace_prob <= round(1 - mask_replace_prob, 9):
            raise ValueError(
                f"random_replace_prob={random_replace_prob} must be between 0 and {1 - mask_replace_prob:g}, "
                f"since mask_replace_prob={mask_replace_prob}"
            )
        self.mask_token = vocab_size
        self.vocab_size = vocab_size + 1
        self.mlm_probability = mlm_probability
        self.mask_replace_prob, self.random_replace_prob = mask_replace_prob, random_replace_prob

    def inputs_and_targets(self, window: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """The window with some tokens replaced, and those tokens; the noise selects them and their replacements."""
        order, action = noise.unbind(-1)
        count = max(1, round(self.mlm_probability * window.shape[-1]))
        indices = order.argsort(dim=-1, stable=True)[:, :count]
        chosen = torch.zeros_like(window, dtype=torch.bool).scatter_(-1, indices, True)
        # For a random token, `action` is uniform between mask_replace_prob and that plus random_replace_prob; rescaled,
        # it gives the token.
        random = (action - self.mask_replace_prob) / max(self.random_replace_prob, 1e-9) * self.mask_token
        random = random.long().clamp(0, self.mask_token - 1)
        replaced = torch.where(action < self.mask_replace_prob + self.random_replace_prob, random, window)
        replaced = torch.where(action < self.mask_replace_prob, self.mask_token, replaced)
        return torch.where(chosen, replaced, window), window.masked_fill(~chosen, IGNORE_INDEX)

    def ngram_baseline(self, train: Ids, validation: tuple[Tensor, Tensor]) -> dict[str, float | None]:
        """Token frequencies for a masked token; for others, the posterior that they were left unchanged (Bayes)."""
        inputs, targets = (part[validation[1] != IGNORE_INDEX] for part in validation)
        frequency = torch.from_numpy(token_frequencies(train, self.mask_token))
        kept = 1 - self.mask_replace_prob - self.random_replace_prob
        random = self.random_replace_prob / self.mask_token
        seen = inputs.clamp(max=self.mask_token - 1)
        ratio = (kept * (seen == targets) + random) / (kept * frequency[seen] + random)
        likelihood = frequency[targets] * torch.where(inputs == self.mask_token, 1.0, ratio)
        return {"unigram_loss": -likelihood.log().mean().item()}

    @torch.no_grad()
    def sample(
        self,
        model: Transformer,
        tokenizer: Tokenizer,
        prompt: str,
        context: int,
        sampling: Sampling,  # noqa: ARG002
    ) -> str:
        """The prompt with each _ replaced by the likeliest token, `context` tokens at a time.

        Raises:
            UserError: if there is no _ in the prompt.
        """
        if "_" not in prompt:
            raise UserError(f"--prompt={prompt} must contain a _ for each token that the masked model is to predict")
        pieces = [_ids(tokenizer, part) for part in prompt.split("_")]
        tokens = [token for piece in pieces for token in (self.mask_token, *piece)][1:]
        model.eval()
        for first in range(0, len(tokens), context):
            inputs = tokens[first : first + context]
            logits = model(torch.tensor([inputs], device=model.embedding.weight.device))[0, :, : self.mask_token]
            filled = zip(inputs, logits.argmax(-1).tolist(), strict=True)
            tokens[first : first + context] = [new if old == self.mask_token else old for old, new in filled]
        return tokenizer.decode(tokens)


def _ids(tokenizer: Tokenizer, text: str) -> list[int]:
    return [int(token) for chunk in tokenizer.encode([text.encode()]) for token in chunk]
