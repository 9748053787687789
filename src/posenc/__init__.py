"""posenc: how much faster does a transformer converge with rotary position embedding?"""

from pathlib import Path

# `python -m posenc.sample` and the other commands are short for `python -m posenc.commands.sample`.
__path__.append(str(Path(__file__).parent / "commands"))
