"""What looking at the attention heads costs, as a share of the default experiment: `python benchmarks/heads.py`.

Steps, validations and looks are timed in turns in one process, so that whatever slows the machine slows all three.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch

from posenc.model import Transformer
from posenc.objectives.objective import loss
from posenc.positions import Rotary
from posenc.training import environment
from posenc.training.attention_probe import Heads
from posenc.training.optim import AdamWCosine

STEPS_A_LOOK, BATCH, CONTEXT, WINDOWS = 10, 16, 256, 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1, help="as many as a run gets")
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    windows = torch.randint(90, (WINDOWS, CONTEXT + 1), generator=torch.Generator().manual_seed(0))
    model = Transformer(256, CONTEXT, layers=4, width=128, heads=4, scheme=Rotary(32))
    optimiser, _ = AdamWCosine(0.003, 0.1, 0.1, [0.9, 0.95], 0.1, 1.0).build(model, 300)
    heads = Heads(windows, CONTEXT, every=1)

    def step() -> None:
        batch = windows[:BATCH]
        loss(model(batch[:, :-1]), batch[:, 1:]).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()

    def validate() -> None:
        with torch.inference_mode():
            for batch in windows.split(BATCH):
                loss(model(batch[:, :-1]), batch[:, 1:]).item()

    def look() -> None:
        with torch.inference_mode():
            heads.measure(model)

    parts: dict[str, Callable[[], None]] = {"step": step, "validation": validate, "look": look}
    times: dict[str, list[float]] = {name: [] for name in parts}
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for _ in range(given.rounds + 2):
            for name, part in parts.items():
                begun = time.perf_counter()
                part()
                times[name].append(time.perf_counter() - begun)
    seconds = {name: statistics.median(values[2:]) for name, values in times.items()}
    whole = STEPS_A_LOOK * seconds["step"] + seconds["validation"] + seconds["look"]
    print(f"{environment.hardware(torch.device('cpu'))}, torch {torch.__version__}, bf16")
    for name, value in seconds.items():
        print(f"{name:10} {1000 * value:6.1f} ms")
    print(f"looking at the heads takes {seconds['look'] / whole:.2%} of {STEPS_A_LOOK} steps, a validation and a look")


if __name__ == "__main__":
    main()
