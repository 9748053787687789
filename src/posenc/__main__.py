"""The command `posenc`, also `python -m posenc`: a table of commands, of which only the one asked for is imported."""

import sys
from importlib import import_module
from importlib.metadata import version

COMMANDS = {
    "train": "train one model, or with -m a sweep of them",
    "report": "compare the runs of a sweep: tables, figures, a page",
    "extrapolate": "evaluate finished runs in longer windows",
    "sample": "text from a finished run",
    "export": "a finished run as a model of Hugging Face's transformers",
    "explore": "docs/explore.html: logits by distance beside measured curves",
    "profile": "where the time of a training step goes",
    "claim_map": "how RoPE's advantage changes with the budget",
    "why": "how much of it each intervention explains",
    "wandb_report": "a report of a sweep on W&B's server",
}

USAGE = "usage: posenc COMMAND ...\n\n{}\n\n`posenc COMMAND --help` says more; `posenc --version` prints the version."


def main() -> None:
    """Give the rest of the command line to the command that it begins with."""
    command = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if command in COMMANDS:
        sys.argv = [f"posenc {command}", *sys.argv[2:]]
        import_module(f"posenc.commands.{command}").main()
    elif command == "--version":
        print(f"posenc {version('posenc')}")
    elif command in ("-h", "--help"):
        print(USAGE.format("\n".join(f"  {name:14}{what}" for name, what in COMMANDS.items())))
    else:
        print(f"posenc: {command} is not a command; there are {', '.join(COMMANDS)}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
