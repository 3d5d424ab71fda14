"""Torch's own forms, through torch: its room is asked for by name, so that this one imports no framework."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from penstock.errors import UsageError
from penstock.state.checkpoint import Checkpoint
from penstock.state.exchange.choice import Choice
from penstock.state.exchange.foreign_form import Source
from penstock.state.inspect.statistics import Tell

_FILES = "penstock.torch.exchange.torch_save"
_DIRECTORIES = "penstock.torch.exchange.dcp"


def need_torch() -> None:
    """Import torch, which takes seconds, or say that it is not there."""
    _room(_FILES)


def open_torch(paths: Sequence[Path], prefix: str) -> Source:
    """Files that ``torch.save`` wrote."""
    source: Source = _room(_FILES).TorchSource(paths, prefix)
    return source


def open_dcp(path: Path, prefix: str) -> Source:
    """A directory that ``torch.distributed.checkpoint`` wrote."""
    source: Source = _room(_DIRECTORIES).DcpSource(path, prefix)
    return source


def export_torch(
    checkpoint: Checkpoint,
    destination: Path,
    choice: Choice,
    *,
    force: bool = False,
    tell: Tell = lambda done, total: None,
) -> list[Path]:
    """Write a file that ``torch.load(weights_only=True)`` reads: nested dicts, as names say."""
    if destination.exists() and not force:
        raise UsageError(
            f"{destination} exists already", hint="choose another name, or --force to replace it"
        )
    _room(_FILES).write_file(checkpoint, destination, choice, tell)
    return [destination]


def export_dcp(
    checkpoint: Checkpoint,
    destination: Path,
    choice: Choice,
    *,
    force: bool = False,
    tell: Tell = lambda done, total: None,
) -> list[Path]:
    """Write a directory that ``torch.distributed.checkpoint`` loads into any layout."""
    existing = [destination / ".metadata", *destination.glob("*.distcp")] if destination.is_dir() else []
    existing = [path for path in existing if path.exists()]
    if destination.is_file() or (existing and not force):
        raise UsageError(
            f"{destination} exists already", hint="choose another place, or --force to replace it"
        )
    # Without its first file it is no checkpoint any more, so that is the first to go.
    for path in existing:
        path.unlink()
    _room(_DIRECTORIES).write_directory(checkpoint, destination, choice, tell)
    return sorted(
        path for path in destination.iterdir() if path.suffix == ".distcp" or path.name == ".metadata"
    )


def _room(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as reason:
        if reason.name is None or reason.name.partition(".")[0] != "torch":
            raise
        raise UsageError("this needs torch", hint="pip install 'penstock[torch]'") from reason
