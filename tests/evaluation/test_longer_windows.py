"""Losses in windows of several lengths."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from posenc.data.tokenizers import Bytes
from posenc.data.tokens import Tokens
from posenc.evaluation import longer_windows, losses
from posenc.evaluation.longer_windows import at_lengths
from posenc.positions import Learned, PositionScheme, Rotary
from posenc.storage.lengths_file import TIMES, Lengths, bucket_edges, read, write
from tests.evaluation.random_model import CONTEXT, ByPosition, trained

SUMMED = 1e-5
"""Of float32 sums in another order: 2^-24 for each of the mean's 160 tokens, and for products in other batches."""


def text(size: int) -> Tokens:
    return Tokens(np.random.default_rng(0).integers(0, 256, size).astype(np.uint8), "made up")


def test_a_loss_is_that_of_each_window_read_by_itself():
    """By the model alone, a window at a time: every length's windows lie in the spans of the longest, end to end."""
    one, tokens = trained(Rotary(8)), text(3000)
    spans = np.linspace(0, 3000 - 129, 3000 // 129).astype(int)
    for entry in at_lengths(one, tokens):
        losses = []
        for start in (span + entry.length * n for span in spans for n in range(128 // entry.length)):
            window = torch.from_numpy(tokens.ids[start : start + entry.length + 1].astype(np.int64))
            with torch.no_grad():
                chances = one.model(window[None, :-1])[0].log_softmax(-1)
            losses.append(-chances[torch.arange(entry.length), window[1:]].mean().item())
        assert entry.windows == len(losses)
        assert entry.nats_per_token == pytest.approx(np.mean(losses), rel=SUMMED)


def test_a_model_that_sees_the_present_token_alone_has_one_loss_at_every_length():
    """So the text is the same at every length; 1.25 and 1.5 times leave out the end of each span."""
    one = trained(PositionScheme())
    for name, weight in one.model.named_parameters():
        weight.data *= not name.endswith("attention.out.weight")
    losses = {entry.times: entry.nats_per_token for entry in at_lengths(one, text(20_000))}
    assert [losses[times] for times in (2.0, 4.0, 8.0)] == pytest.approx([losses[1.0]] * 3, rel=SUMMED)
    assert losses[1.25] != losses[1.0]


def test_the_means_by_position_average_to_the_whole():
    for entry in at_lengths(trained(Rotary(8)), text(3000)):
        assert entry.edges[0] == 0
        assert entry.edges[-1] == entry.length
        assert np.average(entry.losses, weights=np.diff(entry.edges)) == pytest.approx(entry.nats_per_token, rel=1e-5)


def test_batches_shrink_as_windows_grow_and_change_nothing(monkeypatch):
    one, tokens = trained(Rotary(8)), text(3000)
    whole = at_lengths(one, tokens)
    monkeypatch.setattr(losses, "TOKENS_PER_BATCH", 100)  # less than the longest window
    for entry, other in zip(at_lengths(one, tokens), whole, strict=True):
        assert entry.nats_per_token == pytest.approx(other.nats_per_token, rel=SUMMED)


def test_no_more_text_is_read_than_wanted_at_any_length(monkeypatch):
    monkeypatch.setattr(longer_windows, "MAX_TOKENS", 1024)
    read = [entry.windows * entry.length for entry in at_lengths(trained(Rotary(8)), text(20_000))]
    assert read == [1024, 960, 960, 1024, 1024, 1024]


def test_bits_are_those_of_bytes_and_not_of_tokens():
    class Pairs(Bytes):
        def byte_lengths(self) -> np.ndarray:
            return np.full(256, 2)

    for entry in at_lengths(trained(Rotary(8), Pairs()), text(3000)):
        assert entry.nats_per_token is not None
        assert entry.bits_per_byte == pytest.approx(entry.nats_per_token / np.log(2) / 2, rel=1e-6)


@pytest.mark.parametrize("rows", [16, 32])
def test_a_table_has_no_entry_past_its_end(rows):
    entries = at_lengths(trained(Learned(rows, 16)), text(3000))
    for entry in entries:
        if entry.length <= rows:
            assert entry.nats_per_token is not None
        else:
            assert (entry.nats_per_token, entry.bits_per_byte, entry.losses) == (None, None, ())
            assert entry.no_entry == f"it supports only {rows} positions"


def test_a_text_shorter_than_a_length_has_no_entry_there():
    entries = at_lengths(trained(Rotary(8)), text(100))
    assert [entry.no_entry for entry in entries] == [""] * 5 + ["the validation split has only 100 tokens"]
    assert entries[-2].windows == 1
    assert at_lengths(trained(Rotary(8)), text(8 * CONTEXT + 1))[-1].windows == 1


def test_a_length_that_does_not_fit_into_memory_has_no_entry_and_the_others_have_one():
    class Large(Rotary):
        """It allocates more than any machine has for more than twice the training length."""

        def rotate(self, q: torch.Tensor, k: torch.Tensor, positions: torch.Tensor):
            if q.shape[-2] > 2 * CONTEXT:
                torch.empty(2**60)
            return super().rotate(q, k, positions)

    entries = at_lengths(trained(Large(8)), text(3000))
    assert [entry.no_entry for entry in entries] == [""] * 4 + ["it does not fit into memory"] * 2


def test_a_model_whose_loss_is_not_a_number_has_no_entry():
    one = trained(Rotary(8))
    next(one.model.parameters()).data[:] = float("nan")
    for entry in at_lengths(one, text(3000)):
        assert (entry.nats_per_token, entry.no_entry) == (None, "its loss is NaN, infinite or very large")


@given(st.integers(4, 4096), st.sampled_from(TIMES))
def test_buckets_are_few_and_one_ends_at_the_training_length(context, times):
    length = round(context * times)
    edges = bucket_edges(context, length)
    assert (edges[0], edges[-1]) == (0, length)
    assert all(first < end for first, end in zip(edges, edges[1:], strict=False))
    assert context in edges
    assert len(edges) <= 64


def test_what_is_written_is_read_back(tmp_path):
    run = tmp_path / "rope" / "seed0-abc"
    run.mkdir(parents=True)
    lengths = Lengths("rope/seed0-abc", "0f", CONTEXT, 5.5, at_lengths(trained(Learned(16, 16)), text(3000)))
    write(lengths, run)
    assert read(run, CONTEXT) == lengths
    assert [file.name for file in run.iterdir()] == ["lengths.json"]


def test_the_loss_of_a_bucket_is_that_of_its_positions():
    model: Any = ByPosition(100)
    one = replace(trained(PositionScheme()), model=model)
    for entry in at_lengths(one, Tokens(np.zeros(3000, np.uint8), "zeros")):
        middles = [(first + 1 + end) / 200 for first, end in zip(entry.edges, entry.edges[1:], strict=False)]
        assert entry.losses == pytest.approx(middles, abs=1e-5)
