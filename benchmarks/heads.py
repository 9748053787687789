"""Cost of the attention probe as a share of the default experiment: `python benchmarks/heads.py`.

Steps, validations and probes are timed in interleaved rounds in one process.
"""

import statistics

import torch
from options import Parser
from output import environment
from timing import time_interleaved

from posenc.config.compose import composed
from posenc.config.files import CONF
from posenc.config.instantiate import build
from posenc.objectives.objective import loss_of
from posenc.training.attention_probe import AttentionProbe
from posenc.training.experiment import Experiment


def main() -> None:
    parser = Parser(__doc__)
    parser.add_threads()
    parser.add_rounds(15)
    parser.set_defaults(threads=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    config, _ = composed(CONF, ["trainer=cpu", "trainer.precision=bf16-mixed"])
    experiment, cpu = Experiment.of(config), torch.device("cpu")
    size = (config["eval_windows"], experiment.window)
    windows = torch.randint(90, size, generator=torch.Generator().manual_seed(0))
    batches = [(batch[:, :-1], batch[:, 1:]) for batch in windows.split(config["batch_size"])]
    training_step = experiment.training_step(build(config, "trainer"), cpu)
    attention_probe = AttentionProbe(windows, config["context"])

    def validate() -> None:
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
            for batch in batches:
                loss_of(experiment.model, *batch).item()

    def probe() -> None:
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
            attention_probe.measure(experiment.model)

    functions = {"step": lambda: training_step(*batches[0]), "validation": validate, "probe": probe}
    times = time_interleaved(functions, given.rounds, warm_up=2)
    seconds = {name: statistics.median(values) for name, values in times.items()}
    every = config["attention_every"]
    share = seconds["probe"] / (every * seconds["step"] + seconds["validation"] + seconds["probe"])
    print(f"{environment(cpu)}, bf16")
    for name, value in seconds.items():
        print(f"{name:10} {1000 * value:6.1f} ms")
    print(f"the attention probe takes {share:.2%} of {every} steps, one validation and one probe")


if __name__ == "__main__":
    main()
