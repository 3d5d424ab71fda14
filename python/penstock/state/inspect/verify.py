"""Verifying: every chunk of a checkpoint against its hash, every file against what the manifest says of it.

Everything that is wrong is reported, not the first thing alone. Bytes that several checkpoints share are read once by one
``Verifier``. Trouble of the store that is not damage is an error, as it is when loading.
"""

import re
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from msgspec.structs import replace

from penstock.errors import CheckpointDamaged, ObjectMissing
from penstock.state.checkpoint import Checkpoint
from penstock.state.contract import ITEM_BYTES
from penstock.state.inspect.piece_reader import Reader, ReadSpan
from penstock.state.inspect.statistics import Tell
from penstock.state.load.load import locate
from penstock.state.log.manifest_copies import manifest_copy_name
from penstock.state.manifest import (
    HASH_DIGITS,
    DataFile,
    Manifest,
    Piece,
    check_cover,
    chunk_count,
    manifest_name,
    read_manifest,
)
from penstock.state.save.data_file import decode_header
from penstock.state.save.duplicates import around
from penstock.store import Store

_HEAD_BYTES = 1 << 16
_OF_SAVE = re.compile(r"(?:.*/)?data/(\d+)/(\d+)-\d+/(\d+)[-.][^/]*")


@dataclass(frozen=True, slots=True)
class Damage:
    """One thing that is wrong."""

    file: str
    offset: int
    #: Which tensor it concerns; empty when it concerns the file as a whole.
    tensor: str
    reason: str


@dataclass(slots=True)
class Verified:
    """What was found in a checkpoint."""

    step: int
    number: int
    damages: list[Damage] = field(default_factory=list)
    files: int = 0
    tensors: int = 0
    #: Of all tensors, and of those that were read for it.
    bytes: int = 0
    bytes_read: int = 0
    seconds: float = 0.0
    #: Whether it can be loaded all the same, from second copies.
    loads: bool = False

    @property
    def ok(self) -> bool:
        """Whether everything is as it was saved."""
        return not self.damages

    @property
    def reason(self) -> str:
        """What is wrong, for the log: the first damage, and how many more there are."""
        if self.ok:
            return ""
        first = self.damages[0]
        of = f" (tensor {first.tensor})" if first.tensor else ""
        more = f", and {len(self.damages) - 1} places more" if len(self.damages) > 1 else ""
        return f"{first.file} is damaged at byte {first.offset}{of}: {first.reason}{more}"

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {**asdict(self), "ok": self.ok}


class Verifier:
    """Verifies checkpoints of one place."""

    def __init__(self) -> None:
        #: What is known of pieces that were read already.
        self._known: dict[tuple[str, int, str], list[Damage]] = {}

    def verify(self, checkpoint: Checkpoint, tell: Tell = lambda done, total: None) -> Verified:
        """Read everything that a checkpoint names."""
        began = time.perf_counter()
        report = Verified(checkpoint.step, checkpoint.number)
        try:
            manifest = checkpoint.manifest
        except CheckpointDamaged as problem:
            report.damages.append(Damage(problem.file, problem.offset, "", problem.reason))
            return report
        report.files, report.tensors, report.bytes = (
            len(manifest.files),
            len(manifest.tensors),
            manifest.bytes,
        )
        report.damages += _of_manifest(manifest, checkpoint.digest)
        if not report.damages:
            copies = list(_of_manifest_copies(checkpoint))
            whole = replace(manifest, tensors=manifest.everything(), own=[])
            self._verify(Reader(whole, checkpoint.store), report, tell)
            report.loads = report.ok
            self._verify_duplicates(whole, checkpoint.store, report)
            report.damages += copies
        report.seconds = time.perf_counter() - began
        return report

    def _verify_duplicates(self, manifest: Manifest, store: Store, report: Verified) -> None:
        """Read second copies too: what is damaged in one of the two alone still loads."""
        other = manifest
        for file in manifest.files:
            other = around(other, file.name) or other
        if other is manifest:
            return
        second = Verified(report.step, report.number, bytes=report.bytes)
        self._verify(Reader(other, store), second, lambda done, total: None)
        report.loads = report.loads or second.ok
        report.bytes_read += second.bytes_read
        report.damages += [damage for damage in second.damages if damage not in report.damages]

    def _verify(self, reader: Reader, report: Verified, tell: Tell) -> None:
        manifest = reader.manifest
        pieces = _by_file(manifest)
        readable: set[int] = set()
        for number, file in enumerate(manifest.files):
            file_damages, bytes_ = _of_file(reader.store, manifest, file, pieces[number])
            report.damages += file_damages
            if bytes_ == file.bytes:
                readable.add(number)
        parts = [part for part in reader.stored() if _piece(part).file in readable]
        done = report.bytes - sum(part.bytes for part in parts)
        fresh: list[ReadSpan] = []
        for part in parts:
            known = self._known.get(self._key(manifest, part))
            if known is None:
                fresh.append(part)
            else:
                report.damages += [known_damage for known_damage in known if _inside_part(known_damage, part)]
                done += part.bytes
        broken: list[tuple[ReadSpan, Damage]] = []
        for part, damages in _read(reader, fresh):
            broken += [(part, damage) for damage in damages]
            done += part.bytes
            report.bytes_read += part.bytes
            tell(done, report.bytes)
        for part in fresh:
            self._known.setdefault(self._key(manifest, part), [])
        for part, damage in broken:
            self._known[self._key(manifest, part)].append(damage)
        report.damages += [damage for _, damage in broken]

    @staticmethod
    def _key(manifest: Manifest, part: ReadSpan) -> tuple[str, int, str]:
        piece = _piece(part)
        return manifest.files[piece.file].name, piece.start, piece.hashes


def _read(reader: Reader, parts: list[ReadSpan]) -> Iterator[tuple[ReadSpan, list[Damage]]]:
    """Read parts and say what is wrong with each. Those that were read together with a damaged one are read again, one by one."""
    at = 0
    while at < len(parts):
        try:
            for chunk in reader.read(parts[at:]):
                yield chunk.part, []
                at += 1
        except CheckpointDamaged:
            for part in next(reader.batches(parts[at:])):
                yield part, list(_of_chunks(reader, part))
                at += 1


def _of_chunks(reader: Reader, part: ReadSpan) -> Iterator[Damage]:
    chunk = reader.manifest.chunk_bytes
    memory = memoryview(bytearray(min(chunk, part.bytes)))
    for first in range(part.start, part.start + part.bytes, chunk):
        length = min(chunk, part.start + part.bytes - first)
        single = ReadSpan(part.name, part.tensor, first, length, piece=part.piece)
        try:
            reader.fill([single], [memory[:length]])
        except CheckpointDamaged as problem:
            yield Damage(problem.file, problem.offset, part.name, problem.reason)


def _of_manifest_copies(checkpoint: Checkpoint) -> Iterator[Damage]:
    """What is wrong with one copy of a manifest while the other one is whole. Earlier releases made no second one."""
    first, second = manifest_name(checkpoint.digest), manifest_copy_name(checkpoint.digest)
    for name in (first, second):
        try:
            read_manifest(name, checkpoint.store.get(name), checkpoint.digest)
        except ObjectMissing:
            if name == first:
                yield Damage(name, 0, "", "the manifest is missing, and a second copy is there")
        except CheckpointDamaged as problem:
            yield Damage(name, problem.offset, "", problem.reason)


def _of_manifest(manifest: Manifest, digest: str) -> Iterator[Damage]:
    """What makes no sense in a manifest, though it is the one that was committed."""
    name = manifest_name(digest)
    for tensor_name, tensor in manifest.everything().items():
        # What a rank keeps to itself may be a part of a tensor.
        if tensor_name in manifest.tensors and (reason := check_cover(tensor_name, tensor)):
            yield Damage(name, 0, tensor_name, reason)
            continue
        for piece in tensor.pieces:
            bytes_ = piece.box.elements * ITEM_BYTES[tensor.dtype]
            hashes = chunk_count(bytes_, manifest.chunk_bytes) * HASH_DIGITS
            if not 0 <= piece.file < len(manifest.files):
                yield Damage(name, 0, tensor_name, f"a piece is in file {piece.file}, which there is not")
            elif len(piece.hashes) != hashes:
                yield Damage(
                    name, 0, tensor_name, f"a piece has {len(piece.hashes)} digits of hashes, not {hashes}"
                )


def _of_file(
    store: Store, manifest: Manifest, file: DataFile, pieces: list[tuple[str, str, Piece]]
) -> tuple[list[Damage], int]:
    """What is wrong with a file before its tensors are read, and its length."""
    owner, name = locate(store, file.name)
    try:
        bytes_ = owner.describe(name).bytes
        if bytes_ != file.bytes:
            reason = f"it has {bytes_} bytes, not {file.bytes}"
            return [Damage(file.name, min(bytes_, file.bytes), _inside(pieces), reason)], bytes_
        head = owner.get_range(name, 0, min(_HEAD_BYTES, bytes_))
        header, stamp, start = decode_header(
            name, head, lambda first, length: owner.get_range(name, first, length)
        )
    except ObjectMissing:
        return [Damage(file.name, 0, _inside(pieces), "it is missing")], -1
    except CheckpointDamaged as problem:
        return [Damage(file.name, 0, "", problem.reason)], file.bytes
    damages = [Damage(file.name, 0, "", reason) for reason in _foreign(manifest, file, stamp)]
    try:
        listed = {
            (start + entry["data_offsets"][0], entry["dtype"], tuple(entry["shape"])): key.partition("@")[0]
            for key, entry in header.items()
        }
    except (KeyError, TypeError, IndexError):
        return [*damages, Damage(file.name, 0, "", "its header is not valid")], bytes_
    for tensor, dtype, piece in pieces:
        if piece.box.elements and (piece.start, dtype, tuple(piece.shape)) not in listed:
            damages.append(Damage(file.name, piece.start, tensor, "its header does not list this piece"))
    return damages, bytes_


def _foreign(manifest: Manifest, file: DataFile, stamp: dict[str, str]) -> Iterator[str]:
    """Why a file is not the one that was written under its name."""
    if "penstock" not in stamp:
        yield "it does not say which checkpoint it belongs to"
        return
    place = _OF_SAVE.fullmatch(file.name)
    if place is None:
        return
    expected = dict(zip(("incarnation", "step", "rank"), place.groups(), strict=True))
    if (expected["incarnation"], expected["step"]) == (str(manifest.incarnation), str(manifest.step)):
        # Earlier files may have been written when the run was called something else.
        expected["run"] = manifest.run
    wrong = [f"{key} {stamp.get(key)}" for key, value in expected.items() if stamp.get(key) != value]
    if wrong:
        yield f"it is a file of {' and '.join(wrong)}"


def _inside(pieces: list[tuple[str, str, Piece]]) -> str:
    """Which tensors a file holds, in a few words."""
    names = list(dict.fromkeys(name for name, _, _ in pieces))
    return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "") if names else ""


def _by_file(manifest: Manifest) -> dict[int, list[tuple[str, str, Piece]]]:
    by_number: dict[int, list[tuple[str, str, Piece]]] = {number: [] for number in range(len(manifest.files))}
    for name, tensor in manifest.tensors.items():
        for piece in tensor.pieces:
            by_number[piece.file].append((name, tensor.dtype, piece))
    return by_number


def _inside_part(damage: Damage, part: ReadSpan) -> bool:
    first = _piece(part).start + part.start
    return first <= damage.offset < first + part.bytes


def _piece(part: ReadSpan) -> Piece:
    assert part.piece is not None, "verifying reads what is stored"
    return part.tensor.pieces[part.piece]
