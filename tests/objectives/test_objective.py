"""What is predicted: BERT's masking, and losses that count only what is to be predicted."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from posenc.data.batches import Batches
from posenc.data.tokenizers import Bytes
from posenc.errors import UserError
from posenc.model import Transformer
from posenc.model.cross_entropy import LARGE_VOCAB
from posenc.objectives.ngram import bigram_loss
from posenc.objectives.objective import IGNORE_INDEX, Causal, Masked, Sampling, loss, loss_of
from posenc.positions import PositionScheme
from tests.data.test_batches import TOKENS

VOCAB = 50


def noise(windows: int, length: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(windows, length, 2, generator=torch.Generator().manual_seed(seed))


def windows(count: int, length: int) -> torch.Tensor:
    return torch.randint(VOCAB, (count, length), generator=torch.Generator().manual_seed(1))


def test_a_causal_model_predicts_each_token_from_those_before_it():
    window = windows(3, 9)
    inputs, targets = Causal(VOCAB).inputs_and_targets(window, noise(3, 9))
    assert torch.equal(inputs, window[:, :-1])
    assert torch.equal(targets, window[:, 1:])


@given(length=st.integers(4, 200), share=st.floats(0.01, 0.9))
def test_every_window_has_the_same_number_of_tokens_to_predict_and_never_none(length, share):
    _, targets = Masked(VOCAB, mlm_probability=share).inputs_and_targets(windows(5, length), noise(5, length))
    counts = (targets != IGNORE_INDEX).sum(-1)
    assert counts.unique().tolist() == [max(1, round(share * length))]


def test_of_the_tokens_to_predict_80_percent_are_the_mask_token_10_random_and_10_unchanged():
    window = windows(2000, 100)
    objective = Masked(VOCAB)
    inputs, targets = objective.inputs_and_targets(window, noise(2000, 100))
    chosen = targets != IGNORE_INDEX
    assert torch.equal(inputs[~chosen], window[~chosen])
    assert torch.equal(targets[chosen], window[chosen])
    assert chosen.float().mean().item() == pytest.approx(0.15)
    masked, kept = inputs[chosen] == objective.mask_token, inputs[chosen] == window[chosen]
    assert masked.float().mean().item() == pytest.approx(0.8, abs=0.01)
    assert kept.float().mean().item() == pytest.approx(0.1 + 0.1 / VOCAB, abs=0.01)
    swapped = inputs[chosen][~masked & ~kept]
    assert (swapped.min(), swapped.max()) == (0, VOCAB - 1)
    assert torch.bincount(swapped, minlength=VOCAB).float().std() < 0.3 * len(swapped) / VOCAB  # equally often


@pytest.mark.parametrize(("mask_replace_prob", "random_replace_prob"), [(0.8, 0.2), (0.9, 0.1), (0.7, 0.3), (1.0, 0.0)])
def test_nothing_need_be_left_as_it_is(mask_replace_prob, random_replace_prob):
    window, objective = (
        windows(50, 100),
        Masked(VOCAB, mask_replace_prob=mask_replace_prob, random_replace_prob=random_replace_prob),
    )
    inputs, targets = objective.inputs_and_targets(window, noise(50, 100))
    chosen = targets != IGNORE_INDEX
    assert (inputs[chosen] == window[chosen]).float().mean() < 0.05  # those drawn by chance


def test_a_causal_objective_draws_nothing():
    assert Batches(TOKENS, 0, 8, 32, Causal.noise_per_token).noise(3).shape == (8, 32, 0)


def test_every_position_of_a_window_is_masked_equally_often():
    _, targets = Masked(VOCAB).inputs_and_targets(windows(4000, 20), noise(4000, 20))
    share = (targets != IGNORE_INDEX).float().mean(0)
    assert share.min() > 0.12
    assert share.max() < 0.18


def test_the_noise_that_chooses_masks_fills_the_interval_from_0_to_1():
    drawn = Batches(TOKENS, seed=0, batch_size=8, window=32, noise_per_token=2).noise(3)
    assert drawn.shape == (8, 32, 2)
    assert 0 <= drawn.min() < 0.1
    assert 0.9 < drawn.max() < 1


def test_masks_are_a_function_of_text_seed_and_step_alone():
    batches = Batches(TOKENS, seed=0, batch_size=8, window=32, noise_per_token=2)
    assert torch.equal(batches.noise(3), Batches(TOKENS, 0, 8, 32, 2).noise(3))
    assert not torch.equal(batches.noise(3), batches.noise(4))
    assert not torch.equal(batches.noise(3), Batches(TOKENS, 1, 8, 32, 2).noise(3))
    parts = torch.stack([batches.noise(3, rank, 2) for rank in (0, 1)], dim=1).flatten(0, 1)
    assert torch.equal(parts, batches.noise(3))


def test_the_unigram_baseline_is_the_loss_of_the_best_guess_from_what_stands_in_a_token_s_place():
    """Of independent tokens nothing else can be known: counted on many examples, no table does better."""
    generator = np.random.default_rng(0)
    text = generator.choice(VOCAB, 400_000, p=np.arange(1, VOCAB + 1) / np.arange(1, VOCAB + 1).sum())
    window = torch.from_numpy(text[:200_000].reshape(-1, 100))
    inputs, targets = Masked(VOCAB).inputs_and_targets(window, noise(2000, 100))
    chosen = targets != IGNORE_INDEX
    table = np.zeros((VOCAB + 1, VOCAB))
    np.add.at(table, (inputs[chosen].numpy(), targets[chosen].numpy()), 1)
    chance = table / table.sum(-1, keepdims=True)
    counted = -np.log(chance[inputs[chosen].numpy(), targets[chosen].numpy()]).mean()
    (told,) = Masked(VOCAB).ngram_baseline(text, (inputs, targets)).values()
    assert told == pytest.approx(counted, abs=0.05)
    all_masked = Masked(VOCAB, mask_replace_prob=1.0, random_replace_prob=0.0)
    inputs, targets = all_masked.inputs_and_targets(window, noise(2000, 100))
    (told,) = all_masked.ngram_baseline(text, (inputs, targets)).values()
    share = np.bincount(text) / len(text)
    assert told == pytest.approx(-(share * np.log(share)).sum(), abs=0.01)


def test_the_loss_is_the_mean_over_what_is_to_be_predicted():
    logits, targets = torch.randn(2, 5, VOCAB), torch.full((2, 5), IGNORE_INDEX)
    targets[0, 1], targets[1, 4] = 7, 9
    expected = -(F.log_softmax(logits, -1)[0, 1, 7] + F.log_softmax(logits, -1)[1, 4, 9]) / 2
    assert torch.allclose(loss(logits, targets), expected)
    assert loss(torch.zeros(2, 5, VOCAB), targets).item() == pytest.approx(math.log(VOCAB))


@pytest.mark.parametrize("vocab_size", [VOCAB, LARGE_VOCAB])
def test_with_any_vocabulary_the_loss_of_a_model_is_that_of_its_logits(vocab_size):
    model = Transformer(vocab_size, 8, 1, 16, 2, PositionScheme())
    inputs, targets = torch.randint(0, VOCAB, (2, 3, 8), generator=torch.Generator().manual_seed(0))
    targets[:, ::3] = IGNORE_INDEX
    torch.testing.assert_close(loss_of(model, inputs, targets), loss(model(inputs), targets))


def test_a_masked_model_reads_one_token_more_than_the_tokenizer_has_and_sees_both_ways():
    objective = Masked(VOCAB)
    assert (objective.vocab_size, objective.causal, objective.lookahead) == (VOCAB + 1, False, 0)
    model = Transformer(objective.vocab_size, 10, 1, 16, 2, PositionScheme(), causal=objective.causal)
    tokens = windows(1, 10)
    changed = tokens.clone()
    changed[0, -1] = objective.mask_token
    assert not torch.equal(model(tokens)[0, 0], model(changed)[0, 0])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            {"mask_replace_prob": 0.9, "random_replace_prob": 0.11},
            "random_replace_prob=0.11 must be between 0 and 0.1, since mask_replace_prob=0.9",
        ),
        (
            {"random_replace_prob": 0.3},
            "random_replace_prob=0.3 must be between 0 and 0.2, since mask_replace_prob=0.8",
        ),
    ],
)
def test_impossible_probabilities_are_refused(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        Masked(VOCAB, **arguments)


class Parrot(Transformer):
    """Holds the letter x likeliest everywhere."""

    def __init__(self) -> None:
        super().__init__(257, 32, 1, 8, 1, PositionScheme(), causal=False)

    def forward(self, tokens: torch.Tensor, positions: torch.Tensor | None = None) -> torch.Tensor:  # noqa: ARG002
        likely = F.one_hot(torch.full_like(tokens, ord("x")), 257).float()
        likely[..., 256] = 2.0  # the mask token itself, which is no text
        return likely


def test_a_masked_model_fills_the_mask_tokens_of_a_prompt_of_any_length():
    assert Masked(256).sample(Parrot(), Bytes(), "_e a_e", 32, Sampling()) == "xe axe"
    assert Masked(256).sample(Parrot(), Bytes(), "_a" * 40, 32, Sampling()) == "xa" * 40


def test_a_prompt_without_a_mask_token_is_refused():
    with pytest.raises(UserError, match="--prompt=no blank must contain a _ for"):
        Masked(256).sample(Parrot(), Bytes(), "no blank", 32, Sampling())


def test_the_bigram_baseline_is_that_of_the_validation_windows():
    text, window = np.random.default_rng(0).integers(4, size=1000), windows(20, 3) % 4
    (told,) = Causal(4).ngram_baseline(text, (window[:, :-1], window[:, 1:])).values()
    assert told == bigram_loss(text, window.numpy(), 4)


class Alphabet(Transformer):
    """Is certain of the letter that follows the last one."""

    def __init__(self) -> None:
        super().__init__(256, 8, 1, 256, 1, PositionScheme())
        self.output.weight.data = 99 * torch.eye(256)
        self.lengths: list[int] = []

    def hidden(self, tokens: torch.Tensor, positions: torch.Tensor | None = None) -> torch.Tensor:  # noqa: ARG002
        """(B, T) -> (B, T, 256)."""
        self.lengths.append(tokens.shape[1])
        return F.one_hot(tokens + 1, 256).float()


def test_a_causal_model_continues_the_last_tokens_of_a_text_longer_than_its_context():
    model = Alphabet()
    assert Causal(256).sample(model, Bytes(), "a", 8, Sampling(tokens=20)) == "abcdefghijklmnopqrstu"
    assert model.lengths == [*range(1, 9), *[8] * 12]


def test_at_a_low_temperature_every_seed_draws_the_likeliest_tokens():
    model = Transformer(256, 32, 1, 8, 1, PositionScheme())
    model.embedding.weight.data.mul_(50)

    def drawn(temperature: float) -> set[str]:
        return {Causal(256).sample(model, Bytes(), "a", 32, Sampling(9, temperature, seed)) for seed in range(4)}

    assert (len(drawn(0.01)), len(drawn(100.0))) == (1, 4)


def test_the_loss_of_logits_in_bfloat16_is_in_float32():
    value = loss(torch.zeros(2, 5, VOCAB, dtype=torch.bfloat16), torch.zeros(2, 5, dtype=torch.long))
    assert (value.dtype, value.item()) == (torch.float32, pytest.approx(math.log(VOCAB)))


def test_equal_parts_of_the_noise_for_random_tokens_are_the_tokens_in_turn():
    """It is between 0.8 and 0.9, here in the middle of each part; a window is one token, which is always chosen."""
    action = 0.8 + 0.1 * (torch.arange(VOCAB) + 0.5) / VOCAB
    inputs, _ = Masked(VOCAB).inputs_and_targets(windows(VOCAB, 1), torch.stack([action, action], -1)[:, None])
    assert inputs[:, 0].tolist() == [*range(VOCAB)]
