"""What is predicted from a window of text, and the loss of the prediction.

An objective says what attention it needs (`causal`), how many tokens a window holds beyond the context (`lookahead`),
how many tokens the model must know (`vocab_size`), and whether its losses add up to the text's likelihood
(`likelihood`), so that bits per byte mean something.
"""

from typing import TYPE_CHECKING, Annotated, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from annotated_types import Gt, Lt
from numpy.typing import NDArray
from torch import Tensor

from posenc.bounds import Fraction
from posenc.model.cross_entropy import LARGE, summed_cross_entropy
from posenc.objectives.ngram import bigram_loss, frequencies
from posenc.objectives.sampling import Sampling, fill, generate

if TYPE_CHECKING:
    from posenc.data.tokenizers import Tokenizer
    from posenc.model import Transformer

Ids = NDArray[np.integer]

UNSEEN = -100
"""The target of a token that is not to be predicted."""


class Objective(Protocol):
    """What a training step asks of an objective.

    Attributes:
        causal: whether a token sees only itself and what stands before it.
        lookahead: tokens that a window holds beyond the context length.
        noise_per_token: random numbers that it needs for each token of a window.
        likelihood: whether the losses of all tokens add up to the likelihood of the text.
        vocab_size: the tokens the model reads, which may be more than the tokenizer's.
        prompt: what a finished run shows its model.
    """

    causal: bool
    lookahead: int
    noise_per_token: int
    likelihood: bool
    vocab_size: int
    prompt: str

    def inputs_and_targets(self, window: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """window (B, T + lookahead), noise (B, T + lookahead, noise_per_token) -> inputs and targets, (B, T) each.

        The noise, in [0, 1), decides all that is left to chance, and it is the same for every scheme. Every window has
        as many tokens to predict, so that several devices can average their losses.
        """
        ...

    def ngram_baseline(self, train: Ids, windows: Tensor, validation: tuple[Tensor, Tensor]) -> dict[str, float | None]:
        """The validation loss of the n-gram model that a network without positions comes to, under its name.

        Args:
            train: token ids of the training split, (tokens,).
            windows: validation windows (windows, T + lookahead).
            validation: inputs and targets made of them, (windows, T) each.
        """
        ...

    def sample(
        self, model: "Transformer", tokenizer: "Tokenizer", prompt: str, context: int, sampling: Sampling
    ) -> str:
        """What a trained model makes of a prompt."""
        ...


def loss(logits: Tensor, targets: Tensor) -> Tensor:
    """logits (B, T, V), targets (B, T), some UNSEEN -> mean nats per predicted token, float32, shape ()."""
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), ignore_index=UNSEEN)


def loss_of(model: "Transformer", inputs: Tensor, targets: Tensor) -> Tensor:
    """The loss of a model on inputs and targets, (B, T) each; with a large vocabulary, its logits come in chunks."""
    if model.output.out_features < LARGE:
        return loss(model(inputs), targets)
    summed = summed_cross_entropy(model.hidden(inputs), model.output.weight, targets, UNSEEN)
    return summed / (targets != UNSEEN).sum()


class Causal:
    """Predict every token from those before it (GPT).

    Args:
        vocab_size: the tokenizer's tokens.
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

    def ngram_baseline(
        self,
        train: Ids,
        windows: Tensor,
        validation: tuple[Tensor, Tensor],  # noqa: ARG002
    ) -> dict[str, float | None]:
        """The present token is known, and with it what mostly follows: the bigram table."""
        return {"bigram_loss": bigram_loss(train, windows.numpy(), self.vocab_size)}

    def sample(
        self, model: "Transformer", tokenizer: "Tokenizer", prompt: str, context: int, sampling: Sampling
    ) -> str:
        """The prompt and sampled tokens after it."""
        return generate(model, tokenizer, prompt, context, sampling)


class Masked:
    """Predict a few tokens of a window from all the others (BERT; Devlin et al. 2019, section 3.1).

    As in BERT's code, every window has the same number of tokens to predict, so that a loss is the same mean whatever
    the number of devices. The blank is a token of its own, after the tokenizer's.

    Args:
        vocab_size: the tokenizer's tokens.
        share: of the tokens of a window that are to be predicted.
        blanked: share of those that the model sees as a blank.
        swapped: share of those that it sees as a token drawn at random; it sees the rest as they are.

    Raises:
        ValueError: if blanked and swapped are more than all.
    """

    causal = False
    lookahead = 0
    noise_per_token = 2
    likelihood = False
    prompt = "In the beg_nning God cr_ated the heav_n and the e_rth."

    def __init__(
        self,
        vocab_size: int,
        share: Annotated[float, Gt(0), Lt(1)] = 0.15,
        blanked: Fraction = 0.8,
        swapped: Fraction = 0.1,
    ) -> None:
        if not 0 <= swapped <= round(1 - blanked, 9):
            raise ValueError(f"swapped={swapped} must be between 0 and 1 - blanked={1 - blanked:g}")
        self.blank = vocab_size
        self.vocab_size = vocab_size + 1
        self.share, self.blanked, self.swapped = share, blanked, swapped

    def inputs_and_targets(self, window: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """The window with some tokens replaced, and those tokens; its noise says which, and by what."""
        which, what = noise.unbind(-1)
        count = max(1, round(self.share * window.shape[-1]))
        masked = which.argsort(dim=-1, stable=True)[:, :count]
        chosen = torch.zeros_like(window, dtype=torch.bool).scatter_(-1, masked, True)
        # Where a token is swapped, `what` is even between blanked and blanked + swapped, and so is its remainder.
        drawn = ((what - self.blanked) / max(self.swapped, 1e-9) * self.blank).long().clamp(0, self.blank - 1)
        seen = torch.where(what < self.blanked + self.swapped, drawn, window)
        seen = torch.where(what < self.blanked, self.blank, seen)
        return torch.where(chosen, seen, window), window.masked_fill(~chosen, UNSEEN)

    def ngram_baseline(
        self,
        train: Ids,
        windows: Tensor,  # noqa: ARG002
        validation: tuple[Tensor, Tensor],
    ) -> dict[str, float | None]:
        """Of a blank, the token frequencies; of a token, how likely it is to have been left as it was (Bayes)."""
        inputs, targets = (part[validation[1] != UNSEEN] for part in validation)
        frequency = torch.from_numpy(frequencies(train, self.blank))
        kept, swapped = 1 - self.blanked - self.swapped, self.swapped / self.blank
        seen = inputs.clamp(max=self.blank - 1)
        as_it_was = (kept * (seen == targets) + swapped) / (kept * frequency[seen] + swapped)
        likelihood = frequency[targets] * torch.where(inputs == self.blank, 1.0, as_it_was)
        return {"unigram_loss": -likelihood.log().mean().item()}

    def sample(
        self,
        model: "Transformer",
        tokenizer: "Tokenizer",
        prompt: str,
        context: int,
        sampling: Sampling,  # noqa: ARG002
    ) -> str:
        """The prompt with each _ filled by the likeliest token."""
        return fill(model, tokenizer, prompt, self.blank, context)
