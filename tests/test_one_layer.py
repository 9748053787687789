"""What the results say of RoPE in one layer and of the sinusoid in every layer is in the committed curves."""

from posenc.analysis.convergence import Estimate
from posenc.analysis.study import Study
from posenc.analysis.why import Effect, effect
from tests.claim_map_pages import RESULTS, with_bounds
from tests.conftest import ROOT

STUDY = Study(ROOT / "results/why")
CORPUS = "kjv-4f7db33c"


def of_arm(name: str, origin: str) -> Effect:
    """The effect of an arm on the seeds that all three arms have."""
    arm, start, rope = (STUDY.curves(STUDY.arm(one), CORPUS) for one in (name, origin, "rope"))
    found = effect({seed: arm[seed] for seed in (0, 1, 2)}, start, rope, [])
    assert found is not None
    return found


def percent(share: Estimate) -> str:
    """84 % (63 to 104 %)."""
    assert share.interval is not None
    low, high = share.interval
    return f"{100 * share.value:.0f} % ({100 * low:.0f} to {100 * high:.0f} %)"


def test_what_one_layer_of_rope_and_a_sinusoid_in_every_layer_give_is_stated_beside_the_sinusoid():
    names = ("RoPE in the first layer only", "sinusoid in q and k of every layer")
    first, added, sinusoid = (of_arm(name, "none") for name in (*names, "sinusoidal"))
    begun = f"RoPE in the first layer alone has {percent(first.share)} of its advantage over no encoding in log steps"
    assert f"{begun}, and {percent(first.gain)} in the final loss." in RESULTS
    assert f"at the one amplitude tried, has {percent(added.share)} and {percent(added.gain)}" in RESULTS
    assert f"so has the sinusoid itself: {percent(sinusoid.share)} and {percent(sinusoid.gain)}." in RESULTS
    above = [of_arm(name, "sinusoidal").change for name in names]
    assert all(one.interval is not None and one.interval[0] < 0 < one.interval[1] for one in above)
    ends = with_bounds(above[0], " nats above the sinusoid"), with_bounds(above[1])
    assert "RoPE in one layer ends {}, the sinusoid in every layer {}.".format(*ends) in RESULTS
    planes = percent(of_arm("RoPE on two planes of 16", "sinusoidal").gain)
    assert f"RoPE on two planes of every layer gives {planes.replace(' % (', ' % of that (')}" in RESULTS
