"""Directories of ``torch.distributed.checkpoint``: in and out, without a process group and in bounded memory.

In: its list of tensors is unpickled with nothing allowed but what such lists consist of; every chunk is a file of ``torch.save`` inside a
file, read at its place. Out: its own planner and writer, which are handed tensors that are read when they are asked for, all of them in the
same memory.
"""

import io
import pickle
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint import metadata as listing
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import SavePlan, TensorWriteData, WriteItem, WriteItemType
from torch.distributed.checkpoint.state_dict_saver import save

from penstock.errors import ForeignUnusable, TreeInvalid, UsageError
from penstock.state.checkpoint import Checkpoint
from penstock.state.contract import ITEM_BYTES, Box
from penstock.state.exchange.choice import Choice
from penstock.state.exchange.foreign_form import Incoming, Wanted
from penstock.state.exchange.safetensors import read_exactly
from penstock.state.inspect.dtypes import cast
from penstock.state.inspect.piece_reader import Reader, ReadSpan
from penstock.state.inspect.statistics import Tell
from penstock.state.manifest import Entries
from penstock.state.save.box_cuts import cut
from penstock.state.tree import join_name
from penstock.torch.device.mover import SAFETENSORS_NAMES, TORCH_TYPES
from penstock.torch.exchange.nested_names import leaves, nested, value_of
from penstock.torch.exchange.torch_save import copy_elements, described, first_byte

#: Of a tensor that is written in several chunks.
CHUNK_BYTES = 16 << 20
#: What a list of tensors may consist of. Anything else could run code.
_ALLOWED = {
    ("collections", "OrderedDict"),
    ("pathlib", "PosixPath"),
    ("pathlib", "PurePosixPath"),
    ("pathlib._local", "PosixPath"),
    ("torch", "Size"),
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
    ("torch.serialization", "_get_layout"),
}
_METADATA = "torch.distributed.checkpoint.metadata"


class _Unpickler(pickle.Unpickler):
    """Reads a list of tensors and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        """Only what such lists consist of."""
        allowed = (module, name) in _ALLOWED or (module == _METADATA and name in vars(listing))
        if allowed or (module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")


class _Window(io.RawIOBase):
    """A stretch of a file as a file of its own."""

    def __init__(self, file: Any, start: int, length: int) -> None:
        self._file, self._start, self._length, self._at = file, start, length, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._length}[whence]
        self._at = max(0, base + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer)[: max(0, self._length - self._at)]
        self._file.seek(self._start + self._at)
        count = int(self._file.readinto(view)) if len(view) else 0
        self._at += count
        return count


class DcpSource:
    """A directory."""

    def __init__(self, path: Path, prefix: str = "") -> None:
        self.values: dict[str, Any] = {}
        self.entries = Entries({}, [])
        self.left_out: list[str] = []
        self._path = path
        self._prefix = prefix
        listed = _listed(path)
        self._stored = listed.storage_data
        self._mappings = listed.planner_data if isinstance(listed.planner_data, dict) else {}
        self._incoming: list[Incoming] = []
        #: The chunk that was looked at last: chunks are read in several goes when they are large.
        self._last: tuple[Any, torch.Tensor] | None = None
        for called, metadata in listed.state_dict_metadata.items():
            if isinstance(metadata, TensorStorageMetadata):
                self._take_tensor(called, metadata)
            elif isinstance(metadata, BytesStorageMetadata):
                self._take_value(called)
        self._incoming.sort(key=lambda tensor: (tensor.where.relative_path, tensor.where.offset))

    def incoming(self) -> list[Incoming]:
        """Chunk by chunk, in the order of the files."""
        return self._incoming

    def fill(self, wanted: Sequence[Wanted]) -> None:
        """Read elements at their places in the files."""
        for request in wanted:
            info = request.incoming.where
            path = self._file(info)
            with path.open("rb", buffering=0) as file:
                window = _Window(file, info.offset, info.length)
                tensor = self._describe(request.incoming, window, path)
                first = first_byte(tensor)
                if first is not None:
                    read_exactly(file, info.offset + first + request.start, request.memory, path)
                else:
                    window.seek(0)
                    copy_elements(
                        torch.load(io.BufferedReader(window), map_location="cpu", weights_only=True), request
                    )

    def _describe(self, incoming: Incoming, window: _Window, path: Path) -> torch.Tensor:
        if self._last is None or self._last[0] is not incoming:
            tensor = described(window, path)
            fits = isinstance(tensor, torch.Tensor) and tuple(tensor.shape) == incoming.box.shape
            if not fits or SAFETENSORS_NAMES.get(tensor.dtype) != incoming.dtype:
                raise ForeignUnusable(path=str(path), reason=f"{incoming.name} is not what the list says")
            self._last = (incoming, tensor)
        return self._last[1]

    def _take_tensor(self, called: str, metadata: TensorStorageMetadata) -> None:
        name = self._name(called)
        dtype = SAFETENSORS_NAMES.get(metadata.properties.dtype)
        if dtype is None:
            reason = f"{name}: tensors of {metadata.properties.dtype} cannot be imported"
            raise ForeignUnusable(path=str(self._path), reason=reason)
        for chunk in metadata.chunks:
            box = Box(tuple(chunk.offsets), tuple(chunk.sizes))
            info = self._stored.get(MetadataIndex(called, chunk.offsets))
            if info is None:
                raise ForeignUnusable(path=str(self._path), reason=f"{name} at {box.offset} is in no file")
            self._check(name, info)
            self._incoming.append(Incoming(name, dtype, tuple(metadata.size), box, info))

    def _take_value(self, called: str) -> None:
        name = self._name(called)
        info = self._stored.get(MetadataIndex(called))
        if info is None:
            raise ForeignUnusable(path=str(self._path), reason=f"{name} is in no file")
        self._check(name, info)
        path = self._file(info)
        try:
            with path.open("rb", buffering=0) as file:
                data = io.BytesIO(_Window(file, info.offset, info.length).read())
            for keys, leaf in leaves(torch.load(data, map_location="cpu", weights_only=True)):
                below = "/".join(filter(None, (name, join_name(keys))))
                if isinstance(leaf, torch.Tensor):
                    self.left_out.append(f"{below}: a tensor inside of a pickled object")
                else:
                    self.values[below] = value_of(below, leaf)
        except (TreeInvalid, pickle.UnpicklingError, RuntimeError, EOFError) as problem:
            self.left_out.append(f"{name}: {str(problem).partition(chr(10))[0]}")

    def _check(self, name: str, info: Any) -> None:
        path = self._file(info)
        if Path(info.relative_path).name != info.relative_path or not path.is_file():
            raise ForeignUnusable(path=str(path), reason=f"{name} should be in it, but it is not there")
        if info.offset + info.length > path.stat().st_size:
            raise ForeignUnusable(path=str(path), reason=f"it ends before {name} does")
        if getattr(info, "transform_descriptors", None):
            reason = f"{name} is stored through {', '.join(info.transform_descriptors)}"
            raise ForeignUnusable(
                path=str(path), reason=reason, hint="load it with torch and save it without"
            )

    def _file(self, info: Any) -> Path:
        return self._path / str(info.relative_path)

    def _name(self, called: str) -> str:
        keys = self._mappings.get(called, (called,))
        return self._prefix + join_name(tuple(str(key) for key in keys))


def _listed(path: Path) -> Metadata:
    file = path / ".metadata"
    try:
        metadata = _Unpickler(io.BytesIO(file.read_bytes())).load()
    except (
        pickle.UnpicklingError,
        EOFError,
        AttributeError,
        IndexError,
        KeyError,
        TypeError,
        ValueError,
        ImportError,
    ) as reason:
        raise ForeignUnusable(path=str(file), reason=f"it is not a list of tensors: {reason}") from reason
    if not isinstance(metadata, Metadata) or not isinstance(metadata.storage_data, dict):
        raise ForeignUnusable(
            path=str(file), reason=f"it must be a list of tensors, got {type(metadata).__name__}"
        )
    return metadata


class _Planner(DefaultSavePlanner):
    """Plans chunks of a bounded size, and reads each when it is to be written."""

    def __init__(self, reader: Reader, choice: Choice, names: dict[int, str], tell: Tell) -> None:
        super().__init__()
        self._reader, self._choice, self._names, self._tell = reader, choice, names, tell
        self._memory = memoryview(bytearray(CHUNK_BYTES))
        self._total = sum(reader.manifest.tensors[name].bytes for name in names.values())
        self._done = 0

    def create_local_plan(self) -> SavePlan:
        """What is written: tensors in chunks of rows."""
        plan = super().create_local_plan()
        self.plan = replace(plan, items=[part for item in plan.items for part in self._cut(item)])
        return self.plan

    def _cut(self, item: WriteItem) -> list[WriteItem]:
        if item.type == WriteItemType.BYTE_IO:
            return [item]
        data = item.tensor_data
        assert data is not None, "a tensor has a size"
        tensor = self._reader.manifest.tensors[self._name(item)]
        # The wider of both types counts, as both are in memory while one is cast to the other.
        bytes_ = max(ITEM_BYTES[tensor.dtype], ITEM_BYTES[self._choice.cast(tensor.dtype)])
        box = Box((0,) * len(data.size), tuple(data.size))
        items: list[WriteItem] = []
        for part, _ in cut(box, bytes_, CHUNK_BYTES):
            offsets, sizes = torch.Size(part.offset), torch.Size(part.shape)
            chunk = TensorWriteData(ChunkStorageMetadata(offsets, sizes), data.properties, data.size)
            kind = WriteItemType.TENSOR if part == box else WriteItemType.SHARD
            items.append(
                WriteItem(MetadataIndex(item.index.fqn, offsets, len(items)), kind, tensor_data=chunk)
            )
        return items

    def resolve_data(self, write_item: WriteItem) -> torch.Tensor | io.BytesIO:
        """Read a chunk into the memory that all chunks use, one after another."""
        if write_item.type == WriteItemType.BYTE_IO:
            return super().resolve_data(write_item)
        assert write_item.tensor_data is not None
        chunk = write_item.tensor_data.chunk
        name = self._name(write_item)
        tensor = self._reader.manifest.tensors[name]
        box = Box(tuple(chunk.offsets), tuple(chunk.sizes))
        memory = self._memory[: box.elements * ITEM_BYTES[tensor.dtype]]
        wanted = self._choice.cast(tensor.dtype)
        if not box.elements:
            return torch.empty(chunk.sizes, dtype=TORCH_TYPES[wanted])
        self._reader.fill([ReadSpan(name, tensor, 0, len(memory), box=box)], [memory])
        self._done += len(memory)
        self._tell(self._done, self._total)
        stored = (
            memory if wanted == tensor.dtype else memoryview(bytearray(cast(memory, tensor.dtype, wanted)))
        )
        return torch.frombuffer(stored, dtype=TORCH_TYPES[wanted]).view(chunk.sizes)

    def _name(self, item: WriteItem) -> str:
        return self._names[id(self.state_dict[item.index.fqn])]


def write_directory(checkpoint: Checkpoint, destination: Path, choice: Choice, tell: Tell) -> None:
    """Write a directory."""
    manifest = checkpoint.manifest
    names: dict[int, str] = {}
    kept: list[torch.Tensor] = []

    def stand_in(name: str) -> torch.Tensor:
        saved = manifest.tensors[name]
        kept.append(torch.empty(saved.shape, dtype=TORCH_TYPES[choice.cast(saved.dtype)], device="meta"))
        names[id(kept[-1])] = name
        return kept[-1]

    tree = nested(manifest, choice, stand_in)
    planner = _Planner(Reader(manifest, checkpoint.store), choice, names, tell)
    # Reading ahead would use the memory of one chunk for another.
    writer = FileSystemWriter(destination, per_thread_copy_ahead=0)
    try:
        with warnings.catch_warnings():
            # That there is no process group is the point.
            warnings.filterwarnings("ignore", message="torch.distributed is disabled")
            save(tree, storage_writer=writer, planner=planner, no_dist=True)
    except OSError as reason:
        raise UsageError(f"{destination} cannot be written: {reason.strerror or reason}") from reason
