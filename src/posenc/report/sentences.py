"""The results of a comparison in sentences."""

from collections import Counter
from collections.abc import Sequence
from operator import itemgetter

from posenc.analysis.arms import Arm
from posenc.analysis.attention_heads import DROPPED
from posenc.analysis.comparison import Comparison, Panel
from posenc.analysis.convergence import SEEDS_FOR_A_VERDICT, Estimate, Verdict
from posenc.analysis.extrapolation import Extrapolation
from posenc.config.schema import SHARED
from posenc.report import formatting
from posenc.report.formatting import short
from posenc.storage.metrics import METRICS

COVERAGE = (
    "Brackets are 95 % intervals over seeds (initial weights and batches). They do not cover other corpora, "
    "model sizes or budgets, and are not corrected for the number of schemes and settings. A verdict needs at least "
    f"{SEEDS_FOR_A_VERDICT} seeds. Steps to a loss are counted within runs of one length, with its schedule; "
    "posenc.claim_map compares finished runs of several lengths."
)

MANY = 2
"""With more panels than this, a summary sentence comes first."""


def headline(comparison: Comparison) -> str:
    """The result in at most 15 words, including numbers."""
    panels, baseline = comparison.panels, comparison.baseline
    rivals = [arm for panel in panels for arm in panel.rivals]
    faster = [arm for arm in rivals if arm.headline and arm.verdict == Verdict.FASTER]
    if not rivals and len(panels) > 1:
        return f"No scheme is compared with {baseline} in any of {len(panels)} settings"
    if not rivals:
        lowest, *others = panels[0].comparable
        which = "the lowest" if others else "a"
        return f"{lowest.scheme} ends at {which} validation loss of {lowest.loss.value:.3f} nats per token"
    if all(arm.verdict == Verdict.NONE for arm in rivals):
        return f"No verdict: no scheme shares {SEEDS_FOR_A_VERDICT} seeds with {baseline}"
    if not faster:
        return f"No scheme is shown to need fewer steps than {baseline}"
    begun = "So far, " if any(panel.provisional for panel in panels) else ""
    if len(panels) == 1:
        steps, first = max(((arm.headline.in_steps.value, arm) for arm in faster if arm.headline), key=itemgetter(0))
        fewer = f"{short(steps)} times fewer steps"
        if first.thresholds[-1].steps.missed:
            return f"{begun}{first.scheme} needs {fewer} than {baseline} to their lowest common loss"
        return f"{begun}{first.scheme} reaches {baseline}'s lowest loss in {fewer}"
    ((best, settings),) = Counter(arm.scheme for arm in faster).most_common(1)
    return f"{begun}{best} is faster than {baseline} in {settings} of {len(panels)} settings"


def kind(comparison: Comparison) -> str:
    """How the schemes' hyperparameters were chosen."""
    if keys := comparison.sweep.searched:
        return f"tuned comparison: each scheme with its best {' and '.join(keys)} from a search"
    return "matched comparison: only schemes with the same hyperparameters are compared"


def verdict(panel: Panel) -> str:
    """Every scheme compared at the baseline's lowest loss."""
    if not panel.rivals:
        return losses(panel)
    where = f"At {panel.title}, against" if panel.title else "Against"
    begun = f", after the first {panel.budget:,} steps" if panel.provisional else ""
    tuned = ", each scheme with its own best hyperparameters" if panel.tuned else ""
    seeds = [arm.headline.in_steps.seeds for arm in panel.rivals if arm.headline]
    over = f" (95 % intervals over {formatting.seeds_from(seeds)})" if max(seeds) >= SEEDS_FOR_A_VERDICT else ""
    parts = "; ".join(_rival(arm, panel.one_machine) for arm in panel.rivals)
    return f"{where} {panel.baseline}'s lowest loss of {panel.thresholds[-1].level:.3f}{tuned}{begun}{over}: {parts}."


def _rival(arm: Arm, one_machine: bool) -> str:
    assert arm.headline is not None
    steps = arm.headline.in_steps
    missed = arm.thresholds[-1].steps.missed
    lost = f" ({arm.diverged} of {arm.started} runs diverged)" if arm.diverged else ""
    level = f" to {arm.headline.level:.3f}, the lowest that both reach" if missed else ""
    if arm.verdict in (Verdict.NONE, Verdict.UNDETERMINED):
        few = f", no verdict from {formatting.seeds(steps.seeds)}" if arm.verdict == Verdict.NONE else ""
        return f"{arm.scheme}{lost} has a speed-up in steps of {formatting.times(steps)}{level}{few}"
    if arm.verdict == Verdict.SLOWER:
        return f"{arm.scheme} is slower{lost}: {_slower(steps, missed, level)}"
    if arm.verdict == Verdict.FASTER:
        time = _wall_clock(arm.headline.in_seconds) if one_machine else ""
        fewer = f"{short(steps.value)} times fewer steps{formatting.bounds(steps, short, '–')}"
        return f"{arm.scheme} is faster{level}, with {fewer}{time}"
    theirs = f" ({arm.baseline_diverged} of the baseline's runs diverged)" if arm.baseline_diverged else ""
    return f"{arm.scheme} is {arm.verdict}{lost or theirs}, {formatting.times(steps)}{level}"


def _slower(steps: Estimate, missed: int, level: str) -> str:
    """The inverse of a speed-up below 1, and whether the baseline's lowest loss is reached."""
    assert steps.interval is not None
    low, high = steps.interval
    more = f"it needs {short(1 / steps.value)} times the steps ({short(1 / high)}–{short(1 / low)})"
    if not missed:
        return more
    never = "it never reaches that loss" if missed == steps.seeds else "it does not reach that loss with every seed"
    return f"{never};{level}, {more}"


def _wall_clock(seconds: Estimate) -> str:
    """The wall-clock speed-up, so that fewer but slower steps do not look better than they are."""
    title = METRICS["speed_up_seconds"].title
    if seconds.interval is None:
        return ""
    low, high = seconds.interval
    if seconds.determined and high < 1:
        return f", but a {title} of only {formatting.ratio(seconds)}"
    same = ", not distinguishable from 1" if seconds.determined and low <= 1 else ""
    return f" and a {title} of {formatting.ratio(seconds)}{same}"


def losses(panel: Panel) -> str:
    """The final validation losses, if there is nothing to compare."""
    parts = [f"{arm.scheme} {formatting.interval(arm.loss)} ({formatting.seeds(len(arm.runs))})" for arm in panel.arms]
    where = f" at {panel.title}" if panel.title else ""
    return f"Validation loss after {panel.budget:,} steps{where}: {', '.join(parts)}."


def overall(comparison: Comparison) -> str:
    """The verdicts of many panels in one sentence; empty if there are few, or nothing is compared."""
    panels = comparison.panels
    rivals = [arm for panel in panels for arm in panel.rivals]
    if len(panels) <= MANY or not rivals:
        return ""
    schemes = dict.fromkeys(arm.scheme for arm in rivals)
    parts = [_over_settings(scheme, [arm for arm in rivals if arm.scheme == scheme]) for scheme in schemes]
    begun = "So far, against" if any(panel.provisional for panel in panels) else "Against"
    return f"{begun} {comparison.baseline}, {'; '.join(parts)}."


def lowest(comparison: Comparison) -> str:
    """The setting in which each scheme ends lowest; empty if there is one, or the losses are not comparable."""
    panels = comparison.panels
    keys = {key.partition(".")[0] for panel in panels for key in panel.setting}
    if len(panels) == 1 or len({panel.budget for panel in panels}) > 1 or keys & {*SHARED, "text"}:
        return ""
    best: dict[str, tuple[float, str]] = {}
    for panel in panels:
        for arm in panel.arms:
            ends = arm.loss.value, f"{arm.loss.value:.3f} at {panel.title} ({formatting.seeds(len(arm.runs))})"
            best[arm.scheme] = min(best.get(arm.scheme, ends), ends)
    return f"Lowest validation loss: {'; '.join(f'{scheme} {shown}' for scheme, (_, shown) in best.items())}."


def _over_settings(scheme: str, arms: Sequence[Arm]) -> str:
    verdicts = Counter("without a verdict" if arm.verdict == Verdict.NONE else str(arm.verdict) for arm in arms)
    counts = ", ".join(f"{verdict} in {count}" for verdict, count in verdicts.items())
    ratios = [arm.headline.in_steps.value for arm in arms if arm.headline and arm.verdict == Verdict.FASTER]
    span = " to ".join(dict.fromkeys((short(min(ratios)), short(max(ratios))))) if ratios else ""
    fewer = f", with {span} times fewer steps" if span else ""
    fewer += " where faster" if 0 < len(ratios) < len(arms) else ""
    lost = sum(arm.diverged for arm in arms)
    diverged = f" ({lost} of {sum(arm.started for arm in arms)} runs diverged)" if lost else ""
    return f"{scheme} is {counts} of {len(arms)} settings{fewer}{diverged}"


def at(panel: Panel) -> str:
    """What begins a paragraph on one of several settings."""
    return f"At {panel.title}: " if panel.title else ""


def heads(panel: Panel) -> str:
    """When the loss falls below the n-gram baseline, and the scores at the end."""
    ngram = panel.ngram
    scores = ", ".join(f"{row.scheme} {row.scores['previous_token'].value:.2f}" for row in panel.heads)
    sentence = f"Previous-token score of the best head at the end: {scores}."
    if ngram is None:
        return sentence
    falls = ", ".join(f"{row.scheme} {_step(row.dropped)}" for row in panel.heads if row.dropped)
    below = f"{DROPPED} below the {ngram.loss:.2f} nats of the {ngram.order} model"
    return f"Steps until the loss is {below}: {falls}. {sentence}"


def _step(estimate: Estimate) -> str:
    return "not at all" if estimate.missed == estimate.seeds else formatting.steps(estimate)


def extrapolation(found: Extrapolation) -> str:
    """The change in bits per byte in longer windows, relative to windows of the training length."""
    times = found.headline
    if times is None:
        return "No window longer than in training was evaluated."
    multiple = "twice" if times == 2 else f"{times:g} times"
    costs = [f"{_change(row.change[times])} with {row.scheme}" for row in found.rows if times in row.change]
    missing = {row.scheme: row.no_entry[times] for row in found.rows if times in row.no_entry}
    parts = [", ".join(costs), *(f"{scheme} was not evaluated ({reason})" for scheme, reason in missing.items())]
    windows = f"In windows of {found.lengths[times]:,} tokens, {multiple} the training length"
    return f"{windows}, a byte costs {'; '.join(parts)}."


def _change(change: Estimate) -> str:
    """0.412 bits more (0.380 to 0.444), and whether it is distinguishable from no change."""
    cost = f"{abs(change.value):.3f} bits {'more' if change.value > 0 else 'less'}"
    if not any(round(value, 3) for value in (change.value, *(change.interval or ()))):
        return "the same to within 0.001 bits"
    if change.interval is None:
        return cost
    low, high = change.interval
    if low <= 0 <= high:
        return f"{cost} ({low:+.3f} to {high:+.3f}, perhaps no change)"
    low, high = sorted((abs(low), abs(high)))
    return f"{cost} ({low:.3f} to {high:.3f})"


def gaps(found: Extrapolation) -> list[str]:
    """Why lengths were not evaluated, for all schemes with the same reason at the same lengths."""
    schemes: dict[str, list[str]] = {}
    for row in found.rows:
        for reason in dict.fromkeys(row.no_entry.values()):
            where = ", ".join(f"{times:g}x" for times, why in row.no_entry.items() if why == reason)
            schemes.setdefault(f"{where}: {reason}", []).append(row.scheme)
    return [f"Not evaluated: {', '.join(names)} at {gap}" for gap, names in schemes.items()]
