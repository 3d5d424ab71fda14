"""Plain safetensors files, one or several with an index, as Hugging Face has them: in and out without the library."""

import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from penstock.errors import CheckpointDamaged, ForeignUnusable, UsageError
from penstock.state.checkpoint import Checkpoint
from penstock.state.contract import ITEM_BYTES, Box
from penstock.state.exchange.choice import Choice
from penstock.state.exchange.foreign_form import Incoming, Wanted
from penstock.state.inspect.dtypes import cast
from penstock.state.inspect.piece_reader import Reader
from penstock.state.inspect.statistics import Tell
from penstock.state.manifest import Entries
from penstock.state.save.data_file import decode_header

INDEX = "model.safetensors.index.json"
SHARD_BYTES_MAX = 5_000_000_000
_HEAD_BYTES = 1 << 16
_ALIGNED = 8
#: What an earlier export may have left in a folder.
_OURS = ("model.safetensors", "model-*-of-*.safetensors", INDEX)


class SafetensorsSource:
    """Some safetensors files."""

    def __init__(self, paths: Sequence[Path], prefix: str = "") -> None:
        self.values: dict[str, Any] = {}
        self.entries = Entries({}, [])
        self.left_out: list[str] = []
        self._incoming: list[Incoming] = []
        homes: dict[str, Path] = {}
        for path in paths:
            for tensor in _listed(path, prefix):
                if tensor.name in homes:
                    reason = f"{tensor.name} is in {homes[tensor.name].name} too"
                    raise ForeignUnusable(path=str(path), reason=reason)
                homes[tensor.name] = path
                self._incoming.append(tensor)

    def incoming(self) -> list[Incoming]:
        """Tensor by tensor, as they lie in the files."""
        return self._incoming

    def fill(self, wanted: Sequence[Wanted]) -> None:
        """Read ranges of the files."""
        by_path: dict[Path, list[Wanted]] = {}
        for request in wanted:
            by_path.setdefault(request.incoming.where[0], []).append(request)
        for path, here in by_path.items():
            with path.open("rb", buffering=0) as file:
                for request in here:
                    read_exactly(file, request.incoming.where[1] + request.start, request.memory, path)


def read_exactly(file: Any, start: int, memory: memoryview, path: Path) -> None:
    """Fill memory from a place in an unbuffered file."""
    file.seek(start)
    done = 0
    while done < len(memory):
        count = file.readinto(memory[done:])
        if not count:
            raise ForeignUnusable(path=str(path), reason=f"it ends before byte {start + len(memory)}")
        done += count


def _listed(path: Path, prefix: str) -> Iterator[Incoming]:
    """What a file says that it holds, checked against its length."""
    try:
        bytes_ = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)

            def more(start: int, length: int) -> bytes:
                file.seek(start)
                return file.read(length)

            header, stamp, data = decode_header(str(path), head, more)
    except OSError as reason:
        raise ForeignUnusable(path=str(path), reason=reason.strerror or str(reason)) from reason
    except CheckpointDamaged as problem:
        raise ForeignUnusable(path=str(path), reason=problem.reason) from problem
    if "penstock" in stamp:
        raise ForeignUnusable(
            path=str(path),
            reason="it is a data file of a checkpoint, whose tensors may be in many files",
            hint="`penstock checkpoint export` gives whole tensors",
        )
    for name, entry in header.items():
        yield _checked(path, f"{prefix}{name}", entry, data, bytes_)


def _checked(path: Path, name: str, entry: dict[str, Any], data: int, bytes_: int) -> Incoming:
    dtype, shape, offsets = (entry.get(key) for key in ("dtype", "shape", "data_offsets"))
    if dtype not in ITEM_BYTES:
        raise ForeignUnusable(path=str(path), reason=f"{name} is of type {dtype}, which is not known")
    numbers = [*shape, *offsets] if isinstance(shape, list) and isinstance(offsets, list) else [-1]
    if any(type(number) is not int or number < 0 for number in numbers) or len(offsets or ()) != 2:
        raise ForeignUnusable(path=str(path), reason=f"its header has no valid entry for {name}")
    assert isinstance(dtype, str)
    assert isinstance(shape, list)
    assert isinstance(offsets, list)
    if offsets[1] - offsets[0] != prod(shape) * ITEM_BYTES[dtype]:
        raise ForeignUnusable(
            path=str(path), reason=f"{name} has a shape of {shape} and another number of bytes"
        )
    if data + offsets[1] > bytes_:
        reason = f"it has {bytes_} bytes, but {name} ends at byte {data + offsets[1]}"
        raise ForeignUnusable(path=str(path), reason=reason)
    whole = Box((0,) * len(shape), tuple(shape))
    return Incoming(name, dtype, tuple(shape), whole, (path, data + offsets[0]))


class _Index(msgspec.Struct):
    weight_map: dict[str, str]


def files_of_index(index: Path) -> list[Path]:
    """The files that an index names, all of which have to be there."""
    try:
        known = msgspec.json.decode(index.read_bytes(), type=_Index)
    except (msgspec.MsgspecError, UnicodeDecodeError, OSError) as reason:
        raise ForeignUnusable(path=str(index), reason=str(reason)) from reason
    names = sorted(set(known.weight_map.values()))
    for name in names:
        if Path(name).name != name or not (index.parent / name).is_file():
            raise ForeignUnusable(path=str(index), reason=f"it names {name}, which is not there")
    return [index.parent / name for name in names]


@dataclass(frozen=True, slots=True)
class _Outgoing:
    """A tensor on its way out."""

    name: str
    called: str
    dtype: str
    cast: str
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        return prod(self.shape) * ITEM_BYTES[self.cast]


def export_safetensors(
    checkpoint: Checkpoint,
    destination: Path,
    choice: Choice,
    *,
    shard_bytes_max: int = SHARD_BYTES_MAX,
    force: bool = False,
    tell: Tell = lambda done, total: None,
) -> list[Path]:
    """Write tensors as a folder that Hugging Face libraries load, or as the one file that the destination names.

    Files get their names when all are written, the index last.
    """
    if shard_bytes_max < 1:
        raise UsageError(f"shard_bytes_max must be positive, got {shard_bytes_max}")
    reader = Reader(checkpoint.manifest, checkpoint.store)
    outgoing = _outgoing(checkpoint, choice)
    single = destination.suffix == ".safetensors"
    folder = destination.parent if single else destination
    shards = [outgoing] if single else list(_shards(outgoing, shard_bytes_max))
    names = [destination.name] if single else _names(len(shards))
    old = [destination] if single else [path for pattern in _OURS for path in folder.glob(pattern)]
    existing = [path for path in old if path.exists()]
    if existing and not force:
        raise UsageError(
            f"{existing[0]} exists already", hint="choose another place, or --force to replace it"
        )
    paths: dict[Path, Path] = {}
    progress = _Progress(tell, sum(tensor.bytes for tensor in outgoing))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, shard in zip(names, shards, strict=True):
            temporary = folder / f".{name}.{uuid.uuid4().hex[:8]}"
            paths[temporary] = folder / name
            _write(temporary, shard, reader, progress)
        for path in existing:
            path.unlink()
        for temporary, path in paths.items():
            temporary.rename(path)
        if len(shards) > 1:
            _write_index(folder, dict(zip(names, shards, strict=True)))
            return [*paths.values(), folder / INDEX]
    except OSError as reason:
        raise UsageError(f"{destination} cannot be written: {reason.strerror or reason}") from reason
    finally:
        for temporary in paths:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
    return list(paths.values())


@dataclass(slots=True)
class _Progress:
    tell: Tell
    total: int
    done: int = 0

    def add(self, bytes_: int) -> None:
        self.done += bytes_
        self.tell(self.done, self.total)


def _outgoing(checkpoint: Checkpoint, choice: Choice) -> list[_Outgoing]:
    tensors = checkpoint.manifest.tensors
    return [
        _Outgoing(
            name, called, tensors[name].dtype, choice.cast(tensors[name].dtype), tuple(tensors[name].shape)
        )
        for name, called in choice.tensors(tensors).items()
    ]


def _shards(outgoing: list[_Outgoing], most: int) -> Iterator[list[_Outgoing]]:
    """In the order of names; a tensor that is larger than a shard has one of its own."""
    shard: list[_Outgoing] = []
    used = 0
    for tensor in outgoing:
        if shard and used + tensor.bytes > most:
            yield shard
            shard, used = [], 0
        shard.append(tensor)
        used += tensor.bytes
    yield shard


def _names(count: int) -> list[str]:
    if count == 1:
        return ["model.safetensors"]
    return [f"model-{number:05d}-of-{count:05d}.safetensors" for number in range(1, count + 1)]


def _write(path: Path, shard: list[_Outgoing], reader: Reader, progress: _Progress) -> None:
    # As the library orders them: large elements first, so that all begin at a multiple of their size.
    ordered = sorted(shard, key=lambda tensor: (-ITEM_BYTES[tensor.cast], tensor.called))
    of = {tensor.name: tensor for tensor in ordered}
    with path.open("xb") as file:
        _write_header(file, ordered)
        parts = [part for tensor in ordered for part in reader.ordered(tensor.name)]
        for chunk in reader.read(parts):
            target = of[chunk.part.name]
            memory = (
                chunk.memory if target.cast == target.dtype else cast(chunk.memory, target.dtype, target.cast)
            )
            file.write(memory)
            progress.add(len(memory))
        file.flush()
        os.fsync(file.fileno())


def _write_header(file: BinaryIO, ordered: list[_Outgoing]) -> None:
    # Without this word transformers refuses the file.
    document: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for tensor in ordered:
        document[tensor.called] = {
            "dtype": tensor.cast,
            "shape": tensor.shape,
            "data_offsets": (end, end + tensor.bytes),
        }
        end += tensor.bytes
    text = msgspec.json.encode(document)
    text += b" " * (-len(text) % _ALIGNED)
    file.write(len(text).to_bytes(8, "little") + text)


def _write_index(folder: Path, shards: dict[str, list[_Outgoing]]) -> None:
    total = sum(tensor.bytes for shard in shards.values() for tensor in shard)
    weights = {tensor.called: name for name, shard in shards.items() for tensor in shard}
    document = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weights.items()))}
    temporary = folder / f".{INDEX}.{uuid.uuid4().hex[:8]}"
    temporary.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=2))
    temporary.rename(folder / INDEX)
