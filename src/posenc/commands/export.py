"""Convert a run's last checkpoint to a Hugging Face transformers model: `posenc export runs/... --to hf`."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from posenc.commands.sample import RUN
from posenc.config.arguments import Arguments
from posenc.errors import UserError, needed_for, printable
from posenc.evaluation.load import load, newest_run


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = Arguments(prog="posenc export", description=__doc__, parents=[RUN])
    parser.add_argument("--to", choices=["hf"], default="hf", help="hf: config.json, model.safetensors, tokenizer.json")
    parser.add_argument("--out", type=Path, help="output folder; default: hf in the run directory")
    with parser.parsed(arguments) as given:
        run = newest_run(given.run)
        folder = export(run, given.out or run / "hf")
        print(f"Written to {printable(str(folder))}: AutoModelForCausalLM.from_pretrained({str(folder)!r})")


def export(run: Path, folder: Path) -> Path:
    """Write a run's model and tokenizer in the format of transformers, with the same logits.

    Raises:
        UserError: if the run cannot be read, transformers has no such model, or the folder cannot be written to.
    """
    from posenc.evaluation.huggingface import convert
    from posenc.storage.atomic import PARTIAL, atomic_write, check_writable

    with needed_for("posenc export"):
        from safetensors.torch import save
    trained = load(run)
    config, weights = convert(trained)
    tokenizer = trained.tokenizer.to_json()
    check_writable(f"--out={folder}", folder)
    if folder.exists():
        raise UserError(f"--out={folder} already exists: choose another folder, or delete it")
    described = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": trained.config["context"],
        # transformers 4 would add token_type_ids, which GPT-2 embeds as tokens, and the others reject.
        "model_input_names": ["input_ids", "attention_mask"],
    }
    folder = Path(os.path.normpath(folder))  # the parent of a/.. is not a
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.parent, prefix=PARTIAL) as temporary:
        partial = Path(temporary, folder.name)  # with the usual permissions, which a temporary folder lacks
        partial.mkdir()
        atomic_write(partial / "model.safetensors", save(weights, metadata={"format": "pt"}))
        atomic_write(partial / "tokenizer.json", tokenizer)
        atomic_write(partial / "tokenizer_config.json", json.dumps(described, indent=1) + "\n")
        atomic_write(partial / "config.json", json.dumps(config, indent=1) + "\n")
        partial.rename(folder)
    return folder


if __name__ == "__main__":
    main()
