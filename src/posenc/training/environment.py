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
    packages = ("torch", "lightning", "hydra-core", "numpy")
    return {"python": platform.python_version(), **{package: version(package) for package in packages}}


def hardware(device: torch.device) -> str:
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
    """The commit of this source, with "-dirty" if there are uncommitted changes; None outside a checkout."""
    root = Path(__file__).parent
    if (root.parent / "conf").is_dir():  # installed: a repository around it is another project's
        return None
    try:
        described = subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12", "--match="],
            capture_output=True,
            text=True,
            check=True,
            timeout=GIT_TIMEOUT,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return described.stdout.strip()
