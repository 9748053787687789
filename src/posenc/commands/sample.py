"""Generate text from a run's last checkpoint: `python -m posenc.sample <run directory> --prompt "In the beginning"`."""

import argparse
from pathlib import Path

from posenc.config.command_line import Arguments, one_sentence_errors
from posenc.errors import UserError, printable_lines
from posenc.evaluation.load import load, newest

MAX_TOKENS = 1_000_000
"""More would take days."""


def main(given: list[str] | None = None) -> None:
    """The command line."""
    parser = Arguments(prog="posenc sample", description="Generate text from a finished run.")
    parser.add_argument(
        "run", type=Path, nargs="+", help="runs/<experiment>/<pos>/seed..., or a parent folder; uses the newest run"
    )
    parser.add_argument("--prompt", help="text to continue; a masked model replaces each _ in it")
    parser.add_argument("--tokens", type=int, default=500, help="number of tokens to generate (default: 500)")
    parser.add_argument("--temperature", type=float, default=0.8, help="from 0.01 to 100 (default: 0.8)")
    parser.add_argument("--seed", type=int, default=0, help="of the sampled tokens (default: 0)")
    with one_sentence_errors():
        arguments = parser.parse_args(given)
        _check(arguments)
        trained = load(newest(arguments.run))
        objective, context = trained.objective, trained.config["context"]
        prompt = arguments.prompt or objective.prompt
        from posenc.objectives.sampling import Sampling

        sampling = Sampling(arguments.tokens, arguments.temperature, arguments.seed)
        text = objective.sample(trained.model, trained.tokenizer, prompt, context, sampling)
        print(printable_lines(text))  # a byte-level model may generate control characters


def _check(arguments: argparse.Namespace) -> None:
    if not 0.01 <= arguments.temperature <= 100:  # below, the softmax overflows; above, it is uniform
        raise UserError(f"--temperature={arguments.temperature} must be between 0.01 and 100")
    if not 1 <= arguments.tokens <= MAX_TOKENS:
        raise UserError(f"--tokens={arguments.tokens} must be between 1 and {MAX_TOKENS}")
    if not 0 <= arguments.seed < 2**63:
        raise UserError(f"--seed={arguments.seed} must be between 0 and 2^63 - 1")
    if arguments.prompt is not None and not _is_text(arguments.prompt):
        raise UserError("--prompt must be non-empty UTF-8 text")


def _is_text(prompt: str) -> bool:
    try:
        return len(prompt.encode()) > 0
    except UnicodeEncodeError:
        return False


if __name__ == "__main__":
    main()
