"""Coming from mpirun: a program that mpirun only starts, under both launchers; the names of two variables change."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2"]


def place(environment: dict[str, str]) -> tuple[int, int]:
    """Which rank this is, and of how many."""
    if "RANK" in environment:
        return int(environment["RANK"]), int(environment["WORLD_SIZE"])
    return int(environment["OMPI_COMM_WORLD_RANK"]), int(environment["OMPI_COMM_WORLD_SIZE"])


def work(folder: Path) -> None:
    """What every rank does with its part of the work."""
    rank, world = place(dict(os.environ))
    share = sum(range(rank, 100, world))
    (folder / f"part-{rank}").write_text(f"{share} of {world}")


def main(folder: Path) -> None:
    """Start this very file under both launchers and compare what they wrote."""
    launchers = {"mpirun": [*MPIRUN, sys.executable], "penstock": ["penstock", "run", "--ranks", "2"]}
    for name, launcher in launchers.items():
        (folder / name).mkdir()
        subprocess.run([*launcher, __file__, str(folder / name)], check=True)
    theirs, ours = ({part.name: part.read_text() for part in (folder / name).iterdir()} for name in launchers)
    assert theirs == ours
    assert sorted(ours) == ["part-0", "part-1"]
    print(ours)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        work(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as directory:
            main(Path(directory))
