"""Which run is meant: a directory, ``run:DIR``, a name below ``runs/``, or the newest there."""

from pathlib import Path

from penstock.errors import RunUnknown
from penstock.run.directory import RunDirectory, runs_below
from penstock.view.address import RUN, RunAddress, parse

#: Where names are looked for.
FOLDER = Path("runs")


def run_at(address: str | None) -> Path:
    """The directory of a run; without an address the one in which something happened last."""
    if address is None:
        runs = list(runs_below(FOLDER)) if FOLDER.is_dir() else []
        if not runs:
            raise RunUnknown(directory=f"{FOLDER}/")
        return max((run.path for run in runs), key=_changed)
    path = Path(address)
    if address.startswith(RUN) and not path.is_dir():
        parsed = parse(address)
        assert isinstance(parsed, RunAddress), "it begins like one"
        path = Path(parsed.run)
    for candidate in (path, FOLDER / path):
        if RunDirectory(candidate).is_run():
            return candidate
    raise RunUnknown(directory=address)


def _changed(path: Path) -> tuple[float, str]:
    folders = [path, *(path / name for name in ("journal", "records", "steps"))]
    return max(folder.stat().st_mtime for folder in folders if folder.exists()), str(path)
