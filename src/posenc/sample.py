"""`python -m posenc.sample <run directory> --prompt "In the beginning"`: text from a finished run."""

import argparse
from pathlib import Path
from typing import Any

from posenc.command import one_sentence_errors
from posenc.errors import UserError


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
        model, objective, tokenizer, config = load(arguments.run)
        prompt, wanted = arguments.prompt or objective.prompt, (arguments.tokens, config["context"])
        print(objective.answer(model, tokenizer, prompt, *wanted, arguments.temperature, arguments.seed))


def load(run: Path) -> tuple[Any, Any, Any, dict[str, Any]]:
    """The model, objective, tokenizer and configuration of a run, from its last checkpoint.

    Raises:
        UserError: if there is no run, or no checkpoint in it.
    """
    from omegaconf import OmegaConf

    from posenc.directory import RunDirectory

    if not (run / "config.yaml").exists():
        raise UserError(f"{run} is not a run directory: it has no config.yaml")
    checkpoint = RunDirectory(run, "", "", 0).last_checkpoint()
    if checkpoint is None:
        raise UserError(f"{run} has no checkpoint yet")
    import torch

    from posenc.building import build, build_model

    config: Any = OmegaConf.to_container(OmegaConf.load(run / "config.yaml"))
    tokenizer = build(config, "tokenizer")
    objective = build(config, "objective", vocab_size=tokenizer.vocab_size)
    tokenizer.load(run)
    model = build_model(config, objective)
    weights = torch.load(checkpoint, map_location="cpu", weights_only=True)["state_dict"]
    model.load_state_dict({name.removeprefix("model."): weight for name, weight in weights.items()})
    return model, objective, tokenizer, config


if __name__ == "__main__":
    main()
