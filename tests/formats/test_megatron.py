"""Megatron's .bin and .idx, laid out as its IndexedDatasetBuilder and _IndexWriter do."""

import struct
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.errors import BadRow, CorruptShard, FileUnusable
from penstock.formats.contract import Policy
from penstock.registry import Registry
from penstock.store import open_store
from tests.formats.damage import assert_cuts_are_found, assert_flips_are_found, assert_rows, flipped

CODES = {"u1": 1, "i1": 2, "i2": 3, "i4": 4, "i8": 5, "f8": 6, "f4": 7, "u2": 8}
SEQUENCES = 600


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "registry")


class IndexedDatasetBuilder:
    """
    As in megatron/core/datasets/indexed_dataset.py: ``add_item`` appends a sequence, ``end_document`` notes a boundary,
    ``finalize`` writes the .idx. Megatron itself cannot be installed from a package index.
    """

    def __init__(self, path: Path, dtype: str, *, multimodal: bool = False) -> None:
        self.file = path.with_suffix(".bin").open("wb")
        self.idx = path.with_suffix(".idx")
        self.dtype = np.dtype(dtype)
        self.sequence_lengths: list[int] = []
        self.document_indices = [0]
        self.sequence_modes: list[int] | None = [] if multimodal else None

    def add_item(self, sequence: Any, mode: int = 0) -> None:
        tokens = np.asarray(sequence, dtype=self.dtype)
        self.file.write(tokens.tobytes(order="C"))
        self.sequence_lengths.append(tokens.size)
        if self.sequence_modes is not None:
            self.sequence_modes.append(mode)

    def end_document(self) -> None:
        self.document_indices.append(len(self.sequence_lengths))

    def finalize(self) -> None:
        self.file.close()
        pointers = [0, *accumulate(length * self.dtype.itemsize for length in self.sequence_lengths)][:-1]
        with self.idx.open("wb") as out:
            out.write(b"MMIDIDX\x00\x00")
            out.write(struct.pack("<Q", 1))
            out.write(struct.pack("<B", CODES[self.dtype.str[1:]]))
            out.write(struct.pack("<Q", len(self.sequence_lengths)))
            out.write(struct.pack("<Q", len(self.document_indices)))
            out.write(np.array(self.sequence_lengths, dtype=np.int32).tobytes(order="C"))
            out.write(np.array(pointers, dtype=np.int64).tobytes(order="C"))
            out.write(np.array(self.document_indices, dtype=np.int64).tobytes(order="C"))
            if self.sequence_modes is not None:
                out.write(np.array(self.sequence_modes, dtype=np.int8).tobytes(order="C"))


def sequences(dtype: str = "u2") -> list[np.ndarray[Any, Any]]:
    random = np.random.default_rng(7)
    return [random.integers(0, 100, at % 200).astype(dtype) for at in range(SEQUENCES)]


def write(path: Path, dtype: str = "u2", *, per_document: int = 1, multimodal: bool = False) -> Path:
    builder = IndexedDatasetBuilder(path, dtype, multimodal=multimodal)
    for at, sequence in enumerate(sequences(dtype), start=1):
        builder.add_item(sequence, mode=at % 3)
        if at % per_document == 0:
            builder.end_document()
    builder.finalize()
    return path.with_suffix(".bin")


def rows(dtype: str = "u2") -> list[dict[str, Any]]:
    return [{"tokens": sequence} for sequence in sequences(dtype)]


@pytest.mark.parametrize("dtype", CODES)
def test_sequences_come_back_in_the_stored_dtype(tmp_path: Path, registry: Registry, dtype: str) -> None:
    version = registry.register("a", write(tmp_path / "a", dtype))
    assert version.manifest.format == "megatron"
    assert [shard.name for shard in version.manifest.shards] == ["a.bin"]
    assert [companion.name for companion in version.manifest.shards[0].companions] == ["a.idx"]
    assert_rows(version, rows(dtype))


def test_documents_of_several_sequences_are_kept(tmp_path: Path, registry: Registry) -> None:
    version = registry.register("a", write(tmp_path / "a", per_document=4))
    assert_rows(version, [{**row, "document": at // 4} for at, row in enumerate(rows())])


def test_modes_are_kept(tmp_path: Path, registry: Registry) -> None:
    version = registry.register("a", write(tmp_path / "a", multimodal=True))
    assert_rows(version, [{**row, "mode": at % 3} for at, row in enumerate(rows(), start=1)])


def test_the_older_meaning_of_code_seven_is_told_by_the_sizes(tmp_path: Path, registry: Registry) -> None:
    path = write(tmp_path / "a", "f8")
    idx = path.with_suffix(".idx")
    data = bytearray(idx.read_bytes())
    data[17] = 7
    idx.write_bytes(data)
    assert_rows(registry.register("a", path), rows("f8"))


@pytest.mark.parametrize("given", ["folder", "bin", "idx", "both"])
def test_a_pair_is_one_shard_however_it_is_named(tmp_path: Path, registry: Registry, given: str) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    bin_path = write(folder / "a")
    idx_path = bin_path.with_suffix(".idx")
    files = {"folder": [folder], "bin": [bin_path], "idx": [idx_path], "both": [bin_path, idx_path]}
    version = registry.register("a", files[given])
    assert [shard.name for shard in version.manifest.shards] == ["a.bin"]
    assert version.rows == SEQUENCES


def test_flips_and_cuts_of_the_tokens_are_found(tmp_path: Path, registry: Registry) -> None:
    path = write(tmp_path / "a", "i4")
    version = registry.register("a", path)
    assert_flips_are_found(registry, version, path, rows("i4"))
    assert_cuts_are_found(registry, version, path)


def test_flips_of_the_companion_are_found(tmp_path: Path, registry: Registry) -> None:
    """Rows do not depend on it any more, so reading gives the truth; `verify` names it."""
    path = write(tmp_path / "a")
    version = registry.register("a", path)
    idx = path.with_suffix(".idx")
    for place in (0, 9, 17, 20, 40, idx.stat().st_size // 2, idx.stat().st_size - 1):
        with flipped(idx, place):
            (damage,) = registry.resolve("a").verify().damages
            assert damage.file == str(idx)
            assert_rows(registry.resolve("a"), rows())
    assert version.verify().ok
    idx.unlink()
    (damage,) = registry.resolve("a").verify().damages
    assert damage.file.endswith(str(idx))


def test_a_changed_idx_is_a_new_version(tmp_path: Path, registry: Registry) -> None:
    """A scan that is finished is kept for the next registration, but not if only the .idx is another."""
    path = write(tmp_path / "a")
    first = registry.register("a", path)
    write(tmp_path / "b", per_document=3)
    path.with_suffix(".idx").write_bytes((tmp_path / "b.idx").read_bytes())
    second = registry.register("a", path)
    assert (first.number, second.number) == (1, 2)
    assert second[5]["document"] == 1


def test_sequences_over_the_limit_are_named_or_left_out(tmp_path: Path, registry: Registry) -> None:
    path = write(tmp_path / "a", per_document=4)
    with pytest.raises(BadRow):
        registry.register("a", path, policy=Policy(row_bytes_max=300))
    version = registry.register("a", path, policy=Policy(row_bytes_max=300, skip_bad=1000))
    kept = [{**row, "document": at // 4} for at, row in enumerate(rows()) if len(row["tokens"]) <= 150]
    assert_rows(version, kept)


def changed(data: bytes, place: int, form: str, *values: int) -> bytes:
    return data[:place] + struct.pack(form, *values) + data[place + struct.calcsize(form) :]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda idx: b"MMIDIDY" + idx[7:], "does not begin"),
        (lambda idx: idx[:20], "does not begin"),
        (lambda idx: changed(idx, 9, "<Q", 2), "version 2"),
        (lambda idx: changed(idx, 17, "<B", 9), "dtype code 9"),
        (lambda idx: changed(idx, 17, "<B", 4), "said to begin"),
        (lambda idx: changed(idx, 18, "<Q", 0), "no sequences"),
        (lambda idx: changed(idx, 18, "<Q", SEQUENCES + 1), "should have"),
        (lambda idx: idx[:-1], "should have"),
        (lambda idx: idx + b"x", "should have"),
        (lambda idx: changed(idx, 34 + 4 * 50, "<i", -1), "sequence 50 has -1 tokens"),
        (lambda idx: changed(idx, 34 + 4 * 50, "<i", 7), "sequence 51 is said to begin"),
        (lambda idx: changed(idx, 34 + 4 * SEQUENCES + 80, "<q", 1 << 50), "sequence 10 is said to begin"),
        (lambda idx: changed(idx, len(idx) - 8, "<q", 5), "documents do not cover"),
    ],
)
def test_an_idx_that_breaks_its_contract_is_named(
    tmp_path: Path, registry: Registry, change: Any, reason: str
) -> None:
    path = write(tmp_path / "a")
    idx = path.with_suffix(".idx")
    idx.write_bytes(change(idx.read_bytes()))
    with pytest.raises(FileUnusable, match=reason) as caught:
        registry.register("a", path, format="megatron")
    assert caught.value.path == str(idx)


def test_a_half_without_its_other_half_names_it(tmp_path: Path, registry: Registry) -> None:
    path = write(tmp_path / "a")
    path.with_suffix(".idx").rename(tmp_path / "elsewhere")
    with pytest.raises(FileUnusable, match=r"expected .*a\.idx beside it"):
        registry.register("a", path, format="megatron")
    (tmp_path / "elsewhere").rename(tmp_path / "a.idx")
    path.unlink()
    with pytest.raises(FileUnusable, match=r"expected .*a\.bin beside it"):
        registry.register("a", tmp_path / "a.idx")


@pytest.mark.parametrize("size", [-2, 2])
def test_a_bin_of_another_size_than_listed_is_refused(tmp_path: Path, registry: Registry, size: int) -> None:
    path = write(tmp_path / "a")
    data = path.read_bytes()
    path.write_bytes(data[:size] if size < 0 else data + b"xx")
    with pytest.raises(FileUnusable, match=r"but its \.idx lists"):
        registry.register("a", path)


def test_tokens_belong_to_the_caller(tmp_path: Path, registry: Registry) -> None:
    version = registry.register("a", write(tmp_path / "a"))
    one = version[150]["tokens"]
    one[:] = 0
    assert version[150]["tokens"].any()


def test_damage_while_reading_says_where(tmp_path: Path, registry: Registry) -> None:
    path = write(tmp_path / "a", "i8")
    version = registry.register("a", path)
    with flipped(path, 200_000), pytest.raises(CorruptShard) as caught:
        version.take(range(SEQUENCES))
    assert caught.value.offset == 196_608


def test_a_remote_pair_is_read(tmp_path: Path, registry: Registry) -> None:
    path = write(tmp_path / "a")
    store = open_store("memory://test-megatron/data")
    for suffix in (".bin", ".idx"):
        store.put_if_absent(f"a{suffix}", path.with_suffix(suffix).read_bytes())
    version = registry.register("a", "memory://test-megatron/data")
    assert_rows(version, rows())
    assert version.verify().ok
