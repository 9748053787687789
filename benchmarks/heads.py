"""Cost of the attention probe as a share of the default experiment: `python benchmarks/heads.py`.

Steps, validations and probes are timed in interleaved rounds in one process.
"""

import statistics

import torch
from options import Parser
from output import environment
from timing import time_interleaved

from posenc.model import Transformer
from posenc.objectives.objective import loss
from posenc.positions import Rotary
from posenc.training.attention_probe import AttentionProbe
from posenc.training.optim import AdamW
from posenc.training.step import TrainingStep

STEPS_PER_PROBE, BATCH, CONTEXT, WINDOWS = 10, 16, 256, 64


def main() -> None:
    parser = Parser(__doc__)
    parser.add_threads()
    parser.add_rounds(15)
    parser.set_defaults(threads=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    windows = torch.randint(90, (WINDOWS, CONTEXT + 1), generator=torch.Generator().manual_seed(0))
    model = Transformer(256, CONTEXT, layers=4, width=128, heads=4, scheme=Rotary(32))
    update = TrainingStep(model, lambda inputs, targets: loss(model(inputs), targets), AdamW(0.003), autocast="cpu")
    attention_probe = AttentionProbe(windows, CONTEXT)

    def step() -> None:
        update(windows[:BATCH, :-1], windows[:BATCH, 1:])

    def validate() -> None:
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
            for batch in windows.split(BATCH):
                loss(model(batch[:, :-1]), batch[:, 1:]).item()

    def probe() -> None:
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
            attention_probe.measure(model)

    times = time_interleaved({"step": step, "validation": validate, "probe": probe}, given.rounds, warm_up=2)
    seconds = {name: statistics.median(values) for name, values in times.items()}
    total = STEPS_PER_PROBE * seconds["step"] + seconds["validation"] + seconds["probe"]
    print(f"{environment(torch.device('cpu'))}, bf16")
    for name, value in seconds.items():
        print(f"{name:10} {1000 * value:6.1f} ms")
    share = seconds["probe"] / total
    print(f"the attention probe takes {share:.2%} of {STEPS_PER_PROBE} steps, one validation and one probe")


if __name__ == "__main__":
    main()
