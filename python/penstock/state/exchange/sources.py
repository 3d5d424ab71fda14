"""From a path to the source that understands it, told by content."""

import zipfile
from pathlib import Path

from penstock.errors import ForeignUnusable
from penstock.state.exchange.foreign_form import Source
from penstock.state.exchange.safetensors import INDEX, SafetensorsSource, files_of_index
from penstock.state.exchange.through_torch import open_dcp, open_torch

_TORCH_INDEX = "pytorch_model.bin.index.json"
_KNOWN = "safetensors files, files of torch.save, directories of torch.distributed.checkpoint"
_SAVE_IT = "load it with its own library and save the tree: ps.Checkpoints(place).save(step, tree)"


def open_source(path: Path, prefix: str = "") -> Source:
    """A foreign state; ``prefix`` is put before its names."""
    if path.is_dir():
        return _open_folder(path, prefix)
    if not path.is_file():
        raise ForeignUnusable(path=str(path), reason="there is no such file")
    if path.name.endswith(".index.json"):
        files = files_of_index(path)
        torch_files = any(file.suffix in (".bin", ".pt") for file in files)
        return open_torch(files, prefix) if torch_files else SafetensorsSource(files, prefix)
    if zipfile.is_zipfile(path):
        return open_torch([path], prefix)
    if path.suffix in (".pt", ".pth", ".bin", ".ckpt"):
        hint = "files from before torch 1.6 can be loaded and saved again with today's torch"
        raise ForeignUnusable(path=str(path), reason="it is not a file of torch.save", hint=hint)
    return SafetensorsSource([path], prefix)


def _open_folder(path: Path, prefix: str) -> Source:
    if (path / ".metadata").is_file():
        return open_dcp(path, prefix)
    for index in (path / INDEX, *sorted(path.glob("*.safetensors.index.json"))):
        if index.is_file():
            return SafetensorsSource(files_of_index(index), prefix)
    if files := sorted(path.glob("*.safetensors")):
        return SafetensorsSource(files, prefix)
    if (path / _TORCH_INDEX).is_file():
        return open_torch(files_of_index(path / _TORCH_INDEX), prefix)
    if files := [file for pattern in ("*.bin", "*.pt", "*.pth") for file in sorted(path.glob(pattern))]:
        return open_torch(files, prefix)
    if (path / "log").is_dir() and (path / "manifests").is_dir():
        hint = "`penstock checkpoint export PLACE STEP DESTINATION --self-contained` copies one"
        raise ForeignUnusable(path=str(path), reason="it is a place of checkpoints already", hint=hint)
    if any((path / name).exists() for name in ("_CHECKPOINT_METADATA", "_METADATA", "manifest.ocdbt")):
        raise ForeignUnusable(path=str(path), reason="Orbax checkpoints are not read", hint=_SAVE_IT)
    raise ForeignUnusable(path=str(path), reason=f"its form is not known; known are: {_KNOWN}", hint=_SAVE_IT)
