"""The biases are the formulas of their papers, at any positions."""

from bisect import bisect_right

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from posenc.positions import T5, Alibi, Fire, Kerple
from posenc.positions.bias import bucket_starts, slopes

POSITIONS = st.lists(st.integers(0, 10**6), min_size=1, max_size=10)
directions = pytest.mark.parametrize("bidirectional", [False, True])


def drawn(**settings) -> T5:
    scheme = T5(**settings)
    scheme.initialise(torch.Generator().manual_seed(0))
    return scheme


def test_eight_heads_have_the_slopes_of_the_paper():
    assert slopes(8) == [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]


def test_sixteen_heads_have_the_geometric_means_between_them_too():
    assert slopes(16) == pytest.approx([2**-0.5, 2**-1, 2**-1.5, *(2 ** (-i / 2) for i in range(4, 17))])


def test_twelve_heads_have_those_of_eight_and_every_second_of_sixteen():
    assert slopes(12) == [*slopes(8), *slopes(16)[0:8:2]]


@given(st.integers(1, 200))
def test_every_head_has_a_slope_of_its_own(heads):
    assert len(set(slopes(heads))) == heads
    assert all(2**-8 <= slope < 1 for slope in slopes(heads))


@given(POSITIONS, st.sampled_from([1, 2, 6, 8, 12]))
def test_alibi_falls_by_the_slope_for_each_token_of_distance(positions, heads):
    bias = Alibi(heads).bias(torch.tensor(positions))
    assert bias.dtype == torch.float32
    for h, slope in enumerate(slopes(heads)):
        expected = [[-slope * abs(i - j) for j in positions] for i in positions]
        assert torch.allclose(bias[h].double(), torch.tensor(expected, dtype=torch.float64), rtol=1e-6, atol=0)


def bucket(distance: int, buckets: int, longest: int) -> int:
    """T5's bucket of a distance >= 0, from its formula, in integers."""
    half = buckets // 2
    if distance < half:
        return distance
    rest = buckets - half
    return half + sum(distance**rest >= half ** (rest - k) * longest**k for k in range(1, rest))


@given(st.integers(2, 64), st.integers(0, 500))
def test_near_distances_have_a_bucket_each_and_far_ones_share_longer_and_longer_ranges(buckets, beyond):
    longest = buckets // 2 + 1 + beyond
    numbers = [bisect_right(bucket_starts(buckets, longest), distance) for distance in range(2 * longest)]
    assert numbers == [bucket(distance, buckets, longest) for distance in range(2 * longest)]
    half = buckets // 2
    assert numbers[:half] == list(range(half))
    assert numbers == sorted(numbers)
    assert set(numbers[longest:]) == {buckets - 1}
    widths = [numbers.count(number) for number in range(half, buckets - 1)]
    assert all(after >= before - 1 for before, after in zip(widths, widths[1:], strict=False))


def test_boundaries_between_buckets_are_exact():
    starts = bucket_starts(32, 128)
    assert [bisect_right(starts, distance) for distance in (15, 16, 31, 32, 63, 64, 127, 128)] == [
        *(15, 16, 21, 21, 26, 26, 31, 31)
    ]
    for buckets, longest in ((8, 64), (16, 128), (16, 2048)):  # where powers of two are boundaries
        half, rest = buckets // 2, buckets - buckets // 2
        octaves = (longest // half).bit_length() - 1
        for octave in range(octaves):
            if rest * octave % octaves == 0:
                assert half * 2**octave == [0, *bucket_starts(buckets, longest)][half + rest * octave // octaves]


@given(POSITIONS)
@directions
def test_t5_looks_its_bias_up_by_bucket(bidirectional, positions):
    scheme = drawn(heads=3, buckets=16, max_distance=50, bidirectional=bidirectional)
    bias = scheme.bias(torch.tensor(positions))
    for i, query in enumerate(positions):
        for j, key in enumerate(positions):
            if bidirectional:
                number = bucket(abs(query - key), 8, 50) + 8 * (key > query)
            else:
                number = bucket(max(query - key, 0), 16, 50)
            assert torch.equal(bias[:, i, j], scheme.table.weight[number])


def test_many_buckets_over_the_longest_distance_are_built():
    starts = bucket_starts(512, 2**20)
    assert len(starts) == 511
    assert starts == sorted(starts)
    assert starts[255] == 256
    assert starts[-1] < 2**20


@directions
def test_every_bucket_of_t5_can_be_reached(bidirectional):
    scheme = T5(heads=1, bidirectional=bidirectional)
    unreachable = {16} if bidirectional else set()  # distance 0 in the future
    scheme.table.weight.data = torch.arange(32.0)[:, None]
    assert set(scheme.bias(torch.arange(200)).flatten().tolist()) == set(range(32)) - unreachable


def test_t5_starts_near_no_position():
    assert drawn(heads=64).table.weight.std().item() == pytest.approx(0.02, rel=0.05)


def test_t5_learns_from_the_logits_it_is_added_to():
    scheme = drawn(heads=2)
    scheme.bias(torch.arange(5))[1, 4, 1].backward()
    gradient = scheme.table.weight.grad
    assert gradient is not None
    assert gradient.nonzero().tolist() == [[3, 1]]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"heads": 0}, "heads=0 must be at least 1"),
        ({"heads": 2, "buckets": 1}, "buckets=1 must be at least 2"),
        ({"heads": 2, "buckets": 2, "bidirectional": True}, "buckets=2 must be at least 4"),
        ({"heads": 2, "buckets": 31, "bidirectional": True}, "buckets=31 must be even"),
        ({"heads": 2, "max_distance": 16}, "max_distance=16 must be above 16"),
    ],
)
def test_impossible_settings_are_refused(settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        T5(**settings)


@pytest.mark.parametrize("scheme", [Alibi, Kerple, Fire])
def test_a_bias_needs_a_head(scheme):
    with pytest.raises(ValueError, match="heads=0 must be at least 1"):
        scheme(0)


@pytest.mark.parametrize("setting", [{"hidden": 0}, {"c": 0.0}, {"threshold": -1.0}])
def test_fire_refuses_what_has_no_logarithm_or_no_hidden_unit(setting):
    with pytest.raises(ValueError, match=f"{next(iter(setting))}=.* must be"):
        Fire(2, **setting)


def test_t5_s_numbers_are_multiplied_by_the_root_of_the_head_dimension_that_its_logits_are_not_divided_by():
    one, sixteen = T5(2), T5(2, head_dim=16)
    for scheme in (one, sixteen):
        scheme.initialise(torch.Generator().manual_seed(0))
    assert torch.equal(4 * one.bias(torch.arange(9)), sixteen.bias(torch.arange(9)))


@pytest.mark.parametrize("bidirectional", [False, True])
def test_t5_gives_fused_attention_kernels_adjacent_keys(bidirectional):
    assert T5(heads=4, bidirectional=bidirectional).bias(torch.arange(8)).is_contiguous()
