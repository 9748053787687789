"""What README and the results say of N with new seeds, on the test split, is what results/claim-map says."""

import pytest

from posenc.analysis.claim_map import Point, advantage
from posenc.analysis.held_out import held_out
from posenc.analysis.results import BlockRow
from posenc.report import formatting
from tests.claim_map_pages import CORPUS, README, RESULTS, STUDY, at_settings_of_4_9m, found, listed


def test_the_replication_on_the_test_split_is_stated_with_n_on_validation_beside_it():
    evaluated = held_out(*found(CORPUS), STUDY.rows("test.csv", BlockRow, CORPUS))
    assert list(evaluated) == ["replication", "second replication", "third replication", "fourth replication"]
    stated: list[str] = []
    for on_test, on_validation in evaluated["replication"]:
        assert list(on_test.by_seed) == list(on_validation.by_seed) == [3, 4, 5]
        assert f"| {on_test.tokens / 1e6:.1f}M | {replicated(on_test, on_validation)} |" in RESULTS
        assert on_test.advantage.interval is not None
        fewer, at = ("", "at") if stated else (" times fewer tokens", "at a budget of")
        low, high = on_test.advantage.interval
        tokens = f"{on_test.tokens / 1e6:.1f}M"
        stated.append(f"{on_test.advantage.value:.2f}{fewer} ({low:.2f} to {high:.2f}) {at} {tokens}")
    assert " and ".join(stated[:2]) in README
    assert " and ".join(stated[:2]) in RESULTS
    assert f"at 39.3M it is then {on_test.advantage.value:.2f} ({low:.2f} to {high:.2f})." in RESULTS


@pytest.mark.parametrize(
    ("name", "tokens", "expected"),
    [("second replication", "39.3M", (1.15, 1.5)), ("third replication", "19.7M", (1.65, 2.05))],
)
def test_the_replication_of_arms_tuned_with_more_tokens_is_stated_with_every_seed(name, tokens, expected):
    backbone, alternatives = found(CORPUS)
    evaluated = held_out(backbone, alternatives, STUDY.rows("test.csv", BlockRow, CORPUS))
    ((on_test, on_validation),) = evaluated[name]
    assert f"{on_test.tokens / 1e6:.1f}M" == tokens
    assert list(on_test.by_seed) == list(on_validation.by_seed) == [3, 4, 5]
    assert f"| {tokens}, tuned there | {replicated(on_test, on_validation)} |" in RESULTS
    assert f"N is {listed(on_test.by_seed.values(), 2)} with seeds 3, 4 and 5" in RESULTS
    assert expected[0] < on_test.advantage.value < expected[1]  # as expected
    assert abs(on_test.advantage.value - on_validation.advantage.value) < 0.1
    assert min(on_test.by_seed.values()) > 1


def test_n_over_the_six_seeds_of_the_arms_tuned_with_19_7m_tokens_is_stated():
    backbone, alternatives = found(CORPUS)
    both = [run for run in (*backbone, *alternatives["third replication"]) if run.pos in ("rope", "sinusoidal")]
    (six,) = (point for point in advantage(both, "rope", "sinusoidal") if point.tokens == 19_660_800)
    assert list(six.by_seed) == [0, 1, 2, 3, 4, 5]
    assert f"Over seeds 0 to 5 it is {formatting.interval(six.advantage, 2)} on validation" in RESULTS


def test_n_of_the_setting_that_was_replicated_with_39_3m_tokens_is_stated():
    backbone, alternatives = found(CORPUS)
    (tokens,) = {run.tokens for run in alternatives["sinusoidal, second replication"]}
    former = [run for run in alternatives["sinusoidal, learning rate 0.003, amplitude 0.2"] if run.tokens == tokens]
    others = [run for run in backbone if (run.pos, run.tokens) != ("sinusoidal", tokens)]
    (point,) = (one for one in advantage([*others, *former], "rope", "sinusoidal") if one.tokens == tokens)
    interval = formatting.interval(point.advantage, 2)
    assert f"Seeds 0 to 2 of that setting, from a GPU, have {interval} on validation." in RESULTS


def test_the_first_two_seeds_of_the_replication_that_is_not_finished_are_stated():
    evaluated = held_out(*found(CORPUS), STUDY.rows("test.csv", BlockRow, CORPUS))
    ((on_test, on_validation),) = evaluated["fourth replication"]
    assert [*on_test.by_seed] == [*on_validation.by_seed] == [3, 4]
    test, validation = (listed(point.by_seed.values(), 2) for point in (on_test, on_validation))
    assert f"N with them is {test} on the test split and {validation} on validation." in RESULTS


def test_readme_has_the_replications_of_tuned_arms():
    evaluated = held_out(*found(CORPUS), STUDY.rows("test.csv", BlockRow, CORPUS))
    (third, _), (second, _) = (*evaluated["third replication"], *evaluated["second replication"])
    first, then = (formatting.interval(point.advantage, 2).replace("–", " to ") for point in (third, second))
    fewer = first.replace(" (", " times fewer (")
    assert f"With those tuned at each budget it needs {fewer} at 19.7M and {then} at 39.3M," in README
    assert f"With those tuned at each budget it is {first} at 19.7M and {then} at 39.3M," in RESULTS


def replicated(on_test: Point, on_validation: Point) -> str:
    """The cells of a replication: the losses on the test split, and N there and on validation."""
    losses = (
        ", ".join(f"{loss:.3f}" for loss in ends.values()) for ends in (on_test.baseline_losses, on_test.arm_losses)
    )
    ratios = (formatting.interval(point.advantage, 2) for point in (on_test, on_validation))
    return " | ".join([*losses, *ratios])


def test_n_over_the_six_seeds_of_both_replications_is_stated():
    both = [run for run in at_settings_of_4_9m() if run.pos in ("rope", "sinusoidal")]
    ratios = [
        formatting.interval(point.advantage, 2)
        for point in advantage([*both, *found(CORPUS)[1]["replication"]], "rope", "sinusoidal")
        if point.advantage.seeds == 6 and point.has_ratio
    ]
    stated = " at 9.8M and ".join(ratios[:2])
    assert (
        f"Over all six seeds, 0 to 5, N on the last validation is {stated} at 19.7M, all with these settings;"
        in RESULTS
    )
