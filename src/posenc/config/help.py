"""The text of `train.py --help`: every choice with the first sentence of its file."""

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

from posenc.config.files import choices_in, description

WIDTH = 80

TEXT = """\
train.py - train one language model and measure how fast it converges

USAGE
  python train.py [group=choice ...] [key=value ...]
  python train.py -m key=value,value,...   every combination, and a comparison
  `posenc train` is the same command, available in any folder.

CHOICES
{choices}

  -m hydra/launcher=
    basic                    One run at a time, on this machine (default)
    joblib                   In parallel, on this machine (on its first GPU):
                             hydra.launcher.n_jobs=2
    slurm                    One job per run, on a SLURM cluster:
                             hydra.launcher.partition=gpu

KEYS
  seed                                     initial weights and batches
  steps, batch_size, context               data and length of the run
  eval_every, eval_windows, log_every, attention_every     measurements
  name, runs, cache, rerun, checkpoint_seconds, fork_from    output
  pos.base, model.width, optim.lr, ...     any key of a choice: see --cfg job

EXAMPLES
  python train.py pos=rope
  python train.py pos=sinusoidal pos.scale=matched seed=1
  python train.py pos=rope pos.base=500000 model.width=256 steps=600
  python train.py data=text data.path=book.txt tokenizer=bpe
  python train.py logger=csv trainer=cpu
  python train.py -m pos=none,learned,sinusoidal,rope seed=0,1,2
  python train.py -m pos=sinusoidal,rope hydra/launcher=joblib
  python train.py -m +sweep=positions hydra/launcher=slurm
  python train.py -m experiment=tuned
  python -m posenc.report runs/kjv_tiny --baseline learned
  python -m posenc.profile pos=rope

OPTIONS
  --cfg job         print every key and its value, and exit; with --resolve also
                    the values that follow from others
  -m, --multirun    run every combination of comma-separated values
  --version         print the version
  --hydra-help      show the options of Hydra, which parses this command line;
                    some are refused"""


def manual(conf: Path) -> str:
    """The full text, 80 columns wide."""
    return TEXT.format(choices="\n\n".join(_groups(conf)))


def _groups(conf: Path) -> Iterator[str]:
    defaults = re.findall(r"^  - (\w+: \w+)", (conf / "config.yaml").read_text(), re.MULTILINE)
    for group, choices in sorted(choices_in(conf).items()):
        if group.startswith("hydra/"):  # listed in TEXT
            continue
        typed: dict[str, list[str]] = {}
        for choice in sorted(choices):
            file = conf / group / f"{choice}.yaml"
            default = " (default)" if f"{group}: {choice}" in defaults else ""
            typed.setdefault(_typed(group, choice, file), []).append(_entry(choice, description(file) + default))
        yield from ("\n".join([f"  {prefix}", *entries]) for prefix, entries in typed.items())


def _typed(group: str, choice: str, file: Path) -> str:
    """The prefix of a choice; for a sweep with the -m that its file quotes."""
    quoted = re.search(rf"train\.py (-m )?(\+?){group}={choice}\b", file.read_text())
    return f"{quoted[1] or ''}{quoted[2]}{group}=" if quoted else f"{group}="


def _entry(choice: str, what: str) -> str:
    first = f"    {choice:24} "
    return textwrap.fill(what, WIDTH, initial_indent=first, subsequent_indent=" " * len(first), break_on_hyphens=False)
