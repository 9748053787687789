"""The results of `scaling.py` as tables, sentences and a figure; without torch."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from output import table
from timing import ratios, spread

from posenc.report.looks import LOOKS, Look

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Results = Mapping[str, Any]
"""JSON: the points of each axis, with tokens/s by variant and round, or the reason for skipping the variant."""


class Variant(NamedTuple):
    """Title and look; all but one have RoPE."""

    title: str
    look: Look


VARIANTS = {
    "rope": Variant("softmax", LOOKS["rope"]),
    "none": Variant("softmax, no RoPE", LOOKS["none"]),
    "favor": Variant("FAVOR+", Look("#000000", "dash")),
    "elu": Variant("elu + 1", Look("#56B4E9", "dashdot")),
}

AXES = {"length": ("rope", "favor", "elu"), "width": ("none", "rope"), "batch": ("none", "rope")}
"""The variants on each axis; the first is the baseline."""


@dataclass(frozen=True)
class Axis:
    """The points of one axis.

    Args:
        name: length, width or batch.
        points: in ascending order.
    """

    name: str
    points: Sequence[Mapping[str, Any]]

    @property
    def fixed(self) -> str:
        """The values of what is not varied."""
        first = self.points[0]
        return {
            "length": f"width {first['width']:,}, {first['length'] * first['batch']:,} tokens per step",
            "width": f"batch {first['batch']:,}, length {first['length']:,}",
            "batch": f"length {first['length']:,}, width {first['width']:,}",
        }[self.name]

    def speeds(self, name: str) -> dict[int, list[float]]:
        """Tokens/s of a variant in each round, by size."""
        return {point[self.name]: point["tokens_per_s"][name] for point in self.points if name in point["tokens_per_s"]}

    def speed_ups(self, name: str) -> dict[int, list[float]]:
        """Tokens/s over the baseline's in each round, by size."""
        baseline = self.speeds(AXES[self.name][0])
        return {size: ratios(speeds, baseline[size]) for size, speeds in self.speeds(name).items() if size in baseline}


def axes(results: Results) -> list[Axis]:
    return [Axis(name, points) for name, points in results["axes"].items()]


def crossover(sizes: Sequence[float], ratios: Sequence[float]) -> float | None:
    """The size from which on a ratio is above 1, interpolated linearly in logarithms.

    None if the ratio is below 1 at the last size, or nowhere.
    """
    logs = [math.log(ratio) for ratio in ratios]
    below = max((index for index, log in enumerate(logs) if log < 0), default=-1)
    if below in (-1, len(logs) - 1):
        return None
    share = logs[below] / (logs[below] - logs[below + 1])
    return sizes[below] * (sizes[below + 1] / sizes[below]) ** share


def overtakes(axis: Axis, name: str) -> tuple[float, float, float] | None:
    """Where a variant overtakes the baseline: by the median ratios, and the range over rounds.

    None if it does not in every round.
    """
    by_size = axis.speed_ups(name)
    rounds = [crossover(list(by_size), each) for each in zip(*by_size.values(), strict=True)]
    middle = crossover(list(by_size), [median(each) for each in by_size.values()])
    known = [size for size in rounds if size is not None]
    return (middle, min(known), max(known)) if middle is not None and len(known) == len(rounds) else None


def markdown(results: Results) -> str:
    """All results, as scaling.md."""
    compiled = "torch.compile" if results["compiled"] else "not compiled"
    versions, layers = results["versions"], results["layers"]
    head = f"""\
# Training throughput as a function of length, width and batch size

`{results["command"]}`, {results["hardware"]}, {results["precision"]}, {compiled},
torch {versions["torch"]}, Python {versions["python"]}, {results["date"]}

Training on random bytes: forward, backward, clipping and AdamW; {layers} layer{"s" if layers > 1 else ""}, heads of
{results["head_dim"]} channels, RoPE unless stated otherwise. FAVOR+ and elu + 1 are linear attention. Tokens/s are
medians of {results["rounds"]} interleaved rounds; a ratio is computed within each round, and its median and range are
given.

![Tokens/s over length, width and batch size](scaling.png)
"""
    return "\n".join([head, *(f"{_table(axis)}\n{_sentences(axis)}" for axis in axes(results))])


def _table(axis: Axis) -> str:
    baseline, *others = names = AXES[axis.name]
    title = VARIANTS[baseline].title
    header = [axis.name, "tokens per step", *(VARIANTS[name].title for name in names)]
    header += [f"{VARIANTS[name].title} / {title}" for name in others]
    rows = []
    for point in axis.points:
        size = point[axis.name]
        speeds = [axis.speeds(name).get(size) for name in names]
        speed_ups = [axis.speed_ups(name).get(size) for name in others]
        cells = ["–" if each is None else f"{median(each):,.0f}" for each in speeds]
        cells += ["–" if each is None else spread(each).text(".2f") for each in speed_ups]
        rows.append([f"{size:,}", f"{point['length'] * point['batch']:,}", *cells])
    return f"## Tokens/s over {axis.name} ({axis.fixed})\n\n{table(header, rows, left=0)}\n"


def _sentences(axis: Axis) -> str:
    """Skipped points, growth from the first size to the last, and crossovers."""
    sentences = []
    for name in AXES[axis.name]:
        skipped = [point for point in axis.points if name in point["skipped"]]
        if skipped:
            size, reason = skipped[0][axis.name], skipped[0]["skipped"][name]
            sentences.append(f"{VARIANTS[name].title} is skipped from {axis.name} {size:,} on: {reason}.")
    sentences += _growth(axis)
    if axis.name == "length":
        sentences += [_crossing(axis, name) for name in AXES[axis.name][1:] if axis.speed_ups(name)]
    return "".join(f"- {sentence}\n" for sentence in sentences)


def _growth(axis: Axis) -> list[str]:
    """Tokens/s at the last size that all variants have, relative to the first; nothing for a single size."""
    speeds = {name: axis.speeds(name) for name in AXES[axis.name]}
    sizes = [size for size in speeds[AXES[axis.name][0]] if all(size in each for each in speeds.values())]
    if len(sizes) < 2:
        return []
    first, last = sizes[0], sizes[-1]
    growth = (f"{VARIANTS[name].title} {median(each[last]) / median(each[first]):.2f}" for name, each in speeds.items())
    return [f"Tokens/s at {axis.name} {last:,} relative to {first:,}: {', '.join(growth)}."]


def _crossing(axis: Axis, name: str) -> str:
    title, baseline = VARIANTS[name].title, VARIANTS[AXES[axis.name][0]].title
    medians = {size: median(each) for size, each in axis.speed_ups(name).items()}
    smallest, largest = min(medians), max(medians)
    where = overtakes(axis, name)
    if where is not None:
        size, low, high = (f"{round(each):,}" for each in where)
        return f"**{title} overtakes {baseline} at length {size}** (rounds: {low} to {high}), interpolated."
    if medians[largest] < 1:
        return f"{title} does not overtake {baseline}: at {largest:,} it has {medians[largest]:.2f} times its speed."
    if min(medians.values()) >= 1:
        return f"{title} is faster from {smallest:,} on."
    return f"{title} overtakes {baseline} before {largest:,}, but not in every round."


def figure(results: Results) -> "Figure":
    """One panel per axis: tokens/s on logarithmic scales, with the range over rounds."""
    import matplotlib
    from matplotlib.figure import Figure

    from posenc.report.figures import STYLE, legend

    shown = axes(results)
    most = max(len(axis.points) for axis in shown)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(10, 4.2), layout="constrained")
        widths = [2 * len(axis.points) + most for axis in shown]
        panels = figure.subplots(1, len(shown), squeeze=False, width_ratios=widths)[0]
        for panel, axis in zip(panels, shown, strict=True):
            _set_scales(panel, [point[axis.name] for point in axis.points])
            for name in AXES[axis.name]:
                _plot(panel, axis.speeds(name), *VARIANTS[name])
            if axis.name == "length":
                _mark_crossings(panel, axis)
            panel.set_title(axis.fixed, loc="left", fontsize=10)
            panel.set_xlabel({"length": "length, tokens", "width": "width", "batch": "batch size"}[axis.name])
        panels[0].set_ylabel("training tokens/s")
        legend(figure, 4, handlelength=4)
    return figure


def _set_scales(panel: Any, sizes: Sequence[int]) -> None:
    """Powers of 2 across, of which every second is labelled if there are many; round tokens/s upwards."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    every = 1 if len(sizes) <= 6 else 2
    labels = [f"{size:,}" if (len(sizes) - 1 - index) % every == 0 else "" for index, size in enumerate(sizes)]
    panel.set_xscale("log", base=2)
    panel.set_xticks(sizes, labels)
    panel.minorticks_off()
    panel.set_xlim(0.85 * sizes[0], sizes[-1] / 0.85)
    panel.set_yscale("log")
    panel.yaxis.set_major_locator(LogLocator(base=10, subs=(1, 1.5, 2, 3, 5, 7)))
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / 1000:g}k"))
    panel.yaxis.set_minor_formatter(NullFormatter())


def _plot(panel: Any, speeds: Mapping[int, Sequence[float]], title: str, look: Look) -> None:
    sizes, rounds = list(speeds), list(speeds.values())
    panel.fill_between(
        sizes, list(map(min, rounds)), list(map(max, rounds)), color=look.colour, alpha=0.18, linewidth=0
    )
    panel.plot(
        sizes, list(map(median, rounds)), color=look.colour, label=title,
        linestyle=look.linestyle, linewidth=1.8, marker="o", markersize=3.5,
    )  # fmt: skip


def _mark_crossings(panel: Any, axis: Axis) -> None:
    """A vertical line where linear attention overtakes softmax, with a note below the curves."""
    baseline, *others = AXES[axis.name]
    crossings = {name: where[0] for name in others if (where := overtakes(axis, name)) is not None}
    space = 0.07 * len(crossings)
    low, high = panel.get_ylim()
    panel.set_ylim(low * (low / high) ** (space / (1 - space)), high)
    for size in crossings.values():
        panel.axvline(size, ymin=space, color="#5a5a5a", linewidth=1, zorder=1)
    notes = [
        f"{VARIANTS[name].title} overtakes {VARIANTS[baseline].title} at {round(size):,}"
        for name, size in sorted(crossings.items(), key=lambda crossing: crossing[1])
    ]
    panel.annotate("\n".join(notes), (0.02, 0.02), xycoords="axes fraction", fontsize=8, color="#444444")
