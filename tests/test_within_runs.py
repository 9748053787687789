"""What the page on copying says of the losses within the longest runs is in the committed curves."""

from statistics import mean

from posenc.analysis.results import CurveRow
from posenc.analysis.run_key import BACKBONE
from posenc.storage.csv_files import read_rows
from tests.claim_map_pages import COPYING, CORPUS, FOLDER, LONGEST, listed

SEEDS = (0, 1, 2)


def test_where_the_sinusoid_overtakes_rope_within_the_runs_is_stated():
    losses: dict[tuple, dict[int, float]] = {}
    for row in read_rows(FOLDER / "curves.csv", CurveRow):
        if (row.corpus, row.setting, row.tokens) == (CORPUS, BACKBONE, LONGEST):
            run = (row.pos, row.lr, row.scale or row.base, row.seed)
            losses.setdefault(run, {})[row.at_tokens] = row.val_loss

    def overtaken(lr: float, base: str, seed: int) -> str:
        """The tokens at the last crossing, between two validations on a straight line."""
        gaps = [
            (own - losses["sinusoidal", 0.003, "0.2", seed][tokens], tokens)
            for tokens, own in losses["rope", lr, base, seed].items()
        ]
        *_, ((ahead, first), (behind, then)) = (
            pair for pair in zip(gaps, gaps[1:], strict=False) if pair[0][0] < 0 <= pair[1][0]
        )
        return f"{(first + (then - first) * ahead / (ahead - behind)) / 1e6:.0f}M"

    of_1000, of_1_000_000 = ([overtaken(0.003, base, seed) for seed in SEEDS] for base in ("1000", "1000000"))
    assert "base 1,000 at 0.003 after {}, {} and {} tokens (seeds 0, 1 and 2)".format(*of_1000) in COPYING
    assert "with 1,000,000 after {}, {} and {}.".format(*of_1_000_000) in COPYING


def test_the_lead_within_the_longest_runs_is_stated_at_three_times():
    curves: dict[tuple[str, int], dict[int, float]] = {}
    arms = ("rope", "", "1000000"), ("sinusoidal", "0.2", "10000")
    for row in read_rows(FOLDER / "curves.csv", CurveRow):
        of_budget = (row.corpus, row.setting, row.tokens, row.lr) == (CORPUS, BACKBONE, 2 * LONGEST, 0.003)
        if of_budget and (row.pos, row.scale, row.base) in arms:
            curves.setdefault((row.pos, row.seed), {})[row.at_tokens] = row.val_loss
    of_seeds = []
    for seed in SEEDS:
        rope, sinusoid = curves["rope", seed], curves["sinusoidal", seed]
        leads = {tokens: loss - sinusoid[tokens] for tokens, loss in rope.items()}
        near = [[lead for tokens, lead in leads.items() if abs(tokens - at) < 2.5e6] for at in (25e6, 75e6, 125e6)]
        of_seeds.append(f"{listed(map(mean, near), 3)} with seed {seed}")
    assert f"is {of_seeds[0]}, {of_seeds[1]} and {of_seeds[2]} (means over 5M tokens)" in COPYING
