"""What a result was measured on: no host name, no paths."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("torch-holdout", "torch", "lightning", "pytorch-lightning", "torchmetrics", "numpy")
PEERS = ("opendp", "dp-accounting", "optuna", "filelock", "SQLAlchemy")


def machine() -> dict[str, str]:
    """Return processor, cores, memory, system and versions."""
    found = {
        "processor": _processor(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "system": _system(),
        "Python": platform.python_version(),
    }
    return found | {name: _version(name) for name in PACKAGES + PEERS}


def load() -> float:
    """Return how many processes wanted a core in the last minute."""
    return round(os.getloadavg()[0], 1)


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    named = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())


def _system() -> str:
    try:
        return f"{platform.system()} ({platform.freedesktop_os_release()['PRETTY_NAME']})"
    except (OSError, KeyError):
        return platform.system()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
