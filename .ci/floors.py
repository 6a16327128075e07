"""Print the lowest version of every dependency and of some extras, as constraints for pip.

    python .ci/floors.py lightning cli > floors.txt
    pip install -c floors.txt ".[lightning,cli]"

It needs Python 3.11, or tomli; the environment that is made with it may be older.
"""

import re
import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PROJECT = Path(__file__).parents[1] / "pyproject.toml"
FLOOR = re.compile(r"([\w.-]+)(?:\[[\w,-]+\])?\s*>=\s*([\w.]+)")


def floors(text: str, extras: list[str]) -> dict[str, str]:
    """Return the lowest version by name, of the base and of these extras."""
    project = tomllib.loads(text)["project"]
    wanted = list(project["dependencies"])
    for extra in extras:
        wanted += project["optional-dependencies"][extra]
    found: dict[str, str] = {}
    for requirement in wanted:
        matched = FLOOR.match(requirement)
        if matched is None:
            raise ValueError(f"no lowest version in {requirement!r}")
        found[matched[1]] = matched[2]
    return found


if __name__ == "__main__":
    for name, version in floors(PROJECT.read_text(), sys.argv[1:]).items():
        print(f"{name}=={version}")
