"""What the loop around the training step costs: `python benchmarks/loop.py`.

The loop of train.py, with Lightning, all callbacks, the curve on disk and W&B's files (offline), against a bare loop
over the same model and the same batches, in turns in one process. Neither counts start, validation or checkpoints.
"""

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

CONF = Path(__file__).parent.parent / "conf"
OURS = ("training", "waiting for a batch", "logging", "loop")


def with_lightning(config: Any, choices: dict[str, str]) -> dict[str, float]:
    """Milliseconds a step of a whole run, by phase."""
    from posenc.training.run import run

    spent = run(config, choices)["time"]
    return {phase: 1000 * spent.get(phase, 0.0) / config.steps for phase in OURS}


def bare(config: Any, choices: dict[str, str]) -> float:
    """Milliseconds a step of the same updates, written down plainly."""
    import torch

    from posenc.config.instantiate import build, build_model
    from posenc.data.batches import Batches
    from posenc.data.prepare import prepare
    from posenc.objectives.objective import loss_of
    from posenc.training.accelerator import best_device

    optim, tokenizer, hardware = build(config, "optim"), build(config, "tokenizer"), build(config, "trainer")
    objective = build(config, "objective", vocab_size=tokenizer.vocab_size)
    device = torch.device("cpu") if hardware.accelerator == "cpu" else best_device()
    model = build_model(config, objective).to(device)
    compiled = hardware.compiled(lambda inputs, targets: loss_of(model, inputs, targets))
    window = config.context + objective.lookahead
    text = prepare(build(config, "data"), tokenizer, Path(config.cache), choices["data"], config.context, window).train
    batches = Batches(text, config.seed, config.batch_size, window, objective.draws).on(device)
    optimiser, schedule = optim.build(model, config.steps)
    reduced = hardware.chosen_precision() == "bf16-mixed"
    begun = time.perf_counter()
    for step in range(config.steps):
        batch = batches.batch(step).to(device), batches.noise(step).to(device)
        inputs, targets = objective.examples(*batch)
        with torch.autocast(device.type, torch.bfloat16, enabled=reduced):
            value = compiled(inputs, targets)
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), optim.clip)
        optimiser.step()
        optimiser.zero_grad()
        schedule.step()
    value.item()
    return 1000 * (time.perf_counter() - begun) / config.steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("overrides", nargs="*", help="as for train.py: model=small batch_size=64")
    parser.add_argument("--steps", type=int, default=40, help="of each loop in a round")
    parser.add_argument("--rounds", type=int, default=8)
    given = parser.parse_args()
    os.environ |= {"WANDB_MODE": "offline", "WANDB_SILENT": "true"}
    import torch

    from posenc.config.schema import composed
    from posenc.training import environment
    from posenc.training.accelerator import best_device

    ours: list[dict[str, float]] = []
    theirs: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        steps = [f"steps={given.steps}", f"eval_every={given.steps}", "name=loop", "rerun=true", f"runs={folder}"]
        config, choices = composed(CONF, [*steps, *given.overrides])
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
