"""What a training step costs with each position scheme, against the sinusoid's: `python benchmarks/schemes.py`.

All schemes take their steps in turns in one process, so that whatever slows the machine slows them all.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

from posenc.config.instantiate import build, build_model
from posenc.config.schema import composed
from posenc.objectives.objective import loss_of
from posenc.training import environment
from posenc.training.accelerator import keep_freed_memory

CONF = Path(__file__).parent.parent / "conf"
SCHEMES = "none,learned,sinusoidal,rope,rope_partial,xpos,alibi,t5"


def trained(overrides: list[str], device: torch.device) -> Callable[[], None]:
    """A training step of what a command line describes."""
    config, _ = composed(CONF, overrides)
    objective = build(config, "objective", vocab_size=build(config, "tokenizer").vocab_size)
    model = build_model(config, objective).to(device)
    optimiser, _ = build(config, "optim").build(model, config["steps"])
    shape = (config["batch_size"], config["context"] + 1)
    tokens = torch.randint(objective.vocab_size, shape, generator=torch.Generator().manual_seed(0)).to(device)

    def plain(inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return loss_of(model, inputs, targets)

    compiled = build(config, "trainer").compiled(plain)

    def step() -> None:
        with torch.autocast(device.type, dtype=torch.bfloat16):
            value = compiled(tokens[:, :-1], tokens[:, 1:])
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()

    return step


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
    synchronise = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    torch._dynamo.config.recompile_limit = 64  # each scheme is a graph of its own
    if device.type == "cpu":
        keep_freed_memory()  # as a run does
    steps = {name: trained([*given.overrides, *f"pos={name}".split()], device) for name in given.schemes.split(",")}
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(given.rounds + 2):
        for name, step in steps.items():
            synchronise()
            begun = time.perf_counter()
            for _ in range(given.steps):
                step()
            synchronise()
            times[name].append((time.perf_counter() - begun) / given.steps)
    print(f"{environment.hardware(device)}, torch {torch.__version__}, bf16; {' '.join(given.overrides) or 'default'}")
    print("| scheme | ms a step, median | against sinusoidal, median of rounds | middle half of the rounds |")
    print("|---|---|---|---|")
    for name, values in times.items():
        ratios = [one / other for one, other in zip(values[2:], times["sinusoidal"][2:], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        milliseconds = 1000 * statistics.median(values[2:])
        print(f"| {name} | {milliseconds:.1f} | {middle:.3f} | {low:.3f} to {high:.3f} |")


if __name__ == "__main__":
    main()
