"""One wrong input, and how the real program answers it."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.conftest import ROOT, clean_environment

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
        code: the exit code.
    """

    arguments: tuple[str, ...]
    sentence: str
    files: Mapping[str, bytes] = field(default_factory=dict)
    made: Callable[[Path], object] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    without: str = ""
    program: str = "train.py"
    code: int = 2

    @property
    def forbids(self) -> bool:
        """Whether it turns on permissions."""
        return "Permission denied" in self.sentence

    @property
    def title(self) -> str:
        """What a test is called."""
        missing = f" without {self.without}" if self.without else ""
        return f"{self.program} {' '.join(self.arguments)}{missing}"[:100].encode("ascii", "replace").decode()


@dataclass(frozen=True)
class Answer:
    """What came of it.

    Attributes:
        code: the exit code.
        errors: what was printed on stderr.
        left: what lies in the folder that did not lie there before.
    """

    code: int
    errors: str
    left: frozenset[str]


def answer(wrong: Wrong, here: Path, warm: "Warm | None" = None) -> Answer:
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
    before = _names(here)
    arguments = [argument.replace("{here}", str(here)).replace("{root}", str(ROOT)) for argument in wrong.arguments]
    command = [*_program(wrong), *arguments]
    if warm is not None and not wrong.without:
        code, errors = warm.run(command, here, wrong.environment)
    else:
        result = subprocess.run(
            [*_as_a_user(), sys.executable, *command],
            cwd=here,
            capture_output=True,
            text=True,
            env={**_environment(wrong.without, here.with_name(f"{here.name}-packages")), **wrong.environment},
            stdin=subprocess.DEVNULL,
        )
        code, errors = result.returncode, result.stderr
    return Answer(code, errors, frozenset(_names(here) - before))


WARM = """
import json, os, runpy, sys, traceback
import torch, hydra, omegaconf, yaml, numpy, filelock
for line in sys.stdin:
    command, here, errors, environment = json.loads(line)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.chdir(here)
            os.environ.update(environment)
            os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT), 2)
            os.dup2(os.open(os.devnull, os.O_RDWR), 1)
            module, sys.argv = command[0] == "-m", command[command[0] == "-m":]
            (runpy.run_module if module else runpy.run_path)(sys.argv[0], run_name="__main__")
            code = 0
        except SystemExit as end:
            code = end.code or 0
        except BaseException:
            traceback.print_exc()
        sys.stderr.flush()
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Warm:
    """A Python that has imported what is heavy, and answers each command in a copy of itself.

    Nothing of the project is imported in it. Starting Python anew for each would be most of the time.
    """

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [*_as_a_user(), sys.executable, "-c", WARM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=_environment("", Path()),
        )

    def run(self, command: list[str], here: Path, environment: Mapping[str, str]) -> tuple[int, str]:
        """The exit code and what was printed on stderr."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        errors = here.with_name(f"{here.name}-errors")
        print(json.dumps([command, str(here), str(errors), dict(environment)]), file=self.process.stdin, flush=True)
        return int(self.process.stdout.readline()), errors.read_text()

    def close(self) -> None:
        self.process.communicate()


def _names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def _program(wrong: Wrong) -> list[str]:
    if wrong.program == "train.py":
        return [str(ROOT / "train.py"), "logger=csv"]
    return ["-m", wrong.program]


def _as_a_user() -> list[str]:
    """Root reads and writes everything: take that from it, where the tests run as root."""
    if os.geteuid() or not shutil.which("setpriv"):
        return []
    return ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]


def may_read_all() -> bool:
    """Whether file permissions mean nothing here."""
    return os.geteuid() == 0 and not _as_a_user()


def _environment(without: str, packages: Path) -> dict[str, str]:
    environment = {**clean_environment(), "OMP_NUM_THREADS": "1", "POSENC_SECRET": SECRET}
    if without:
        packages.mkdir()
        (packages / "sitecustomize.py").write_text(f"import sys\nsys.modules[{without!r}] = None\n")
        environment["PYTHONPATH"] = os.pathsep.join([str(packages), environment.get("PYTHONPATH", "")])
    return environment
