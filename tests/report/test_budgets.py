import numpy as np
import pytest
from matplotlib.text import Annotation

from posenc.analysis.claim_map import advantage
from posenc.report.budgets import figure
from tests.analysis.test_claim_map import backbone


def test_every_run_is_a_dot_and_every_ratio_an_arrow_from_the_baseline_s_budget_to_the_arm_s():
    runs = backbone()
    points = advantage(runs, "rope", "sinusoidal")
    (axes,) = figure(runs, points, "rope", "sinusoidal").axes
    dots = [len(np.asarray(line.get_xdata())) for line in axes.lines if line.get_marker() == "o"]
    assert sum(dots) == len(runs)
    arrows = [text for text in axes.texts if isinstance(text, Annotation) and text.arrow_patch is not None]
    drawn = [point for point in points if 1 < point.advantage.value < float("inf")]
    assert len(arrows) == len(drawn) > 0
    for arrow, point in zip(arrows, drawn, strict=True):
        assert arrow.xyann == (point.tokens, point.loss)
        assert arrow.xy == pytest.approx((point.tokens / point.advantage.value, point.loss))
