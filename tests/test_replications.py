"""What README and the results say of N with new seeds, on the test split, is what results/claim-map says."""

from posenc.analysis.claim_map import Point, advantage
from posenc.analysis.held_out import held_out
from posenc.analysis.results import BlockRow
from posenc.report import formatting
from tests.claim_map_pages import CORPUS, README, RESULTS, STUDY, found, listed


def test_the_replication_on_the_test_split_is_stated_with_n_on_validation_beside_it():
    *points, again = held_out(*found(CORPUS), STUDY.rows("test.csv", BlockRow, CORPUS))
    stated: list[str] = []
    for on_test, on_validation in points:
        assert list(on_test.by_seed) == list(on_validation.by_seed) == [3, 4, 5]
        assert f"| {on_test.tokens / 1e6:.1f}M | {replicated(on_test, on_validation)} |" in RESULTS
        assert on_test.advantage.interval is not None
        fewer, at = ("", "at") if stated else (" times fewer tokens", "at a budget of")
        low, high = on_test.advantage.interval
        tokens = f"{on_test.tokens / 1e6:.1f}M"
        stated.append(f"{on_test.advantage.value:.2f}{fewer} ({low:.2f} to {high:.2f}) {at} {tokens}")
    assert " and ".join(stated[:2]) in README
    assert " and ".join(stated[:2]) in RESULTS
    assert f"settings of 4.9M ({on_test.advantage.value:.2f}, {low:.2f} to {high:.2f}); of the arms tuned" in RESULTS
    on_test, on_validation = again
    assert list(on_test.by_seed) == list(on_validation.by_seed) == [3, 4]
    losses = replicated(on_test, on_validation).split(" | ")[:2]
    ratios = [
        f"{point.advantage.value:.2f} ({', '.join(f'{ratio:.2f}' for ratio in point.by_seed.values())})"
        for point in again
    ]
    assert f"| 39.3M, tuned there (seeds 3 and 4) | {' | '.join([*losses, *ratios])} |" in RESULTS
    of_seeds = listed(on_test.by_seed.values(), 2)
    assert f"two of three new seeds are finished: {of_seeds}." in README
    assert f"two of three new seeds are finished, with {of_seeds}." in RESULTS


def replicated(on_test: Point, on_validation: Point) -> str:
    """The cells of a replication: the losses on the test split, and N there and on validation."""
    losses = (", ".join(f"{loss:.3f}" for loss in ends.values()) for ends in (on_test.losses, on_test.own))
    ratios = (formatting.interval(point.advantage, 2) for point in (on_test, on_validation))
    return " | ".join([*losses, *ratios])


def test_n_over_the_six_seeds_of_both_replications_is_stated():
    backbone, alternatives = found(CORPUS)
    both = [run for run in backbone if run.pos in ("rope", "sinusoidal")]
    ratios = [
        formatting.interval(point.advantage, 2)
        for point in advantage([*both, *alternatives["replication"]], "rope", "sinusoidal")
        if point.advantage.seeds == 6 and point.has_ratio
    ]
    stated = " at 9.8M and ".join(ratios[:2])  # with 39.3M the replication has other settings than the arms
    assert f"Over all six seeds, 0 to 5, N on the last validation is {stated} at 19.7M;" in RESULTS
