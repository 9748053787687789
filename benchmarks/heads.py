"""What looking at the attention heads costs, as a share of the default experiment: `python benchmarks/heads.py`.

Steps, validations and looks are timed in turns in one process, so that whatever slows the machine slows all three.
"""

import argparse
import statistics

import torch
import turns

from posenc.model import Transformer
from posenc.objectives.objective import loss
from posenc.positions import Rotary
from posenc.training import environment
from posenc.training.attention_probe import AttentionProbe
from posenc.training.optim import AdamW
from posenc.training.step import TrainingStep

STEPS_A_LOOK, BATCH, CONTEXT, WINDOWS = 10, 16, 256, 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1, help="as many as a run gets")
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    windows = torch.randint(90, (WINDOWS, CONTEXT + 1), generator=torch.Generator().manual_seed(0))
    model = Transformer(256, CONTEXT, layers=4, width=128, heads=4, scheme=Rotary(32))
    update = TrainingStep(model, lambda inputs, targets: loss(model(inputs), targets), AdamW(0.003), autocast="cpu")
    probe = AttentionProbe(windows, CONTEXT)

    def step() -> None:
        update(windows[:BATCH, :-1], windows[:BATCH, 1:])

    def validate() -> None:
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
            for batch in windows.split(BATCH):
                loss(model(batch[:, :-1]), batch[:, 1:]).item()

    def look() -> None:
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
            probe.measure(model)

    parts = {"step": step, "validation": validate, "look": look}
    times = turns.in_turns(parts, given.rounds, torch.device("cpu"), warm_up=2)
    seconds = {name: statistics.median(values) for name, values in times.items()}
    whole = STEPS_A_LOOK * seconds["step"] + seconds["validation"] + seconds["look"]
    print(f"{environment.hardware(torch.device('cpu'))}, torch {torch.__version__}, bf16")
    for name, value in seconds.items():
        print(f"{name:10} {1000 * value:6.1f} ms")
    print(f"looking at the heads takes {seconds['look'] / whole:.2%} of {STEPS_A_LOOK} steps, a validation and a look")


if __name__ == "__main__":
    main()
