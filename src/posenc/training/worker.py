"""One more process of a run, for the one that started it, which tells it on stdin what is trained."""

import json
import sys

from omegaconf import OmegaConf

from posenc.config.command_line import one_sentence_errors


def main() -> None:
    """Train together with the others."""
    task = json.load(sys.stdin)
    sys.argv = [task["command"]]
    with one_sentence_errors():
        from posenc.training.run import run

        run(OmegaConf.create(task["config"]), task["choices"])


if __name__ == "__main__":
    main()
