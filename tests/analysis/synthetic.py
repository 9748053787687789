"""Runs made up for the tests: losses that fall along known curves."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from posenc.analysis.comparison import Panel, compare
from posenc.analysis.runs import Run
from posenc.analysis.sweep import Sweep
from posenc.storage.lengths_file import TIMES, LengthResult, Lengths

FIXED = {"model": "tiny", "model.layers": 4, "model.width": 128, "context": 256, "steps": 300, "optim.lr": 0.003}


def run(
    scheme: str,
    seed: int,
    pace: float = 1.0,
    upto: int = 300,
    setting: Mapping[str, Any] | None = None,
    finished: bool = True,
    hardware: str = "one",
    head_at: float | None = None,
) -> Run:
    """A run whose loss is that of a run of pace 1 at pace times the step: pace 2 needs half the steps to any loss."""
    step = np.arange(10.0, upto + 1, 10.0)
    loss = 2 + 2 * np.exp(-pace * (step + seed) / 100)
    previous = np.full_like(step, np.nan) if head_at is None else np.where(step < head_at, 0.005, 0.4)
    curve = {
        "step": step, "tokens": step * 4096, "seconds": step / 5, "val_loss": loss,
        "previous_token": previous, "induction": 0.01 * np.isfinite(previous) + 0 * previous,
    }  # fmt: skip
    summary = {
        "parameters": 820_352, "bits_per_byte": loss[-1] / 0.693, "tokens_per_s": 20_000, "hardware": hardware,
        "bigram_loss": 2.9, "precision": "32-true", "commit": "abc", "versions": {"torch": "2"}, "val_loss": loss[-1],
    }  # fmt: skip
    whole = {**FIXED, "precision": "32-true", **(setting or {})}
    return Run(f"{scheme}/{seed}", scheme, seed, 300, whole, curve, summary if finished else {})


def with_lengths(one: Run, slope: float, rows: int | None = None) -> Run:
    """The run evaluated in longer windows: about 2 bits a byte at 256 tokens, `slope` more a doubling, up to `rows`."""

    def entry(times: float) -> LengthResult:
        length = round(256 * times)
        if rows is not None and length > rows:
            return LengthResult(times, length, no_entry=f"it supports only {rows} positions")
        bits = 1.9 + one.seed / 10 + slope * math.log2(times)
        nats = bits * math.log(2)
        edges = (0, 1, 4, 16, 64, 256, *range(320, length, 64), length) if length > 256 else (0, 1, 4, 16, 64, length)
        return LengthResult(times, length, 8, nats, bits, edges, tuple(nats + 1 / (1 + edge) for edge in edges[:-1]))

    return replace(one, lengths=Lengths(one.source, "0f", 256, 1.4, tuple(map(entry, TIMES))))


def sweep(*runs: Run) -> Sweep:
    return Sweep("made-up", runs)


def pair(seeds: int = 3, **rope: Any) -> Sweep:
    """RoPE, twice as fast unless told otherwise, and the sinusoid."""
    settings = {"pace": 2.0, **rope}
    return sweep(
        *(run("rope", seed, **settings) for seed in range(seeds)), *(run("sinusoidal", seed) for seed in range(seeds))
    )


def panels(made_up: Sweep, baseline: str | None = None) -> tuple[Panel, ...]:
    """The sweep, compared."""
    return compare(made_up, baseline).panels


def arm(panel, scheme):
    """The arm of a scheme in a panel."""
    return next(one for one in panel.arms if one.scheme == scheme)
