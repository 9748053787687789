"""What a training step costs with each position scheme, against the sinusoid's: `python benchmarks/schemes.py`.

All schemes take their steps in turns in one process, so that whatever slows the machine slows them all.
"""

import argparse
import statistics
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
import turns

from posenc.config.compose import composed
from posenc.config.instantiate import build
from posenc.training import environment
from posenc.training.experiment import Experiment

CONF = Path(__file__).parent.parent / "conf"
SCHEMES = "none,learned,sinusoidal,rope,rope_partial,xpos,alibi,t5"


def trained(overrides: list[str], device: torch.device) -> Callable[[], torch.Tensor]:
    """A training step of what a command line describes."""
    config, _ = composed(CONF, overrides)
    experiment = Experiment.of(config)
    shape = (config["batch_size"], config["context"] + 1)
    vocabulary, draw = experiment.objective.vocab_size, torch.Generator().manual_seed(0)
    tokens = torch.randint(vocabulary, shape, generator=draw).to(device)
    update = experiment.training_step(replace(build(config, "trainer"), precision="bf16-mixed"), device)
    return lambda: update(tokens[:, :-1], tokens[:, 1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("overrides", nargs="*", help="as for train.py: model=base context=1024 batch_size=32")
    parser.add_argument(
        "--schemes",
        default=SCHEMES,
        help="names in conf/pos, the sinusoid among them; 'rope trainer.compile=true' is one too",
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=3, help="of each scheme in a round")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    device = torch.device(given.device)
    torch._dynamo.config.recompile_limit = 64  # each scheme is a graph of its own
    steps = {name: trained([*given.overrides, *f"pos={name}".split()], device) for name in given.schemes.split(",")}
    parts = {name: (lambda step=step: [step() for _ in range(given.steps)]) for name, step in steps.items()}
    times = turns.in_turns(parts, given.rounds, device, warm_up=2)
    print(f"{environment.hardware(device)}, torch {torch.__version__}, bf16; {' '.join(given.overrides) or 'default'}")
    print("| scheme | ms a step, median | against sinusoidal, median of rounds | middle half of the rounds |")
    print("|---|---|---|---|")
    for name, values in times.items():
        ratios = [one / other for one, other in zip(values, times["sinusoidal"], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        milliseconds = 1000 * statistics.median(values) / given.steps
        print(f"| {name} | {milliseconds:.1f} | {middle:.3f} | {low:.3f} to {high:.3f} |")


if __name__ == "__main__":
    main()
