"""Files of ``torch.save``: in and out, in bounded memory and without running code that a file brings along.

Torch reads and writes what a file says about its tensors; their bytes are read and written here, at the places that torch says they
have. A tensor whose elements do not follow one another in its file is read through a mapping of it.
"""

import os
import pickle
import uuid
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from penstock.errors import ForeignUnusable, TreeInvalid, UsageError
from penstock.state.checkpoint import Checkpoint
from penstock.state.exchange.choice import Choice
from penstock.state.exchange.foreign_form import Incoming, Wanted
from penstock.state.exchange.safetensors import read_exactly
from penstock.state.inspect.dtypes import cast
from penstock.state.inspect.piece_reader import Reader
from penstock.state.inspect.statistics import Tell
from penstock.state.manifest import Entries
from penstock.state.tree import join_name
from penstock.torch.device.mover import TORCH_TYPES, as_bytes, windows
from penstock.torch.exchange.nested_names import dtype_of, leaves, nested, value_of, whole

_UNSAFE = "only tensors, numbers, texts, lists and dicts are read: save those"


class TorchSource:
    """Some files of ``torch.save``."""

    def __init__(self, paths: Sequence[Path], prefix: str = "") -> None:
        self.values: dict[str, Any] = {}
        self.entries = Entries({}, [])
        self.left_out: list[str] = []
        self._incoming: list[Incoming] = []
        #: Files that are mapped, for tensors that cannot be read otherwise.
        self._mapped: dict[Path, dict[tuple[str, ...], Any]] = {}
        known: set[str] = set()
        for path in paths:
            for keys, leaf in leaves(described(path, path)):
                name = prefix + join_name(keys)
                if name in known:
                    raise ForeignUnusable(path=str(path), reason=f"{name} is in another file too")
                known.add(name)
                self._take(path, keys, name, leaf)

    def _take(self, path: Path, keys: tuple[str, ...], name: str, leaf: Any) -> None:
        if not isinstance(leaf, torch.Tensor):
            try:
                self.values[name] = value_of(name, leaf)
            except TreeInvalid as problem:
                self.left_out.append(str(problem))
            return
        try:
            dtype = dtype_of(name, leaf)
        except TreeInvalid as problem:
            raise ForeignUnusable(path=str(path), reason=str(problem)) from problem
        self._incoming.append(Incoming(name, dtype, tuple(leaf.shape), whole(leaf), (path, keys, leaf)))

    def incoming(self) -> list[Incoming]:
        """Tensor by tensor."""
        return self._incoming

    def fill(self, wanted: Sequence[Wanted]) -> None:
        """Read elements at their places in the files."""
        for request in wanted:
            path, keys, tensor = request.incoming.where
            first = first_byte(tensor)
            if first is not None:
                with path.open("rb", buffering=0) as file:
                    read_exactly(file, first + request.start, request.memory, path)
            else:
                copy_elements(self._map(path)[keys], request)

    def _map(self, path: Path) -> dict[tuple[str, ...], Any]:
        if path not in self._mapped:
            self._mapped[path] = dict(
                leaves(torch.load(path, map_location="cpu", weights_only=True, mmap=True))
            )
        return self._mapped[path]


def described(file: Any, path: Path) -> Any:
    """What a file holds, with tensors that have everything but their elements."""
    try:
        with warnings.catch_warnings():
            # About tensors that are refused a moment later.
            warnings.filterwarnings("ignore", message="Validating sparse tensor")
            return torch.load(file, map_location="meta", weights_only=True)
    except pickle.UnpicklingError as reason:
        # The first sentence says what; what follows is advice to switch the check off.
        words = str(reason).partition("\n")[0]
        raise ForeignUnusable(path=str(path), reason=words, hint=_UNSAFE) from reason
    except (RuntimeError, EOFError, OSError, ValueError, KeyError) as reason:
        words = str(reason).partition("\n")[0]
        raise ForeignUnusable(path=str(path), reason=f"it is not a file of torch.save: {words}") from reason


def first_byte(tensor: torch.Tensor) -> int | None:
    """Where the elements of a described tensor begin in its file; None if they do not follow one another there."""
    offset = getattr(tensor.untyped_storage(), "_checkpoint_offset", None)
    if offset is None or not tensor.is_contiguous():
        return None
    return int(offset) + int(tensor.storage_offset()) * tensor.element_size()


def copy_elements(tensor: torch.Tensor, wanted: Wanted) -> None:
    """Copy elements of a tensor in memory, whatever its strides."""
    item = tensor.element_size()
    target = np.frombuffer(wanted.memory, np.uint8)
    at = 0
    for window in windows(tensor.detach(), wanted.start // item, len(target) // item):
        part = as_bytes(window).numpy()
        target[at : at + len(part)] = part
        at += len(part)


def write_file(checkpoint: Checkpoint, destination: Path, choice: Choice, tell: Tell) -> None:
    """Write a file of nested dicts: torch writes all but the elements, which follow tensor by tensor."""
    if not hasattr(torch.serialization, "skip_data"):
        raise UsageError(f"torch {torch.__version__} is too old for this", hint="torch 2.7 or newer")
    manifest = checkpoint.manifest
    tensors: dict[str, torch.Tensor] = {}

    def stand_in(name: str) -> torch.Tensor:
        # Memory that nobody touches is not there, so this takes addresses only.
        saved = manifest.tensors[name]
        tensors[name] = torch.empty(saved.shape, dtype=TORCH_TYPES[choice.cast(saved.dtype)])
        return tensors[name]

    tree = nested(manifest, choice, stand_in)
    names = {id(tensor): name for name, tensor in tensors.items()}
    temporary = destination.with_name(f".{destination.name}.{uuid.uuid4().hex[:8]}")
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        with torch.serialization.skip_data():
            torch.save(tree, temporary)
        # The same tree in the same order, this time with places.
        places = zip(_tensors(tree), _tensors(described(temporary, temporary)), strict=True)
        starts = {names[id(ours)]: first_byte(theirs) or 0 for ours, theirs in places}
        _fill(temporary, Reader(manifest, checkpoint.store), starts, choice, tell)
        temporary.replace(destination)
    except OSError as reason:
        raise UsageError(f"{destination} cannot be written: {reason.strerror or reason}") from reason
    finally:
        temporary.unlink(missing_ok=True)


def _tensors(tree: Any) -> Iterator[torch.Tensor]:
    return (leaf for _, leaf in leaves(tree) if isinstance(leaf, torch.Tensor))


def _fill(path: Path, reader: Reader, starts: dict[str, int], choice: Choice, tell: Tell) -> None:
    """Write the elements, and the sums that the archive keeps of them."""
    sums: dict[int, int] = {}
    total = sum(reader.manifest.tensors[name].bytes for name in starts)
    done = 0
    places = dict(starts)
    with path.open("r+b") as file:
        for chunk in reader.read([part for name in starts for part in reader.ordered(name)]):
            name, dtype = chunk.part.name, chunk.part.tensor.dtype
            wanted = choice.cast(dtype)
            memory = chunk.memory if wanted == dtype else cast(chunk.memory, dtype, wanted)
            file.seek(places[name])
            file.write(memory)
            places[name] += len(memory)
            sums[starts[name]] = zlib.crc32(memory, sums.get(starts[name], 0))
            done += chunk.part.bytes
            tell(done, total)
        file.flush()
        _write_sums(path, file, sums)
        file.flush()
        os.fsync(file.fileno())


def _write_sums(path: Path, file: Any, sums: dict[int, int]) -> None:
    """Put the sums where a zip archive has them: behind each member, and in the list of members at its end.

    Torch does not look at them, but everybody else who opens the file does.
    """
    with zipfile.ZipFile(path) as archive:
        members, at = archive.infolist(), archive.start_dir
    for member in members:
        file.seek(member.header_offset + 26)
        name_bytes, extra_bytes = np.frombuffer(file.read(4), "<u2").tolist()
        data = member.header_offset + 30 + name_bytes + extra_bytes
        file.seek(at)
        entry = file.read(46)
        assert entry[:4] == b"PK\x01\x02", "the list of members has one entry after another"
        if data in sums and member.file_size:
            digits = sums[data].to_bytes(4, "little")
            file.seek(at + 16)
            file.write(digits)
            file.seek(data + member.file_size)
            if file.read(4) == b"PK\x07\x08":
                file.seek(data + member.file_size + 4)
                file.write(digits)
        at += 46 + sum(np.frombuffer(entry[28:34], "<u2").tolist())
