"""Duration of a training step with each position scheme, relative to the first: `python benchmarks/schemes.py`.

All schemes train in interleaved rounds in one process.
"""

import statistics
from collections.abc import Callable

import torch
from options import Parser
from output import environment, table
from timing import ratios, spread, time_interleaved

from posenc.config.command_line import one_sentence_errors
from posenc.config.compose import composed
from posenc.config.files import CONF
from posenc.config.instantiate import build
from posenc.training.experiment import Experiment

SCHEMES = "sinusoidal,none,learned,rope,rope_partial,xpos,alibi,t5"


def training_step(overrides: list[str]) -> tuple[Callable[[], torch.Tensor], torch.device]:
    """A step of what the overrides configure, on one batch of random tokens, and its device."""
    config, _ = composed(CONF, ["trainer.precision=bf16-mixed", *overrides])
    experiment, hardware = Experiment.of(config), build(config, "trainer")
    shape = (config["batch_size"], config["context"] + 1)
    vocab_size, generator = experiment.objective.vocab_size, torch.Generator().manual_seed(0)
    tokens = torch.randint(vocab_size, shape, generator=generator).to(hardware.device)
    step = experiment.training_step(hardware, hardware.device)
    return lambda: step(tokens[:, :-1], tokens[:, 1:]), hardware.device


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("overrides", nargs="*", help="as for train.py: model=base context=1024 batch_size=32")
    parser.add_argument(
        "--schemes",
        default=SCHEMES,
        help="names in conf/pos; overrides may follow: 'rope trainer.compile=true'",
    )
    parser.add_threads()
    parser.add_rounds(20, steps=3)
    given = parser.parse_intermixed_args()
    torch.set_num_threads(given.threads)
    torch._dynamo.config.recompile_limit = 64  # each scheme is a graph of its own
    names = given.schemes.split(",")
    steps = {}
    for name in names:
        overrides = [*given.overrides, *f"pos={name}".split()]
        with one_sentence_errors(overrides, CONF):
            steps[name], device = training_step(overrides)
    times = time_interleaved(steps, given.rounds, given.steps, warm_up=2)
    settings = " ".join(["trainer.precision=bf16-mixed", *given.overrides])
    print(f"{environment(device)}; {settings}\n")
    rows = []
    for name, seconds in times.items():
        median, low, high = spread(ratios(seconds, times[names[0]]))
        rows.append([name, f"{1000 * statistics.median(seconds):.1f}", f"{median:.3f}", f"{low:.3f} to {high:.3f}"])
    print(table(["scheme", "ms per step, median", f"relative to {names[0]}, median", "range"], rows))


if __name__ == "__main__":
    main()
