"""`python -m posenc.sample <run directory> --prompt "In the beginning"`: text from a finished run."""

import argparse
from pathlib import Path

from posenc.command import one_sentence_errors
from posenc.errors import UserError
from posenc.trained import load


def main() -> None:
    """Read the command line, load the run, print."""
    parser = argparse.ArgumentParser(
        prog="python -m posenc.sample", description="Print text that a run's model writes."
    )
    parser.add_argument("run", type=Path, help="a run directory: runs/<experiment>/<pos>/seed...")
    parser.add_argument("--prompt", help="what it goes on from; a masked model fills each _ in it")
    parser.add_argument("--tokens", type=int, default=500, help="how much it writes (default: 500)")
    parser.add_argument("--temperature", type=float, default=0.8, help="above 0; lower is safer (default: 0.8)")
    parser.add_argument("--seed", type=int, default=0, help="another seed, another text (default: 0)")
    arguments = parser.parse_args()
    with one_sentence_errors():
        if not arguments.temperature > 0:
            raise UserError(f"--temperature={arguments.temperature} must be above 0")
        if arguments.tokens < 1 or arguments.prompt == "":
            raise UserError("--tokens must be at least 1 and --prompt must not be empty")
        trained = load(arguments.run)
        objective, context = trained.objective, trained.config["context"]
        prompt = arguments.prompt or objective.prompt
        from posenc.generation import Sampling

        sampling = Sampling(arguments.tokens, arguments.temperature, arguments.seed)
        print(objective.answer(trained.model, trained.tokenizer, prompt, context, sampling))


if __name__ == "__main__":
    main()
