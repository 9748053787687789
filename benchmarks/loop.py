"""Overhead of train.py's loop over a bare training loop: `python benchmarks/loop.py`.

train.py's loop has Lightning, all callbacks, metrics.csv and W&B's files (offline). The bare loop trains the same model
on the same batches. Both run in interleaved rounds in one process. Start-up, compilation, validation and checkpoints
are not counted. A run rounds the time of each phase to a millisecond, so fast steps need a larger --steps.
"""

import os
import tempfile
from collections.abc import Sequence
from statistics import median
from typing import Any
from unittest.mock import patch

from options import Parser

PHASES = ("training", "waiting for a batch", "logging", "loop")
WARM_UP = 3
"""Untimed steps of the bare loop: for compilation, and for recording a CUDA graph at the second call."""


def compiles(overrides: Sequence[str]) -> bool:
    """Whether train.py compiles the whole run, which has more steps than a round."""
    from posenc.config.compose import composed
    from posenc.config.files import CONF
    from posenc.config.instantiate import build
    from posenc.training.experiment import Experiment

    config, _ = composed(CONF, overrides)
    return Experiment.of(config).choose_compile(build(config, "trainer")).compiles()


def run_phases(config: Any, choices: dict[str, str]) -> dict[str, float]:
    """Train a run; milliseconds per step of each phase."""
    from posenc.training.run import run

    seconds = run(config, choices)["time"]
    return {phase: 1000 * seconds.get(phase, 0.0) / config.steps for phase in PHASES}


def bare_loop(config: Any, choices: dict[str, str]) -> float:
    """Milliseconds per step of the same updates without Lightning."""
    from timing import elapsed

    from posenc.config.instantiate import build
    from posenc.training.experiment import Experiment

    hardware, experiment = build(config, "trainer"), Experiment.of(config)
    device = hardware.device
    batches = experiment.batches(experiment.prepare(build(config, "data"), choices["data"])).on(device)
    training_step = experiment.training_step(hardware, device)

    def train(steps: range) -> None:
        for batch in batches.stream(steps.start, steps.stop):
            training_step(
                *experiment.objective.inputs_and_targets(*(part.to(device, non_blocking=True) for part in batch))
            )

    train(range(WARM_UP))
    training_step.optimizer.state.clear()  # created by the first step, which is timed in a run too
    return 1000 * elapsed(lambda: train(range(WARM_UP, WARM_UP + config.steps))) / config.steps


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("overrides", nargs="*", help="as for train.py: model=small batch_size=64")
    parser.add_rounds(8, steps=40)
    given = parser.parse_intermixed_args()
    os.environ |= {"WANDB_MODE": "offline", "WANDB_SILENT": "true"}
    from output import environment, table
    from timing import ratios, spread

    from posenc.config.command_line import one_sentence_errors
    from posenc.config.compose import composed
    from posenc.config.files import CONF
    from posenc.config.instantiate import build

    lightning: list[dict[str, float]] = []
    bare: list[float] = []
    with one_sentence_errors(given.overrides, CONF), tempfile.TemporaryDirectory() as folder:
        steps = [f"steps={given.steps}", f"eval_every={given.steps}", "name=loop", "rerun=true", f"runs={folder}"]
        config, choices = composed(CONF, [*steps, *given.overrides])
        config.trainer.compile = compiles(given.overrides)
        device = build(config, "trainer").device
        # A run discards compiled code, since the next may have another scheme; here it is reused between rounds.
        with patch("torch.compiler.reset"):
            for _ in range(given.rounds + 1):  # the first is a warm-up
                lightning.append(run_phases(config, choices))
                bare.append(bare_loop(config, choices))
    totals = [sum(phases.values()) for phases in lightning]
    rows = [["bare loop", f"{median(bare[1:]):.2f}"], ["train.py", f"{median(totals[1:]):.2f}"]]
    rows += [[f"of which {name}", f"{median(one[name] for one in lightning[1:]):.3f}"] for name in PHASES]
    print(f"\n{environment(device)}; {' '.join(given.overrides) or 'default'}\n")
    print(table(["", "ms per step, median"], rows))
    extra = spread(total - alone for total, alone in zip(totals[1:], bare[1:], strict=True))
    times = spread(ratios(totals[1:], bare[1:])).text(".3f")
    print(f"\ntrain.py takes {times} times as long as the bare loop, {extra.text('.2f')} ms more per step")


if __name__ == "__main__":
    main()
