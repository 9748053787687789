"""What share of an advantage an intervention explains."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from posenc.analysis.results import AblationRow, table
from posenc.analysis.why import ablations, effect, share_of_advantage, steps_to_lowest

LEVELS = (2.5, 1.1)


def curve(speed: float, end: float = 0.0):
    """A loss that falls linearly in the logarithm of steps, `speed` times as soon as at 1."""
    steps = np.arange(40, 1201, 40)
    return list(steps), list(4 - 0.4 * np.log(steps * speed) + end)


def arm(speed: float, seeds=3):
    return {seed: curve(speed * (1 + 0.01 * seed)) for seed in range(seeds)}


def test_the_origin_has_nothing_of_the_advantage_and_the_reference_all():
    origin, reference = curve(1), curve(3)
    assert share_of_advantage(origin, origin, reference) == pytest.approx(0)
    assert share_of_advantage(reference, origin, reference) == pytest.approx(1)


def test_the_share_is_that_of_the_logarithm_of_steps():
    assert share_of_advantage(curve(math.sqrt(3)), curve(1), curve(3)) == pytest.approx(0.5, abs=0.02)


def test_an_arm_that_does_harm_never_comes_to_the_origin_s_loss():
    assert share_of_advantage(curve(0.5), curve(1), curve(3)) == math.inf
    found = effect(arm(0.5), arm(1), arm(3), LEVELS)
    assert found is not None
    assert found.share.missed == 3
    assert found.gain.value < 0


def test_a_reference_without_an_advantage_gives_no_share():
    assert share_of_advantage(curve(2), curve(1), curve(0.9)) == math.inf
    assert share_of_advantage(curve(2), curve(1), curve(1)) == math.inf
    found = effect(arm(2), arm(1), arm(0.9), LEVELS)
    assert found is not None
    assert (found.share.missed, found.gain.missed) == (3, 3)


def test_an_effect_is_over_the_seeds_that_all_three_have():
    found = effect(arm(2, seeds=5), arm(1), arm(3), LEVELS)
    assert found is not None
    assert found.last_loss.seeds == 3
    assert found.share.interval is not None
    assert found.share.value == pytest.approx(math.log(2) / math.log(3), abs=0.03)
    assert found.gain.value == pytest.approx(math.log(2) / math.log(3))
    assert found.steps[0] < math.inf
    assert found.behind.value == pytest.approx(0.4 * math.log(1.5))
    assert found.change.value == pytest.approx(-0.4 * math.log(2))
    assert effect({}, arm(1), arm(3), LEVELS) is None


def test_differences_are_those_of_each_seed():
    """Every arm ends 0.1 nats higher with the next seed, so that the differences are equal."""
    own, origin, reference = ({seed: curve(speed, 0.1 * seed) for seed in range(3)} for speed in (2, 1, 3))
    found = effect(own, origin, reference, LEVELS)
    assert found is not None
    assert found.behind.interval == pytest.approx((found.behind.value, found.behind.value))
    assert found.change.interval == pytest.approx((found.change.value, found.change.value))


def test_steps_are_to_the_origin_s_lowest_loss_and_differences_those_of_the_last_losses():
    steps, losses = curve(1)
    origin = steps, [*losses[:-1], losses[-1] + 0.5]
    assert steps_to_lowest(origin, curve(2)) == [pytest.approx(steps[-2] / 2, rel=0.01)]
    found = effect({0: curve(2)}, {0: origin}, {0: curve(3)}, LEVELS)
    assert found is not None
    assert found.change.value == pytest.approx(-0.4 * math.log(2) - 0.5)
    itself = effect({0: origin}, {0: origin}, {0: curve(3)}, LEVELS)
    assert itself is not None
    assert itself.last_loss.value == origin[1][-1] > min(origin[1])


def test_steps_to_a_level_are_a_geometric_mean_over_seeds():
    found = effect({0: curve(1), 1: curve(4)}, arm(1), arm(5), (2.0,))
    assert found is not None
    assert found.steps[0] == pytest.approx(math.exp(5) / 2, rel=0.05)  # interpolated; the mean would be 93


def test_masked_losses_are_means_over_seeds_by_budget_and_rising_loss(tmp_path):
    def rows(pos: str, tokens: int, losses: dict[int, list[float]]) -> list[AblationRow]:
        return [
            AblationRow("text", "backbone", pos, seed, tokens, 0.003, "", "", offset, loss)
            for offset, of_seeds in losses.items()
            for seed, loss in enumerate(of_seeds)
        ]

    measured = [
        *rows("rope", 200, {1: [2.0, 4.0], 0: [1.0, 2.0]}),
        *rows("none", 100, {0: [1.9]}),
        *rows("t5", 100, {0: [1.8]}),
        *rows("alibi", 100, {1: [1.0]}),  # without the loss of the whole model
    ]
    (tmp_path / "ablation.csv").write_text(table(AblationRow, measured))
    study: Any = SimpleNamespace(folder=tmp_path)
    found = ablations(study)
    assert [one.row.pos for one in found] == ["t5", "none", "rope"]
    assert {offset: one.value for offset, one in found[-1].losses.items()} == {0: 1.5, 1: 3.0}
