"""An environment with the package's base dependencies and nothing else, made of links."""

import subprocess
import sys
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def closure(names):
    """Return the distributions that these need, themselves included; no extras but those asked."""
    found, waiting = {}, [Requirement(name) for name in names]
    while waiting:
        wanted = waiting.pop()
        name = canonicalize_name(wanted.name)
        key = (name, frozenset(wanted.extras))
        if key in found:
            continue
        found[key] = metadata.distribution(name)
        for line in found[key].requires or ():
            needed = Requirement(line)
            extras = wanted.extras or {""}
            if needed.marker is None or any(needed.marker.evaluate({"extra": e}) for e in extras):
                waiting.append(needed)
    return {name: distribution for (name, _), distribution in found.items()}


def linked(distributions, folder):
    """Link the packages and metadata of distributions into a folder."""
    folder.mkdir(parents=True)
    for distribution in distributions:
        tops = {Path(str(file)).parts[0] for file in distribution.files or ()}
        for top in tops - {"..", "__pycache__"}:
            source = Path(distribution.locate_file(top))
            if source.exists() and not (folder / top).exists():
                (folder / top).symlink_to(source)
    return folder


def environment(folder, site):
    """Make a virtual environment whose only packages are those of ``site``; return its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(f"{site}\n")
    return folder / "bin" / "python"
