"""Writes constraints.txt: the versions, as installed now, of everything that the project and its extras need.

Follows requirements from pyproject.toml through what is installed, so that what was tried out by hand does not get in.
"""

import re
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    """Follow and write."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [
        *project["dependencies"],
        *(line for extra in project["optional-dependencies"].values() for line in extra),
    ]
    versions: dict[str, str] = {}
    waiting = [Requirement(text) for text in wanted]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        requirement = waiting.pop()
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        key = (name, frozenset(requirement.extras))
        if key in seen:
            continue
        seen.add(key)
        try:
            installed = distribution(requirement.name)
        except PackageNotFoundError:
            continue
        versions[name] = installed.version
        for text in installed.requires or []:
            needed = Requirement(text)
            extras = requirement.extras or {""}
            if needed.marker is None or any(
                needed.marker.evaluate({"extra": extra}) for extra in {*extras, ""}
            ):
                waiting.append(needed)
    lines = [f"{name}=={version}" for name, version in sorted(versions.items())]
    (ROOT / "constraints.txt").write_text("\n".join(lines) + "\n")
    print(f"constraints.txt pins {len(lines)} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
