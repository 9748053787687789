"""One wrong input, and how the real program answers it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.conftest import ROOT, clean_environment
from tests.warm import Warm

SECRET = "a-key-that-nobody-must-see"
"""In the environment of every one."""


@dataclass(frozen=True)
class Wrong:
    """One wrong input.

    Attributes:
        arguments: {here} in them is the case's own folder, {root} the project's.
        sentence: a part of the answer.
        files: what lies in its folder, by name.
        made: makes there what is no plain file.
        environment: variables beside the usual.
        without: a package that cannot be imported.
        program: a script, or a module of the package.
    """

    arguments: tuple[str, ...]
    sentence: str
    files: Mapping[str, bytes] = field(default_factory=dict)
    made: Callable[[Path], object] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    without: str = ""
    program: str = "train.py"

    @property
    def forbids(self) -> bool:
        """Whether it turns on permissions."""
        return "Permission denied" in self.sentence

    @property
    def title(self) -> str:
        """What a test is called."""
        missing = f" without {self.without}" if self.without else ""
        return f"{self.program} {' '.join(self.arguments)}{missing}"[:100].encode("ascii", "replace").decode()


def train(line: str, sentence: str, without: str = "") -> Wrong:
    """A case whose arguments have no spaces in them."""
    return Wrong(tuple(line.split()), sentence, without=without)


@dataclass(frozen=True)
class Answer:
    """What came of it.

    Attributes:
        code: the exit code.
        errors: what was printed on stderr.
        left: what lies in the folder that did not lie there before, was changed, or is gone.
    """

    code: int
    errors: str
    left: frozenset[tuple[str, int]]


def warm_python() -> Warm:
    """One whose copies may read and write what a user may."""
    return Warm(*as_a_user(), modules=("posenc.training.experiment", "posenc.training.run", "posenc.report.write"))


def answer(wrong: Wrong, here: Path, warm: Warm | None = None) -> Answer:
    """Give one wrong input to the real program.

    Args:
        here: an empty folder, in which the program is started.
        warm: copies of which are the program; by default, and where a package is to be missing, a fresh Python.
    """
    for name, content in wrong.files.items():
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_bytes(content)
    if wrong.made is not None:
        wrong.made(here)
    before = _state(here)
    arguments = [argument.replace("{here}", str(here)).replace("{root}", str(ROOT)) for argument in wrong.arguments]
    command = [*_program(wrong), *arguments]
    if warm is not None and not wrong.without:
        result = warm.run(*command, cwd=here, env={**_environment(), **wrong.environment})
    else:
        result = subprocess.run(
            [*as_a_user(), sys.executable, *command],
            cwd=here,
            capture_output=True,
            text=True,
            env={**_environment(), **_lacking(wrong.without, here.with_name(f"{here.name}-packages"))},
            stdin=subprocess.DEVNULL,
        )
    return Answer(result.returncode, result.stderr, frozenset(_state(here) ^ before))


def _state(folder: Path) -> set[tuple[str, int]]:
    """What lies in a folder, and when each file was written."""
    return {
        (str(path.relative_to(folder)), path.lstat().st_mtime_ns if path.is_file() else 0) for path in folder.rglob("*")
    }


def _program(wrong: Wrong) -> list[str]:
    if wrong.program == "train.py":
        return [str(ROOT / "train.py"), "logger=csv"]
    return ["-m", wrong.program]


def as_a_user() -> list[str]:
    """Root reads and writes everything: take that from it, where the tests run as root."""
    if os.geteuid() or not shutil.which("setpriv"):
        return []
    return ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]


def may_read_all() -> bool:
    """Whether file permissions mean nothing here."""
    return os.geteuid() == 0 and not as_a_user()


def _environment() -> dict[str, str]:
    return {**clean_environment(), "OMP_NUM_THREADS": "1", "POSENC_SECRET": SECRET}


def _lacking(package: str, packages: Path) -> dict[str, str]:
    packages.mkdir()
    (packages / "sitecustomize.py").write_text(f"import sys\nsys.modules[{package!r}] = None\n")
    return {"PYTHONPATH": os.pathsep.join([str(packages), os.environ.get("PYTHONPATH", "")])}
