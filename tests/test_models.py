"""What is said of a larger model has the figures of its committed results."""

from statistics import mean

from posenc.analysis import convergence
from posenc.analysis.claim_map import advantage
from posenc.analysis.convergence import first_reached, speed_up
from posenc.analysis.corpus_map import backbone_of
from posenc.analysis.results import BlockRow, CopyingRow, Result
from posenc.analysis.run_key import BACKBONE, SEARCH
from posenc.analysis.study import Study
from posenc.report import formatting
from posenc.storage.csv_files import read_csv
from tests.claim_map_pages import CLAIMS, CORPUS, LONGEST, README, RESULTS, STUDY, found, listed, p_of, with_bounds
from tests.conftest import ROOT


def test_what_is_said_of_a_larger_model_is_in_its_results():
    folder = ROOT / "results/text-small-h100"
    curves: dict[tuple[str, str], dict[int, float]] = {}
    for row in read_csv(folder / "curves.csv"):
        curves.setdefault((row["scheme"], row["seed"]), {})[int(row["step"])] = float(row["val_loss"])
    steps, cells = [*curves["rope", "0"]], []
    for baseline in ("sinusoidal", "learned"):
        pairs = [[[*curves[pos, seed].values()] for pos in (baseline, "rope")] for seed in ("0", "1", "2")]
        ratio = speed_up(
            *zip(*([first_reached(steps, loss, min(pair[0])) for loss in pair] for pair in pairs), strict=True)
        )
        cells.append(formatting.interval(ratio, 2))
    assert f"| {' | '.join(cells)} |" in RESULTS
    assert ratio.interval is not None
    assert f"and {ratio.value:.2f} is the fairer figure." in RESULTS
    last = {arm: losses[steps[-1]] for arm, losses in curves.items()}
    behind = [last["rope", seed] - last["alibi", seed] for seed in ("0", "1", "2")]
    assert f"and behind ALiBi, by {mean(behind):.3f} nats (" in RESULTS
    edges = {row["pos"] for row in read_csv(folder / "search.csv") if "optim.lr" in row["edge"]}
    assert edges == {"rope", "learned", "alibi"}  # "the best rate is the highest tried" in docs/results.md


def test_the_claim_map_of_a_larger_model_is_stated_with_what_both_arms_copy():
    study = Study(ROOT / "results/claim-map-small")
    backbone, _ = backbone_of(study, CORPUS)
    gains = {row.key: row.second - row.first for row in study.rows("copying.csv", CopyingRow, CORPUS)}
    of = {(run.pos, run.tokens, run.seed): gains[run.key] for run in backbone}
    both = advantage(backbone, "rope", "sinusoidal")
    for point in both:
        assert point.advantage.seeds == 1
        losses = f"{point.baseline_losses[0]:.3f} | {point.arm_losses[0]:.3f} | {point.advantage.value:.2f}"
        copied = f"{of['sinusoidal', point.tokens, 0]:.2f} | {of['rope', point.tokens, 0]:.2f}"
        assert f"| {point.tokens / 1e6:.1f}M | {losses} | {copied} |" in RESULTS
    first, second = (f"{point.advantage.value:.2f}" for point in both)
    fewer = f"[{first} times fewer tokens](models.md#a-larger-model) than the sinusoid at 52M and {second} at 105M"
    assert f"{fewer} (one seed). There RoPE copies too." in RESULTS
    in_readme = f"[{first} at 52M tokens and {second} at 105M](docs/models.md#a-larger-model)"
    assert f"{in_readme} with 25M parameters (one seed)." in README
    assert max(of["rope", point.tokens, 0] for point in both) < -0.2
    assert all(point.gap is not None and point.gap.value > 0 for point in both)
    assert "the sinusoid more, and RoPE ends lower." in RESULTS
    first_search = [dict(one.split("=") for one in arm.split()) for arm in study.plan["blocks"][0]["arms"].values()]
    of_first = {(arm["pos"], float(arm["optim.lr"]), arm.get("pos.base", arm.get("pos.scale"))) for arm in first_search}
    lower = []
    for pos, arm in (("rope", "RoPE: learning rate, base"), ("sinusoidal", "sinusoid: learning rate, amplitude")):
        all_trials = [run for run in study.on(CORPUS) if run.setting == SEARCH and run.pos == pos]
        all_trials.sort(key=lambda run: run.val_loss)
        best, *trials = (run for run in all_trials if (pos, run.lr, run.scale or run.base) in of_first)
        later = [run for run in all_trials if run not in (best, *trials)]
        assert len(trials) == 3  # "four trials each"
        first_four = "; ".join((f"**{ended(best)}**", *map(ended, trials)))
        assert f"| {arm} | {first_four} | {'; '.join(map(ended, later))} |" in RESULTS
        lower.append(f"{best.val_loss - min(run.val_loss for run in all_trials):.3f}")
        assert {(run.lr, run.scale, run.base) for run in backbone if run.pos == pos} == {
            (best.lr, best.scale, best.base)
        }
    assert f"(by {lower[0]} nats for RoPE, {lower[1]} for the sinusoid); they have not been run longer." in RESULTS
    assert f"and each has a better setting, by {lower[0]} and {lower[1]}, whose" in RESULTS


def ended(run: Result) -> str:
    """A trial's hyperparameters and its final loss."""
    return f"{run.lr:g}, {run.scale or f'{int(run.base):,}'}: {run.val_loss:.3f}"


def test_the_second_best_setting_of_the_learned_table_with_19_7m_tokens_is_stated():
    losses: dict[tuple[float, str], list[float]] = {}
    for run in STUDY.on(CORPUS):
        if (run.pos, run.tokens, run.setting) == ("learned", 19_660_800, BACKBONE):
            losses.setdefault((run.lr, run.scale), []).append(run.val_loss)
    other, own = losses[0.003, "0.1"], losses[0.0042, "matched"]
    higher = f"with seeds 0 to 2, {mean(other) - mean(own):.3f} above its own on average."
    assert f"0.003 with 0.1, ends at {listed(other, 3)} {higher}" in RESULTS


def test_t5_is_compared_with_every_setting_of_rope_with_the_most_tokens():
    runs = [run for run in STUDY.on(CORPUS) if (run.tokens, run.seed, run.setting) == (LONGEST, 0, BACKBONE)]
    of_t5 = {run.lr: run.val_loss for run in runs if run.pos == "t5"}
    assert sorted(of_t5) == [0.003, 0.006]
    (arm,) = (run for run in found(CORPUS)[0] if (run.pos, run.tokens, run.seed) == ("rope", LONGEST, 0))
    for run in (run for run in runs if run.pos == "rope"):
        name = f"{run.lr:g}, {int(run.base):,}{' (the arm)' if run == arm else ''}"
        gaps = " | ".join(f"{of_t5[lr] - run.val_loss:.3f}" for lr in sorted(of_t5))
        assert f"| {name} | {gaps} |" in RESULTS
    assert f"the better of two rates, ends {of_t5[0.003] - arm.val_loss:.3f} above RoPE's arm." in RESULTS


def test_rope_s_ratios_against_t5_are_stated_beside_the_published_one():
    first, second, last = (point.advantage for point in advantage(found(CORPUS)[0], "rope", "t5"))
    assert (second.seeds, last.seeds) == (3, 1)
    ratios = (
        f"{formatting.interval(first, 2)} times RoPE's tokens at 4.9M, {formatting.interval(second, 2)} times at 19.7M"
    )
    assert f"T5 needs {ratios} and {last.value:.2f} times at 78.6M (one seed)" in CLAIMS


def test_t5_s_trials_with_19_7m_tokens_are_stated():
    runs = [run for run in STUDY.on(CORPUS) if (run.setting, run.tokens) == (SEARCH, 19_660_800)]
    trials = {run.lr: run.val_loss for run in runs if run.pos == "t5"}
    assert list(trials) == [0.003, 0.0042, 0.006, 0.0085]
    assert min(trials, key=lambda rate: trials[rate]) == 0.0042
    (rope,) = (run.val_loss for run in runs if (run.pos, run.lr, run.base) == ("rope", 0.0042, "100000"))
    ends = f"T5 ends lowest at 0.0042, at {trials[0.0042]:.3f} nats (at 0.006 at {trials[0.006]:.3f}),"
    assert f"{ends} RoPE's arm with that seed at {rope:.3f};" in RESULTS


def test_t5_with_19_7m_tokens_is_level_with_rope():
    runs = [run for run in STUDY.on(CORPUS) if (run.tokens, run.setting, run.seed < 3) == (19_660_800, BACKBONE, True)]
    rope = [run.val_loss for run in runs if (run.pos, run.lr, run.base) == ("rope", 0.0042, "100000")]
    arm, other = ([run.val_loss for run in runs if (run.pos, run.lr) == ("t5", rate)] for rate in (0.006, 0.0042))
    below, above = (
        convergence.mean([high - low for high, low in zip(*pair, strict=True)]) for pair in ((rope, arm), (other, rope))
    )
    assert -0.010 < below.value < 0.020  # as expected
    value, interval = with_bounds(below).removesuffix(")").split(" (")
    assert f"it ends {value} below it ({interval}, seeds 0 to 2), at {listed(arm, 3)} nats, so" in RESULTS
    assert f"({value} below it, {interval}; three seeds, tuned there)" in RESULTS
    assert f"{value} below it after 19.7M ({interval}, 3 seeds, tuned there)" in CLAIMS
    assert f"T5 is level with RoPE ({value} below, {interval}, three seeds); longer runs have one seed." in README
    _, second, _ = (point.advantage for point in advantage(found(CORPUS)[0], "rope", "t5"))
    assert second.interval is not None
    low, high = (1 / bound for bound in reversed(second.interval))
    assert f"RoPE needs {1 / second.value:.2f} times T5's tokens ({low:.2f} to {high:.2f})." in RESULTS
    higher = f"on average {mean(other) - mean(arm):.3f} higher than at 0.006, and"
    assert f"it ends at {listed(other, 3)} at 0.0042, {higher} {with_bounds(above, ' above RoPE')}." in RESULTS


def test_how_far_below_the_sinusoid_rope_and_t5_end_with_4_9m_tokens_is_stated():
    runs = [run for run in STUDY.on(CORPUS) if (run.setting, run.tokens, run.seed < 3) == (BACKBONE, 4_915_200, True)]
    sinusoid, rope, t5 = (
        [run.val_loss for run in runs if (run.pos, run.lr, run.scale or run.base) == arm]
        for arm in (("sinusoidal", 0.003, "0.1"), ("rope", 0.006, "1000"), ("t5", 0.0085, ""))
    )
    of_rope, of_t5 = (
        convergence.mean([high - low for high, low in zip(sinusoid, losses, strict=True)]) for losses in (rope, t5)
    )
    lower = with_bounds(of_rope, " nats lower"), with_bounds(of_t5, " lower")
    assert "and ends {}, T5's relative bias {}.".format(*lower) in RESULTS
    assert f"RoPE ends {of_rope.value:.2f} nats below the sinusoid at its steadier learning rate, 0.003" in README


def test_the_announced_test_of_t5_against_rope_is_stated():
    backbone, alternatives = found(CORPUS)
    name, tokens = "new seeds of T5 and RoPE", 4_915_200
    on_test = {row.key: mean(row.losses) for row in STUDY.rows("test.csv", BlockRow, CORPUS)}
    new = {pos: {run.seed: run for run in alternatives[f"{pos}, {name}"]} for pos in ("t5", "rope")}
    assert list(new["t5"]) == list(new["rope"]) == [6, 7, 8, 9, 10, 11]
    t5, rope = ([on_test[run.key] for run in of.values()] for of in new.values())
    gaps = [ours - theirs for ours, theirs in zip(rope, t5, strict=True)]
    p = p_of(gaps)
    assert p < 0.05
    assert min(gaps) > 0
    assert 0.015 < mean(gaps) < 0.040  # as expected
    by = with_bounds(convergence.mean(gaps)).removesuffix(")")
    value, interval = by.split(" (")
    assert f"T5 ends at {listed(t5, 3)} nats on the test split, RoPE at {listed(rope, 3)}:" in RESULTS
    average = f"by {value} nats on average ({interval}; paired t-test, p = {p:.4f})"
    assert f"**T5 ends lower with each, {average}**" in RESULTS
    below = f"ends [{value} nats below RoPE](docs/models.md#relative-or-rotary) there ({interval}; p = {p:.4f})"
    assert f"T5's relative bias, which rotates nothing, {below}" in README
    assert f"ends [{value} nats below RoPE](models.md#relative-or-rotary) after 4.9M tokens ({interval};" in RESULTS

    gaps = [new["rope"][seed].val_loss - run.val_loss for seed, run in new["t5"].items()]
    earlier = {pos: [run.val_loss for run in backbone if (run.pos, run.tokens) == (pos, tokens)] for pos in new}
    nine = [*gaps, *(ours - theirs for ours, theirs in zip(earlier["rope"], earlier["t5"], strict=True))]
    both = with_bounds(convergence.mean(gaps)), with_bounds(convergence.mean(nine))
    assert "on validation by {}, and over all nine seeds there by {}.".format(*both) in RESULTS
