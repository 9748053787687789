"""What the loop around the training step costs: `python benchmarks/loop.py`.

The loop of train.py, with Lightning, all callbacks, the curve on disk and W&B's files (offline), against a bare loop
over the same model and the same batches, in turns in one process. Neither counts start, compilation, validation or
checkpoints.
"""

import argparse
import os
import statistics
import tempfile
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from unittest.mock import patch

CONF = Path(__file__).parent.parent / "conf"
OURS = ("training", "waiting for a batch", "logging", "loop")
UNTIMED = 3
"""Steps of the bare loop before those that count: compilation, and the recording of a CUDA graph at its second call."""


def with_lightning(config: Any, choices: dict[str, str]) -> dict[str, float]:
    """Milliseconds a step of a whole run, by phase."""
    from posenc.training.run import run

    spent = run(config, choices)["time"]
    return {phase: 1000 * spent.get(phase, 0.0) / config.steps for phase in OURS}


def bare(config: Any, choices: dict[str, str]) -> float:
    """Milliseconds a step of the same updates, written down plainly."""
    import torch

    from posenc.config.instantiate import build
    from posenc.training.accelerator import best_device
    from posenc.training.experiment import Experiment

    hardware, experiment = build(config, "trainer"), Experiment.of(config)
    device = torch.device("cpu") if hardware.accelerator == "cpu" else best_device()
    batches = experiment.batches(experiment.prepare(build(config, "data"), choices["data"])).on(device)
    update = experiment.training_step(hardware, device)

    def take(steps: range) -> None:
        for batch in batches.stream(steps.start, steps.stop):
            loss = update(*experiment.objective.inputs_and_targets(*(part.to(device) for part in batch)))
        loss.item()  # on a GPU: until all that was asked for is done

    take(range(UNTIMED))
    begun = time.perf_counter()
    take(range(UNTIMED, UNTIMED + config.steps))
    return 1000 * (time.perf_counter() - begun) / config.steps


def compiled_once() -> AbstractContextManager[object]:
    """Keep what has been compiled from round to round: a run would discard it, as the next may be of another scheme."""
    return patch("torch.compiler.reset")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("overrides", nargs="*", help="as for train.py: model=small batch_size=64")
    parser.add_argument("--steps", type=int, default=40, help="of each loop in a round")
    parser.add_argument("--rounds", type=int, default=8)
    given = parser.parse_args()
    os.environ |= {"WANDB_MODE": "offline", "WANDB_SILENT": "true"}
    import torch

    from posenc.config.compose import composed
    from posenc.config.instantiate import build
    from posenc.training import environment
    from posenc.training.accelerator import best_device

    ours: list[dict[str, float]] = []
    theirs: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        steps = [f"steps={given.steps}", f"eval_every={given.steps}", "name=loop", "rerun=true", f"runs={folder}"]
        config, choices = composed(CONF, [*steps, *given.overrides])
        config.trainer.compile = build(config, "trainer").compiles()  # however few the steps
        with compiled_once():
            for _ in range(given.rounds + 1):
                ours.append(with_lightning(config, choices))
                theirs.append(bare(config, choices))
    totals = [sum(phases.values()) for phases in ours]
    ratios = [one / other for one, other in zip(totals[1:], theirs[1:], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    print(
        f"\n{environment.hardware(best_device())}, torch {torch.__version__}; {' '.join(given.overrides) or 'default'}"
    )
    print("| | ms a step, median |\n|---|---|")
    print(f"| bare loop | {statistics.median(theirs[1:]):.2f} |")
    print(f"| train.py | {statistics.median(totals[1:]):.2f} |")
    for phase in OURS:
        print(f"| of that {phase} | {statistics.median(phases[phase] for phases in ours[1:]):.3f} |")
    print(
        f"\ntrain.py takes {middle:.3f} times the bare loop's time (middle half of the rounds {low:.3f} to {high:.3f})"
    )


if __name__ == "__main__":
    main()
