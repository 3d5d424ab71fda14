"""From the address that a page asks for to what is opened, below the folders of the server and nowhere else."""

import os
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import RunUnknown, UsageError
from penstock.view.address import RecipeAddress, RunAddress, RunsAddress, StreamAddress, at, parse, parse_runs
from penstock.view.model import BatchView, RecordView
from penstock.view.model.commands import commands_of
from penstock.view.opener import OpenedStream
from penstock.view.web.site import Site, outside
from penstock.view.wire.batch_answers import AddressedCommands

__all__ = [
    "OpenedStream",
    "ShownAddress",
    "check_parts",
    "events_of_run",
    "open_run",
    "open_runs",
    "open_stream",
    "run_below",
]

#: What the page of a run reads.
_RUN_PARTS = ("run.json", "journal", "records", "steps", "events", "taps", "skips.jsonl")


@dataclass(frozen=True)
class ShownAddress:
    """An address as the page shows it: short where the reader stands in the folder of the server."""

    address: StreamAddress
    #: What commands need to find the same registry.
    option: str = ""

    def facts(self, view: BatchView | RecordView) -> AddressedCommands:
        """What of a view's facts depends on how its address is written."""
        here = at(self.address, step=view.step, row=None, token=None)
        commands = commands_of(here)
        return {
            "address": str(here),
            "command": self._complete(commands["command"]),
            "data_command": self._complete(commands["data_command"]),
        }

    def _complete(self, command: str) -> str:
        return f"{command} {self.option}".rstrip()


def open_stream(site: Site, text: str) -> tuple[ShownAddress, OpenedStream]:
    """The stream of batches at an address, and how to write the address."""
    address = parse(text)
    if not isinstance(address, RecipeAddress | RunAddress):
        raise UsageError(f"{text[:200]} is a version, and batches are of recipes and runs")
    is_recipe = isinstance(address, RecipeAddress)
    path = site.file(address.path if isinstance(address, RecipeAddress) else address.run)
    place = address.place
    shown = str(_shortest(path))
    written: StreamAddress = RecipeAddress(shown, place) if is_recipe else RunAddress(shown, place)
    target: StreamAddress = RecipeAddress(str(path), place) if is_recipe else RunAddress(str(path), place)
    opened = site.opener.open(target)
    if not isinstance(opened, OpenedStream):
        raise UsageError(f"there are no batches at {text[:200]}")
    return ShownAddress(written, site.option), opened


def open_run(site: Site, text: str) -> tuple[RunAddress, Path]:
    """The directory of the run at an address, and how to write the address."""
    from penstock.run.directory import RunDirectory

    address = parse(text)
    if not isinstance(address, RunAddress):
        raise UsageError(f"{text[:200]} is not a run", hint="runs are written as run:DIR")
    path = site.file(address.run)
    if not RunDirectory(path).is_run():
        raise RunUnknown(directory=str(_shortest(path)))
    check_parts(site, path)
    return RunAddress(str(_shortest(path))), path


def open_runs(site: Site, text: str) -> tuple[RunsAddress, Path]:
    """The folder of runs at an address, and how to write the address."""
    address = parse_runs(text)
    if address is None:
        raise UsageError(
            f"{text[:200]} is not a folder of runs", hint="folders of runs are written as runs:DIR"
        )
    path = site.file(address.folder)
    if not path.is_dir():
        raise outside(address.folder)
    return RunsAddress(str(_shortest(path))), path


def run_below(path: Path) -> RunAddress:
    """How to write the address of a run."""
    return RunAddress(str(_shortest(path)))


def check_parts(site: Site, path: Path) -> None:
    """Refuse a run whose parts lie out of the folders of the server."""
    for part in _RUN_PARTS:
        if (path / part).is_symlink():
            # Refused where it leads out of the folders of the server.
            site.file(str(path / part))


def events_of_run(site: Site, run: str) -> Path | None:
    """The folder of a run's recordings; None where there is none below the folders of the server."""
    try:
        return site.file(os.path.join(site.file(run), "events"))
    except UsageError:
        return None


def _shortest(path: Path) -> Path:
    here = Path(os.getcwd()).resolve()
    return path.relative_to(here) if path.is_relative_to(here) else path
