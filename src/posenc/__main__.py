"""The `posenc` command, also `python -m posenc`: dispatches to a subcommand and imports only that one."""

import sys
from importlib import import_module
from importlib.metadata import version

from posenc.errors import UserError

COMMANDS = {
    "train": "train one model, or a sweep with -m",
    "report": "compare the runs of a sweep: tables, figures, a page",
    "extrapolate": "evaluate finished runs in longer windows",
    "sample": "generate text from a run's last checkpoint",
    "export": "convert a run's last checkpoint to a Hugging Face transformers model",
    "explore": "build docs/explore.html: logits by distance next to measured curves",
    "profile": "show where the time of a training step goes",
    "claim_map": "plot how RoPE's advantage changes with the budget",
    "why": "show how much of the advantage each intervention explains",
    "wandb_report": "create a report of a sweep on W&B's server",
}

USAGE = "usage: posenc COMMAND ...\n\n{}\n\nSee `posenc COMMAND --help`; `posenc --version` prints the version."


def main() -> None:
    """Run the subcommand named by the first argument."""
    sys.argv[0] = "posenc"
    command = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if command in COMMANDS:
        sys.argv = [f"posenc {command}", *sys.argv[2:]]
        import_module(f"posenc.commands.{command}").main()
        return
    from posenc.config.command_line import one_sentence_errors

    with one_sentence_errors():
        if command == "--version":
            print(f"posenc {version('posenc')}")
        elif command in ("-h", "--help"):
            print(USAGE.format("\n".join(f"  {name:14}{what}" for name, what in COMMANDS.items())))
        else:
            raise UserError(f"{command} is not a command; choose from {', '.join(COMMANDS)}")


if __name__ == "__main__":
    main()
