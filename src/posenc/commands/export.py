"""Convert a run's last checkpoint to a Hugging Face transformers model: `posenc export runs/... --to hf`."""

import json
from pathlib import Path

from posenc.config.command_line import Arguments, one_sentence_errors
from posenc.errors import UserError, needed_for
from posenc.evaluation.load import load, newest


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    parser = Arguments(prog="posenc export", description=__doc__)
    parser.add_argument(
        "run", type=Path, nargs="+", help="runs/<experiment>/<pos>/seed..., or a parent folder; uses the newest run"
    )
    parser.add_argument("--to", choices=["hf"], default="hf", help="hf: config.json, model.safetensors, tokenizer.json")
    parser.add_argument("--out", type=Path, help="output folder; default: hf in the run directory")
    with one_sentence_errors():
        given = parser.parse_args(arguments)
        run = newest(given.run)
        folder = export(run, given.out or run / "hf")
        print(f"Written to {folder}: AutoModelForCausalLM.from_pretrained({str(folder)!r})")


def export(run: Path, folder: Path) -> Path:
    """Write a run's model and tokenizer in the format of transformers, with the same logits.

    Raises:
        UserError: if the run cannot be read, transformers has no such model, or the folder cannot be written to.
    """
    from posenc.evaluation.huggingface import convert
    from posenc.storage.atomic import atomic_write, check_writable

    with needed_for("posenc export"):
        from safetensors.torch import save
    trained = load(run)
    config, weights = convert(trained)
    tokenizer = trained.tokenizer.to_json()
    check_writable(f"--out={folder}", folder)
    if folder.exists():
        raise UserError(f"--out={folder} already exists: choose another folder, or delete it")
    folder.mkdir(parents=True)
    atomic_write(folder / "model.safetensors", save(weights, metadata={"format": "pt"}))
    atomic_write(folder / "tokenizer.json", tokenizer)
    described = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": trained.config["context"]}
    atomic_write(folder / "tokenizer_config.json", json.dumps(described, indent=1) + "\n")
    atomic_write(folder / "config.json", json.dumps(config, indent=1) + "\n")  # last: marks it complete
    return folder


if __name__ == "__main__":
    main()
