"""Train one language model: `python train.py pos=rope`, which is `posenc train pos=rope`. See --help."""

from pathlib import Path

from posenc.commands.train import main

if __name__ == "__main__":
    main(Path(__file__).parent / "conf")
