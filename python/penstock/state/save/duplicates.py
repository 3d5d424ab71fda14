"""Second copies of pieces that many checkpoints share: which ranges of a file are in another one too, and how to read around damage.

A tensor that never changes is written once, and every checkpoint refers to that one file: a flipped bit in it damages all of them. With
``Keep(copies=2)`` a piece that a save refers to for the first time is also written to a file of its own, from the captured memory. The manifest says so
beside the file that holds the piece (``DataFile.duplicates``). Nothing needs a duplicate that is missing or damaged while the first copy is whole.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from penstock.state.contract import ITEM_BYTES
from penstock.state.manifest import DataFile, Duplicate, Manifest, Piece, Tensor


def duplicate_of(file: DataFile, start: int, bytes_: int) -> Duplicate | None:
    """Where a range of a file is as well, if it is."""
    fitting = (
        duplicate
        for duplicate in file.duplicates
        if duplicate.start <= start and start + bytes_ <= duplicate.start + duplicate.bytes
    )
    return next(fitting, None)


def with_duplicates(file: DataFile, more: Iterable[Duplicate]) -> DataFile:
    """A file with further ranges that are elsewhere too; neighbours become one."""
    joined: list[Duplicate] = []
    for current in sorted((*file.duplicates, *more), key=lambda duplicate: (duplicate.name, duplicate.start)):
        last = joined[-1] if joined else None
        if (
            last is not None
            and last.name == current.name
            and last.start + last.bytes == current.start
            and last.at + last.bytes == current.at
        ):
            joined[-1] = replace(last, bytes=last.bytes + current.bytes)
        else:
            joined.append(current)
    return replace(file, duplicates=tuple(joined))


def duplicate_files(manifest: Manifest) -> dict[str, int]:
    """Bytes of every file that holds second copies, by name."""
    return {duplicate.name: duplicate.file_bytes for file in manifest.files for duplicate in file.duplicates}


def around(manifest: Manifest, damaged: str, tensor: str = "") -> Manifest | None:
    """The manifest with second copies in the place of pieces of a damaged file; of one tensor, or of all. None if there are none.

    ``damaged`` is the file as an error names it: by its path or address.
    """
    number = next((n for n, file in enumerate(manifest.files) if damaged.endswith(file.name)), None)
    if number is None or not manifest.files[number].duplicates:
        return None
    files = list(manifest.files)
    numbers: dict[str, int] = {}
    changed = False

    def moved(dtype: str, piece: Piece) -> Piece:
        nonlocal changed
        duplicate = duplicate_of(manifest.files[number], piece.start, piece.box.elements * ITEM_BYTES[dtype])
        if piece.file != number or duplicate is None:
            return piece
        if duplicate.name not in numbers:
            numbers[duplicate.name] = len(files)
            files.append(DataFile(duplicate.name, duplicate.file_bytes))
        changed = True
        return replace(
            piece, file=numbers[duplicate.name], start=duplicate.at + piece.start - duplicate.start
        )

    def without(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        return {
            name: saved
            if tensor and name != tensor
            else Tensor(saved.dtype, saved.shape, [moved(saved.dtype, piece) for piece in saved.pieces])
            for name, saved in tensors.items()
        }

    shared = without(manifest.tensors)
    own = [replace(part, tensors=without(part.tensors)) for part in manifest.own]
    return replace(manifest, files=files, tensors=shared, own=own) if changed else None


def is_covered(manifest: Manifest, number: int, whole: "set[str]") -> bool:
    """Whether every piece in a file is in another one too, all of which are among the files that are there."""
    file = manifest.files[number]
    duplicates = [
        duplicate_of(file, piece.start, piece.box.elements * ITEM_BYTES[tensor.dtype])
        for tensor in manifest.everything().values()
        for piece in tensor.pieces
        if piece.file == number and piece.box.elements
    ]
    return bool(duplicates) and all(
        duplicate is not None and duplicate.name in whole for duplicate in duplicates
    )
