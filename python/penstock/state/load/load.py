"""Loading: whatever layout was saved, into whatever layout is there, every chunk checked before it is used.

Tensors in contiguous host memory are filled directly; others (on a device) through a little host memory, half of which is read
into while the other half is on its way.
"""

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from penstock import _rust, events
from penstock.errors import CheckpointDamaged, ObjectMissing, StoreFailed
from penstock.state.contract import ITEM_BYTES, Box, Copy, Copying, Held, Tree
from penstock.state.inspect.dtypes import cast
from penstock.state.inspect.optimizer_moments import is_of_optimizer
from penstock.state.load.fit import LoadReport, fit, resized_kinds
from penstock.state.load.host_mover import HOST, check_writable
from penstock.state.load.rank_view import View
from penstock.state.load.selection import Wish
from penstock.state.load.spool import Spool
from penstock.state.manifest import DataFile, Manifest, Tensor
from penstock.state.ranks.replicas import Share, parts_of
from penstock.state.save.data_file import decode_header
from penstock.store import Store, open_store

THREADS = max(4, min(16, os.cpu_count() or 1))
#: Each of the two halves of the host memory that device tensors come through: a twentieth of the state, within these.
HALF_BYTES_MIN, HALF_BYTES_MAX = 64 << 20, 1 << 30


def load(described: Manifest, store: Store, tree: Tree, wish: Wish) -> LoadReport:
    """Fill a tree, and say what was filled. Nothing is written to the tree before everything is known to fit."""
    view = View(described, tree.rank, tree.ranks, first=wish.first)
    manifest = view.manifest
    saved_names = [*manifest.tensors, *manifest.values]
    if wish.selects:
        # Before room is made: of what a fresh optimizer will hold, only the checkpoint knows the names.
        coming = filter(is_of_optimizer, saved_names)
        wish.check([*(tensor.name for tensor in tree.held()), *tree.values(), *coming], saved_names)
    held = _held(manifest, tree, wish)
    values = tree.values()
    wish.check([*(tensor.name for tensor in held), *values], saved_names)
    view.check(held, wish.saved_as, lambda name: wish.chosen(wish.known_as(name)))
    held = [tensor for tensor in held if wish.chosen(tensor.name)]
    chosen = {name: wish.saved_as(name) for name in values if wish.chosen(name)}
    fitted = fit(manifest, held, chosen, wish, view.elsewhere)
    check_writable([*fitted.same, *(target for target, _ in fitted.adapted)])
    with events.span("state.load", step=manifest.step, tensors=len(fitted.report.loaded)):
        with Spool(f"{store.url} {manifest.run} {manifest.step} {manifest.made!r}") as spool:
            reader = _Reader(manifest, store, wish, spool)
            reader.direct([tensor for tensor in fitted.same if tensor.mover is HOST])
            reader.staged([tensor for tensor in fitted.same if tensor.mover is not HOST])
            for target, saved in fitted.adapted:
                reader.adapted(target, saved)
        tree.load_values(
            {name: manifest.values[saved] for name, saved in chosen.items() if saved in manifest.values}
        )
        tree.loaded()
    return fitted.report


def _held(manifest: Manifest, tree: Tree, wish: Wish) -> list[Held]:
    """What the tree holds. One that can makes room first for what it does not have yet: the state of a fresh optimizer."""
    make_room = getattr(tree, "room_for", None)
    if make_room is None:
        return tree.held()
    tensors = resized_kinds(manifest, tree.held() if wish.resize else (), wish)
    values = {wish.known_as(name): value for name, value in manifest.values.items()}
    held: list[Held] = make_room(
        {name: kind for name, kind in tensors.items() if wish.chosen(name)},
        {name: value for name, value in values.items() if wish.chosen(name)},
    )
    return held


class _Reader:
    """Reads pieces of one checkpoint."""

    def __init__(self, manifest: Manifest, store: Store, wish: Wish, spool: Spool) -> None:
        self._manifest = manifest
        self._store = store
        self._wish = wish
        self._spool = spool

    def direct(self, held: list[Held]) -> int:
        """Fill contiguous host memory. What other ranks hold too is read through the page cache, so that a host reads it once."""
        shares = [(Share(tensor, tensor.box, 0), tensor.memory.data) for tensor in held if tensor.bytes]
        alone = [pair for pair in shares if pair[0].held.replicas == 1]
        shared = [pair for pair in shares if pair[0].held.replicas > 1]
        return self._read(alone, direct=True) + self._read(shared, direct=False)

    def staged(self, held: list[Held]) -> int:
        """Fill other memory, through host memory in two halves."""
        total = sum(tensor.bytes for tensor in held)
        wanted = min(max(total // 20, HALF_BYTES_MIN), HALF_BYTES_MAX)
        parts = [
            part for tensor in held if tensor.bytes for part in parts_of(Share(tensor, tensor.box, 0), wanted)
        ]
        if not parts:
            return 0
        largest = max(part.bytes for part in parts)
        half = max(min(wanted, sum(map(_room, parts))), largest)
        memory = memoryview(_rust.Arena(2 * half))
        movers = list({id(tensor.mover): tensor.mover for tensor in held}.values())
        for mover in movers:
            mover.prepare(memory)
        batches = list(_batches(parts, half))

        def fill(side: int) -> int:
            """Every second batch, through one of the halves; while its bytes are on their way, the other half is read into."""
            done, under_way = 0, list[Copying]()
            try:
                for batch in batches[side::2]:
                    for copying in under_way:
                        copying.wait()
                    placed = list(_place(batch, memory[side * half : (side + 1) * half]))
                    done += self._read(placed, direct=all(part.held.replicas == 1 for part in batch))
                    copies = [Copy(part.held, part.start, host) for part, host in placed]
                    under_way = [
                        mover.put([copy for copy in copies if copy.held.mover is mover]) for mover in movers
                    ]
            finally:
                for copying in under_way:
                    copying.wait()
            return done

        try:
            with ThreadPoolExecutor(2, thread_name_prefix="penstock-load") as pool:
                return sum(pool.map(fill, (0, 1)))
        finally:
            for mover in movers:
                mover.release(memory)

    def adapted(self, held: Held, saved: Tensor) -> None:
        """Fill a tensor of another type or size, in whole rows at a time; what the checkpoint does not have keeps what it has."""
        for part in parts_of(Share(held, held.box, 0), HALF_BYTES_MIN):
            common = _common(part.box, saved.shape)
            if not common.elements:
                continue
            host = memoryview(bytearray(part.bytes))
            if common != part.box:
                held.mover.take([Copy(held, part.start, host)]).wait()
            stored = replace(held, dtype=saved.dtype, shape=saved.shape, box=common, mover=HOST, memory=None)
            raw = memoryview(bytearray(stored.bytes))
            self._read([(Share(stored, common, 0), raw)], direct=False)
            item = ITEM_BYTES[held.dtype]
            target = np.frombuffer(host, np.uint8).reshape(*part.box.shape, item)
            where = tuple(
                slice(first - begin, first - begin + length)
                for first, begin, length in zip(common.offset, part.box.offset, common.shape, strict=True)
            )
            converted = raw if saved.dtype == held.dtype else cast(raw, saved.dtype, held.dtype)
            target[where] = np.frombuffer(converted, np.uint8).reshape(*common.shape, item)
            held.mover.put([Copy(held, part.start, host)]).wait()

    def _read(self, wanted: list[tuple[Share, memoryview]], *, direct: bool) -> int:
        """Read parts of tensors into memory."""
        if not wanted:
            return 0
        manifest = self._manifest
        numbers: dict[str, int] = {}
        targets = []
        for share, memory in wanted:
            number = numbers.setdefault(self._wish.saved_as(share.held.name), len(numbers))
            targets.append((number, share.box.offset, share.box.shape, memory))
        files: dict[int, int] = {}
        pieces = []
        for name, number in numbers.items():
            tensor = manifest.tensors[name]
            item = ITEM_BYTES[tensor.dtype]
            for piece in tensor.pieces:
                file = files.setdefault(piece.file, len(files))
                pieces.append((number, file, piece.start, piece.offset, piece.shape, item, piece.hashes))
        ranges: dict[int, list[tuple[int, int]]] = {file: [] for file in files}
        for (_, _, start, _, shape, item, _), file in zip(pieces, _numbers_of(pieces, files), strict=True):
            ranges[file].append((start, prod(shape) * item))
        sources = [self._source(file, None if direct else ranges[file]) for file in files]
        try:
            return _rust.read_tensors(
                sources, pieces, targets, chunk_bytes=manifest.chunk_bytes, threads=THREADS, direct=direct
            )
        except CheckpointDamaged as problem:
            names = list(numbers)
            tensor_name = names[pieces[problem.piece][0]] if problem.piece is not None else ""
            number = list(files)[pieces[problem.piece][1]] if problem.piece is not None else -1
            raise self._explained(problem, tensor_name, number) from problem
        except ObjectMissing as problem:
            raise CheckpointDamaged(file=problem.url, reason="the file is missing") from problem

    def _source(self, number: int, shared: list[tuple[int, int]] | None) -> Any:
        """A file for reading; one that is far, and of which other ranks need the same ranges, is fetched once for this host."""
        file = self._manifest.files[number]
        owner, name = locate(self._store, file.name)
        if shared is None or owner.local_path(name) is not None:
            return file_source(self._store, file)
        return self._spool.fetch(owner, file, name, shared)

    def _explained(self, problem: CheckpointDamaged, tensor: str, file: int) -> CheckpointDamaged:
        """The damage with the tensor's name, and whether the file is one of another step or run."""
        reason = problem.reason
        if file >= 0 and (stamp := _stamp(self._store, self._manifest.files[file])):
            foreign = [
                f"{key} {stamp[key]}"
                for key, own in (("run", self._manifest.run), ("step", None), ("incarnation", None))
                if own is not None and stamp.get(key) not in (None, own)
            ]
            where = self._manifest.files[file].name.split("/")
            # Names are data/<incarnation>/<step>-<attempt>/…
            if len(where) > 2 and stamp.get("step") != where[-2].partition("-")[0]:
                foreign.append(f"step {stamp.get('step')}")
            if foreign:
                reason = f"it is a file of {' and '.join(foreign)} ({reason})"
        return CheckpointDamaged(
            file=problem.file, offset=problem.offset, reason=reason, tensor=tensor, piece=problem.piece
        )


def _common(box: Box, shape: tuple[int, ...]) -> Box:
    """What a box has in common with a tensor of a shape; they begin at the same corner."""
    ends = [
        min(first + length, whole) for first, length, whole in zip(box.offset, box.shape, shape, strict=True)
    ]
    return Box(box.offset, tuple(max(0, end - first) for first, end in zip(box.offset, ends, strict=True)))


def _numbers_of(pieces: list[Any], files: dict[int, int]) -> list[int]:
    """The number in the manifest of each piece's file."""
    numbers = list(files)
    return [numbers[piece[1]] for piece in pieces]


def file_source(store: Store, file: DataFile) -> Any:
    """A data file as the Rust side opens it."""
    owner, name = locate(store, file.name)
    path = owner.local_path(name)
    if path is not None:
        return path
    return f"{owner.url}/{name}", file.bytes, lambda offset, length: owner.get_range(name, offset, length)


def locate(store: Store, name: str) -> tuple[Store, str]:
    """The store and the name there of a file that a manifest names."""
    if "://" not in name:
        return store, name
    root, _, rest = name.rpartition("/data/")
    return open_store(root), f"data/{rest}"


def _stamp(store: Store, file: DataFile) -> dict[str, str]:
    """What a data file says of itself; nothing, if it says nothing that can be read."""
    owner, name = locate(store, file.name)
    try:
        head = owner.get_range(name, 0, min(1 << 16, file.bytes))
        return decode_header(name, head, lambda start, length: owner.get_range(name, start, length))[1]
    except (CheckpointDamaged, ObjectMissing, StoreFailed):
        return {}


def _batches(parts: list[Share], most: int) -> Iterable[list[Share]]:
    batch: list[Share] = []
    used = 0
    for part in parts:
        if batch and used + part.bytes > most:
            yield batch
            batch, used = [], 0
        batch.append(part)
        used += _room(part)
    if batch:
        yield batch


def _place(batch: list[Share], memory: memoryview) -> Iterable[tuple[Share, memoryview]]:
    at = 0
    for part in batch:
        yield part, memory[at : at + part.bytes]
        at += _room(part)


def _room(part: Share) -> int:
    """Bytes in host memory, so that the next one begins where its elements can be addressed."""
    return -(-part.bytes // 64) * 64
