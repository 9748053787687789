"""What `scaling.py` measured, as tables, sentences and a figure; it needs no torch."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from posenc.report.looks import LOOKS, Look

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Results = Mapping[str, Any]
"""Plain data: for each axis its points, for each of them tokens/s by contender and round, or why there are none."""


class Contender(NamedTuple):
    """What it is called and how it is drawn; all but one have RoPE."""

    title: str
    look: Look


CONTENDERS = {
    "rope": Contender("softmax", LOOKS["rope"]),
    "none": Contender("softmax, no RoPE", LOOKS["none"]),
    "favor": Contender("FAVOR+", Look("#000000", "dash")),
    "elu": Contender("elu + 1", Look("#56B4E9", "dashdot")),
}

AXES = {"length": ("rope", "favor", "elu"), "width": ("none", "rope"), "batch": ("none", "rope")}
"""Who is measured on each; the first is what the others are held against."""

DASHES = {"solid": "-", "dash": (0, (6, 2)), "dot": (0, (1.2, 1.6)), "dashdot": (0, (6, 2, 1.2, 2))}


@dataclass(frozen=True)
class Axis:
    """The points of one axis.

    Args:
        name: length, width or batch.
        points: from small to large.
    """

    name: str
    points: Sequence[Mapping[str, Any]]

    @property
    def held(self) -> str:
        """What does not vary."""
        first = self.points[0]
        return {
            "length": f"width {first['width']:,}, {first['length'] * first['batch']:,} tokens a step",
            "width": f"{first['batch']:,} windows of {first['length']:,} tokens a step",
            "batch": f"windows of {first['length']:,} tokens, width {first['width']:,}",
        }[self.name]

    def speeds(self, name: str) -> dict[int, list[float]]:
        """Tokens/s of a contender by size, one a round, where it was measured."""
        return {point[self.name]: point["tokens_per_s"][name] for point in self.points if name in point["tokens_per_s"]}

    def ratios(self, name: str) -> dict[int, list[float]]:
        """Its tokens/s over the first contender's by size, one a round, where both were measured."""
        first = self.speeds(AXES[self.name][0])
        return {
            size: [mine / other for mine, other in zip(speeds, first[size], strict=True)]
            for size, speeds in self.speeds(name).items()
            if size in first
        }


def axes(results: Results) -> list[Axis]:
    return [Axis(name, points) for name, points in results["axes"].items()]


def crossover(sizes: Sequence[float], ratios: Sequence[float]) -> float | None:
    """The size from which on a ratio is above 1, between two sizes by a straight line in logarithms.

    None if the ratio is below 1 at the last size, or nowhere.
    """
    logs = [math.log(ratio) for ratio in ratios]
    below = max((number for number, log in enumerate(logs) if log < 0), default=-1)
    if below in (-1, len(logs) - 1):
        return None
    share = logs[below] / (logs[below] - logs[below + 1])
    return sizes[below] * (sizes[below + 1] / sizes[below]) ** share


def overtakes(axis: Axis, name: str) -> tuple[float, float, float] | None:
    """Where a contender overtakes the first: by the median of the ratios, and over the rounds at least and at most.

    None if it does not, or not in every round.
    """
    ratios = axis.ratios(name)
    rounds = [crossover(list(ratios), each) for each in zip(*ratios.values(), strict=True)]
    middle = crossover(list(ratios), [median(each) for each in ratios.values()])
    known = [size for size in rounds if size is not None]
    return (middle, min(known), max(known)) if middle is not None and len(known) == len(rounds) else None


def markdown(results: Results) -> str:
    """Everything that was measured, as scaling.md."""
    compiled = "torch.compile" if results["compiled"] else "not compiled"
    versions = results["versions"]
    head = f"""\
# How training tokens/s change with length, width and batch

`{results["command"]}`, {results["hardware"]}, {results["precision"]}, {compiled}, torch {versions["torch"]}, \
Python {versions["python"]}, {results["date"]}

Training on random bytes: forward, backward, clipping and AdamW; {_layers(results["layers"])}, heads of \
{results["head_dim"]} channels, RoPE but where it says otherwise. FAVOR+ and elu + 1 are linear attention. Tokens/s are
the median of {results["rounds"]} rounds, in each of which all points of an axis are timed in turns; a ratio is the
median of the rounds' ratios, with the smallest and the largest.

![Tokens/s over length, width and batch](scaling.png)
"""
    return "\n".join([head, *(f"{_table(axis)}\n{_sentences(axis)}" for axis in axes(results))])


def _layers(number: int) -> str:
    return "1 layer" if number == 1 else f"{number} layers"


def _table(axis: Axis) -> str:
    first, *others = AXES[axis.name]
    against = [f"{CONTENDERS[name].title} / {CONTENDERS[first].title}" for name in others]
    rows = [[axis.name, "tokens a step", *(CONTENDERS[name].title for name in (first, *others)), *against]]
    rows.append(["---:"] * len(rows[0]))
    for point in axis.points:
        size = point[axis.name]
        speeds = [axis.speeds(name).get(size) for name in (first, *others)]
        ratios = [axis.ratios(name).get(size) for name in others]
        cells = ["–" if each is None else f"{median(each):,.0f}" for each in speeds]
        cells += ["–" if each is None else f"{median(each):.2f} ({min(each):.2f}–{max(each):.2f})" for each in ratios]
        rows.append([f"{size:,}", f"{point['length'] * point['batch']:,}", *cells])
    lines = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"## Tokens/s over {axis.name} ({axis.held})\n\n{lines}\n"


def _sentences(axis: Axis) -> str:
    """What was left out, how tokens/s change from the first size to the last, and where the contenders cross."""
    said = []
    for name in AXES[axis.name]:
        gaps = [point for point in axis.points if name in point["left_out"]]
        if gaps:
            size, why = gaps[0][axis.name], gaps[0]["left_out"][name]
            said.append(f"{CONTENDERS[name].title} is left out from {axis.name} {size:,} on: {why}.")
    said += _growth(axis)
    if axis.name == "length":
        said += [_crossing(axis, name) for name in AXES[axis.name][1:] if axis.ratios(name)]
    return "".join(f"- {sentence}\n" for sentence in said)


def _growth(axis: Axis) -> list[str]:
    """Tokens/s at the last size that all contenders have over those at the first; nothing to say of one size."""
    speeds = {name: axis.speeds(name) for name in AXES[axis.name]}
    sizes = [size for size in speeds[AXES[axis.name][0]] if all(size in each for each in speeds.values())]
    if len(sizes) < 2:
        return []
    first, last = sizes[0], sizes[-1]
    times = (
        f"{CONTENDERS[name].title} {median(each[last]) / median(each[first]):.2f}" for name, each in speeds.items()
    )
    return [f"Tokens/s at {axis.name} {last:,} over those at {first:,}: {', '.join(times)}."]


def _crossing(axis: Axis, name: str) -> str:
    title, other = CONTENDERS[name].title, CONTENDERS[AXES[axis.name][0]].title
    middle = {size: median(each) for size, each in axis.ratios(name).items()}
    smallest, largest = min(middle), max(middle)
    where = overtakes(axis, name)
    if where is not None:
        size, low, high = (f"{round(each):,}" for each in where)
        return f"**{title} overtakes {other} at length {size}** ({low} to {high} over the rounds), by interpolation."
    if middle[largest] < 1:
        return (
            f"{title} does not overtake {other} up to {largest:,}: there it has {middle[largest]:.2f} times its speed."
        )
    if min(middle.values()) >= 1:
        return f"{title} is the faster one from {smallest:,} on."
    return f"{title} overtakes {other} before {largest:,}, but not in every round."


def drawn(results: Results) -> "Figure":
    """A panel an axis: tokens/s on logarithmic scales, with the range over the rounds."""
    import matplotlib
    from matplotlib.figure import Figure

    from posenc.report.figures import STYLE

    there = axes(results)
    most = max(len(axis.points) for axis in there)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(10, 4.2), layout="constrained")
        widths = [2 * len(axis.points) + most for axis in there]
        panels = figure.subplots(1, len(there), squeeze=False, width_ratios=widths)[0]
        for panel, axis in zip(panels, there, strict=True):
            _scales(panel, [point[axis.name] for point in axis.points])
            for name in AXES[axis.name]:
                _draw(panel, axis.speeds(name), *CONTENDERS[name])
            if axis.name == "length":
                _mark_crossings(panel, axis)
            panel.set_title(axis.held, loc="left", fontsize=10)
            panel.set_xlabel({"length": "length, tokens", "width": "width", "batch": "windows a step"}[axis.name])
        panels[0].set_ylabel("training tokens/s")
        entries = [panel.get_legend_handles_labels() for panel in panels]
        handles = {label: handle for entry in entries for handle, label in zip(*entry, strict=True)}
        figure.legend(
            handles.values(), handles.keys(), loc="outside lower center", ncols=4, frameon=False, handlelength=4
        )
    return figure


def _scales(panel: Any, sizes: Sequence[int]) -> None:
    """Doublings across, of which every second has a number where there are many; round tokens/s upwards."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    every = 1 if len(sizes) <= 6 else 2
    panel.set_xscale("log", base=2)
    panel.set_xticks(
        sizes, [f"{size:,}" if number % every == 0 else "" for number, size in enumerate(sizes[::-1])][::-1]
    )
    panel.minorticks_off()
    panel.set_xlim(0.85 * sizes[0], sizes[-1] / 0.85)
    panel.set_yscale("log")
    panel.yaxis.set_major_locator(LogLocator(base=10, subs=(1, 1.5, 2, 3, 5, 7)))
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / 1000:g}k"))
    panel.yaxis.set_minor_formatter(NullFormatter())


def _draw(panel: Any, speeds: Mapping[int, Sequence[float]], title: str, look: Look) -> None:
    sizes, rounds = list(speeds), list(speeds.values())
    panel.fill_between(
        sizes, list(map(min, rounds)), list(map(max, rounds)), color=look.colour, alpha=0.18, linewidth=0
    )
    panel.plot(
        sizes, list(map(median, rounds)), color=look.colour, label=title,
        linestyle=DASHES[look.dash], linewidth=1.8, marker="o", markersize=3.5,
    )  # fmt: skip


def _mark_crossings(panel: Any, axis: Axis) -> None:
    """A line where linear attention overtakes softmax, and room under the curves to say so."""
    first, *others = AXES[axis.name]
    crossings = {name: where[0] for name in others if (where := overtakes(axis, name)) is not None}
    room = 0.07 * len(crossings)
    low, high = panel.get_ylim()
    panel.set_ylim(low * (low / high) ** (room / (1 - room)), high)
    for size in crossings.values():
        panel.axvline(size, ymin=room, color="#5a5a5a", linewidth=1, zorder=1)
    said = [
        f"{CONTENDERS[name].title} overtakes {CONTENDERS[first].title} at {round(size):,}"
        for name, size in sorted(crossings.items(), key=lambda crossing: crossing[1])
    ]
    panel.annotate("\n".join(said), (0.02, 0.02), xycoords="axes fraction", fontsize=8, color="#444444")
