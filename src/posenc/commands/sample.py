"""Generate text from a run's last checkpoint: `python -m posenc.sample <run directory> --prompt "In the beginning"`."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from posenc.config.arguments import Arguments, bounded
from posenc.errors import printable_lines
from posenc.evaluation.load import load, newest_run

MAX_TOKENS = 1_000_000
"""More would take days."""

RUN = Arguments(add_help=False)
"""The argument of the commands that use one run."""

RUN.add_argument("run", type=Path, nargs="+", help="runs/<name>/<pos>/seed..., or a parent folder; uses the newest run")


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = Arguments(prog="posenc sample", description="Generate text from a run's last checkpoint.", parents=[RUN])
    parser.add_argument("--prompt", type=_text, help="text to continue; a masked model replaces each _ in it")
    parser.add_argument(
        "--tokens",
        type=bounded(int, 1, MAX_TOKENS),
        default=500,
        help="number of tokens to generate (default: 500); this and the options below: causal models only",
    )
    # Below 0.01, the softmax overflows; above 100, it is uniform.
    parser.add_argument(
        "--temperature", type=bounded(float, 0.01, 100.0), default=0.8, help="from 0.01 to 100 (default: 0.8)"
    )
    parser.add_argument("--seed", type=bounded(int, 0, 2**63 - 1), default=0, help="of the sampled tokens (default: 0)")
    with parser.parsed(arguments) as given:
        trained = load(newest_run(given.run))
        objective, context = trained.objective, trained.config["context"]
        prompt = given.prompt or objective.prompt
        from posenc.objectives.objective import Sampling
        from posenc.training.accelerator import best_device

        sampling = Sampling(given.tokens, given.temperature, given.seed)
        text = objective.sample(trained.model.to(best_device()), trained.tokenizer, prompt, context, sampling)
        print(printable_lines(text))  # a byte-level model may generate control characters


def _text(prompt: str) -> str:
    try:
        prompt.encode()
    except UnicodeEncodeError:
        prompt = ""
    if not prompt:
        raise argparse.ArgumentTypeError("it must be non-empty UTF-8 text")
    return prompt


if __name__ == "__main__":
    main()
