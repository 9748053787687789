"""Batch k is a pure function of fingerprint, seed, k and batch size."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from posenc.data import batches as module
from posenc.data.batches import Batches, copy_to, validation_noise, validation_windows
from posenc.data.tokens import Tokens

TOKENS = Tokens(np.random.default_rng(0).integers(0, 256, 10_000).astype(np.uint8), "print")


def batches(fingerprint: str = "print", seed: int = 0, size: int = 8, window: int = 17) -> Batches:
    return Batches(Tokens(TOKENS.ids, fingerprint), seed, size, window)


@given(st.integers(0, 10**9), st.integers(0, 2**62))
def test_a_batch_is_the_same_whenever_it_is_asked_for(step, seed):
    asked_late = batches(seed=seed)
    asked_late.batch(step + 1)
    assert torch.equal(batches(seed=seed).batch(step), asked_late.batch(step))


def test_what_is_copied_to_a_gpu_is_pinned_also_where_the_text_does_not_fit_there(monkeypatch):
    pinned: list[torch.Tensor] = []

    def pin(tensor: torch.Tensor) -> torch.Tensor:
        pinned.append(tensor)
        return tensor

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (1, 1))
    of_run = replace(batches(), noise_per_token=1)
    on_gpu = of_run.on(torch.device("cuda"))
    assert on_gpu.resident is None
    copied = next(on_gpu.stream(3, 4))
    assert [*map(id, pinned)] == [*map(id, copied)]
    assert all(map(torch.equal, copied, next(of_run.on(torch.device("cpu")).stream(3, 4))))
    assert len(pinned) == 2


def test_batches_never_change_between_versions():
    assert batches().starts(0).tolist() == [5157, 4891, 8634, 1628, 8873, 3061, 4553, 1029]
    assert batches().starts(123_456).tolist() == [8237, 1888, 6691, 325, 2470, 6979, 4469, 4741]
    noise, fixed = replace(batches(), noise_per_token=2).noise(7), validation_noise(TOKENS, torch.zeros(2, 5), 2)
    drawn = torch.stack([noise[0, 0], noise[-1, -1], fixed[0, 0], fixed[-1, -1]])
    assert (drawn * 2**24).tolist() == [
        [1462108, 14891531],
        [15391207, 12871220],
        [15454928, 2856262],
        [6410009, 1019935],
    ]


def test_seed_step_and_corpus_each_change_the_batch():
    reference = batches().batch(3)
    for other in (batches(seed=1).batch(3), batches().batch(4), batches("other").batch(3)):
        assert not torch.equal(reference, other)


def test_consecutive_steps_share_no_window():
    starts = np.concatenate([batches(size=5).starts(step) for step in range(100)])
    assert len(np.unique(starts)) > 480


@pytest.mark.parametrize("world", [1, 2, 4])
def test_devices_share_out_the_batch_of_one_device(world):
    whole = batches().batch(5)
    parts = [batches().batch(5, rank, world) for rank in range(world)]
    assert torch.equal(torch.stack(parts, dim=1).flatten(0, 1), whole)


def test_a_stream_begun_later_goes_on_with_the_same_batches():
    whole = list(batches().stream(0, 6))
    resumed = list(batches().stream(4, 6))
    assert len(whole) == 6
    assert all(
        torch.equal(a, b)
        for one, other in zip(whole[4:], resumed, strict=True)
        for a, b in zip(one, other, strict=True)
    )


def test_windows_are_consecutive_tokens_and_reach_both_ends():
    short = Batches(Tokens(TOKENS.ids[:20], "print"), 0, 200, 17)
    batch = short.batch(0)
    assert batch.shape == (200, 17)
    assert set(short.starts(0)) == {0, 1, 2, 3}
    assert torch.equal(batch[0], torch.tensor(TOKENS.ids[:20].astype(int))[short.starts(0)[0] :][:17])


def test_validation_windows_are_fixed_spread_and_do_not_overlap():
    windows = validation_windows(TOKENS, 10, 100)
    assert windows.shape == (10, 100)
    assert torch.equal(windows, validation_windows(TOKENS, 10, 100))
    for window, ids in ((windows[0], TOKENS.ids[:100]), (windows[-1], TOKENS.ids[-100:])):
        assert window.tolist() == ids.tolist()
    assert validation_windows(TOKENS, 1000, 100).shape == (100, 100)
    assert torch.equal(validation_windows(TOKENS, 1000, 100).flatten(), torch.tensor(TOKENS.ids.astype(int)))


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32"])
def test_tokens_kept_on_the_device_give_the_same_batches(dtype):
    """Ids up to the largest that the type holds; the rows that training sees are int64 either way."""
    ids = np.random.default_rng(0).integers(0, min(np.iinfo(dtype).max, 2**31), 5_000, endpoint=True).astype(dtype)
    on_disk = Batches(Tokens(ids, "print"), 0, 8, 17)
    on_device = replace(on_disk, resident=copy_to(on_disk.tokens, torch.device("cpu")))
    for step in range(20):
        assert torch.equal(on_device.batch(step, 1, 2), on_disk.batch(step, 1, 2))


def test_a_split_is_copied_to_the_device_whole_in_however_many_parts(monkeypatch):
    monkeypatch.setattr(module, "UPLOAD", 3_000)
    assert copy_to(TOKENS, torch.device("cpu")).tolist() == TOKENS.ids.tolist()


def test_the_two_random_numbers_of_a_token_are_independent():
    """One chooses whether a token is masked, the other what it becomes."""
    one, other = replace(batches(size=64, window=100), noise_per_token=2).noise(0).flatten(0, 1).T
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.05  # four standard errors


def test_a_cpu_reads_the_file_where_it_is():
    assert batches().on(torch.device("cpu")).resident is None


@pytest.mark.parametrize(("free", "kept"), [(40_000, True), (39_999, False)])
def test_a_gpu_keeps_a_split_that_takes_a_quarter_of_its_free_memory(free, kept, monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (free, 2**40))
    monkeypatch.setattr(module, "copy_to", lambda tokens, _: torch.from_numpy(tokens.ids))
    assert (batches().on(torch.device("cuda")).resident is not None) == kept
