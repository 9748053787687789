"""Provenance of a result: versions, hardware, commit."""

import platform
import re
import subprocess
from importlib.metadata import version
from pathlib import Path

import torch

GIT_TIMEOUT = 10
"""Seconds, since git may hang on a network file system."""


def versions() -> dict[str, str]:
    """The versions of Python and of the packages on which a curve depends."""
    packages = ("torch", "lightning", "hydra-core", "numpy")
    return {"python": platform.python_version(), **{package: version(package) for package in packages}}


def device_name(device: torch.device) -> str:
    """Name of the GPU, or of the CPU and its number of threads."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"{_cpu_name()}, {threads} thread{'s' if threads > 1 else ''}"


def _cpu_name() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    name = re.search(r"^model name[ \t]*:[ \t]*(.*\S)", cpuinfo.read_text() if cpuinfo.exists() else "", re.MULTILINE)
    return name[1] if name else platform.processor() or platform.machine()


def commit() -> str | None:
    """The commit of this source, with "-dirty" if any file of `src` or `conf` differs or is new; None if unknown."""
    package = Path(__file__).parents[1]
    if (package / "conf").is_dir():  # installed: a repository around it is another project's
        return None
    try:
        head = _git(package, "rev-parse", "--short=12", "HEAD")
        changed = _git(package, "status", "--porcelain", "--", package.parent, package.parents[1] / "conf")
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{head}-dirty" if changed else head


def _git(folder: Path, *arguments: str | Path) -> str:
    """What git prints in a folder."""
    command = ["git", "-C", folder, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=GIT_TIMEOUT).stdout.strip()
