"""TFRecord files, written by TensorFlow."""

import shutil
import struct
from pathlib import Path

import numpy as np
import pytest

from penstock.errors import BadRow, DataError, DerivedTooLarge, FileUnusable
from penstock.formats.contract import FieldKind, Policy
from penstock.formats.samples.tf_example import ExampleRows, is_example
from penstock.registry import Registry
from tests.formats.damage import assert_cuts_are_found, assert_flips_are_found, assert_rows, copy_path, same
from tests.formats.tensors import blobs, rows, written


@pytest.fixture(scope="module")
def tensors() -> Path:
    return written()


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "registry")


def test_examples_come_back_as_their_features(tensors: Path, registry: Registry) -> None:
    version = registry.register("a", tensors / "examples.tfrecord")
    assert version.manifest.format == "tfrecord"
    assert_rows(version, rows())
    assert [(field.name, field.kind, field.optional) for field in version.schema] == [
        ("empty", "array", False),
        ("floats", "array", False),
        ("image", "bytes", False),
        ("label", "array", False),
        ("rare", "array", True),
        ("words", "list", True),
    ]


def test_other_records_come_back_as_bytes(tensors: Path, registry: Registry) -> None:
    version = registry.register("a", tensors / "blobs.tfrecord")
    assert_rows(version, blobs())
    assert [(field.name, field.kind) for field in version.schema] == [("data", "bytes")]


def test_a_sequence_example_is_not_taken_for_an_example(tensors: Path, registry: Registry) -> None:
    """It parses as one, but its lists would be lost."""
    (first, *_) = registry.register("a", tensors / "sequences.tfrecord")
    assert list(first) == ["data"]


@pytest.mark.parametrize("kind", ["examples", "blobs"])
def test_gzip_is_read_through_a_plain_copy(tensors: Path, registry: Registry, kind: str) -> None:
    expected = rows() if kind == "examples" else blobs()
    version = registry.register("a", tensors / f"{kind}.tfrecord.gz")
    assert_rows(version, expected)
    copy = copy_path(registry, version)
    assert copy.read_bytes() == (tensors / f"{kind}.tfrecord").read_bytes()
    copy.unlink()
    assert_rows(registry.resolve("a"), expected)


def test_a_copy_stays_within_the_limit(tensors: Path, registry: Registry) -> None:
    with pytest.raises(DerivedTooLarge):
        registry.register("a", tensors / "blobs.tfrecord.gz", policy=Policy(derived_bytes_max=10_000))


@pytest.mark.parametrize("kind", ["examples", "blobs"])
def test_flips_and_cuts_are_found(tensors: Path, registry: Registry, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a.tfrecord"
    shutil.copy(tensors / f"{kind}.tfrecord", path)
    version = registry.register("a", path)
    assert_flips_are_found(registry, version, path, rows() if kind == "examples" else blobs(), every=2)
    assert_cuts_are_found(registry, version, path)


def test_flips_of_a_compressed_file_and_of_its_copy_are_found(
    tensors: Path, registry: Registry, tmp_path: Path
) -> None:
    path = tmp_path / "a.tfrecord.gz"
    shutil.copy(tensors / "blobs.tfrecord.gz", path)
    version = registry.register("a", path)
    assert_flips_are_found(registry, version, path, blobs(), read=False, every=5)
    assert_flips_are_found(registry, version, copy_path(registry, version), blobs(), every=5)


def test_a_flipped_bit_before_registration_is_a_bad_row(
    tensors: Path, registry: Registry, tmp_path: Path
) -> None:
    """TFRecord has sums of its own, so damage from before is found too."""
    path = tmp_path / "a.tfrecord"
    data = bytearray((tensors / "blobs.tfrecord").read_bytes())
    data[14] ^= 1
    path.write_bytes(data)
    with pytest.raises(BadRow, match="crc32c"):
        registry.register("a", path)
    assert_rows(registry.register("a", path, policy=Policy(skip_bad=1)), blobs()[1:])


def test_a_record_that_is_no_example_is_named_or_left_out(tensors: Path, registry: Registry) -> None:
    with pytest.raises(BadRow, match=r"expected a tf\.train\.Example") as caught:
        registry.register("a", tensors / "broken.tfrecord")
    assert caught.value.line == 6
    version = registry.register("a", tensors / "broken.tfrecord", policy=Policy(skip_bad=1))
    assert same(list(version), rows()[:9])
    assert [skipped.line for skipped in version.manifest.skipped] == [6]


def test_a_feature_of_two_kinds_needs_permission(tensors: Path, registry: Registry) -> None:
    with pytest.raises(BadRow, match="'a' is int64_list, but bytes_list"):
        registry.register("a", tensors / "kinds.tfrecord")
    version = registry.register("a", tensors / "kinds.tfrecord", policy=Policy(mixed=True))
    assert same(list(version), [{"a": b"x"}, {"a": np.arange(2)}, {"a": b"y"}])
    assert version.schema[0].kind == "mixed"


def test_zlib_is_refused_with_a_way_out(tensors: Path, registry: Registry) -> None:
    with pytest.raises(FileUnusable, match="zlib"):
        registry.register("a", tensors / "examples.tfrecord.zlib")


@pytest.mark.parametrize("cut", [1, 11, 13, 40, -1, -5])
def test_a_cut_file_is_refused(tensors: Path, registry: Registry, tmp_path: Path, cut: int) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes((tensors / "blobs.tfrecord").read_bytes()[:cut])
    with pytest.raises(DataError) as caught:
        registry.register("a", path, format="tfrecord")
    assert str(path) in str(caught.value)


def test_numbers_that_are_not_packed_are_read_too() -> None:
    """Protobuf lets a writer store each number with its own tag, or a list in several pieces."""

    def field(number: int, data: bytes) -> bytes:
        return bytes([number << 3 | 2, len(data)]) + data

    floats = b"".join(b"\x0d" + struct.pack("<f", value) for value in (1.5, 2.5)) + field(
        1, struct.pack("<f", 3.5)
    )
    whole = field(1, b"\x01\x02") + b"\x08\xac\x02"
    entries = field(1, field(1, b"f") + field(2, field(2, floats))) + field(
        1, field(1, b"i") + field(2, field(3, whole))
    )
    record = field(1, entries)
    assert is_example(record)
    row = ExampleRows([FieldKind("f", "array"), FieldKind("i", "array")]).row(record)
    assert same(row, {"f": np.array([1.5, 2.5, 3.5], np.float32), "i": np.array([1, 2, 300])})


@pytest.mark.parametrize("record", [b"", b"\n", b"\n\0", b"text\n", b"\x08\x01", b"\n\x02\x08\x01"])
def test_bytes_that_only_resemble_an_example_are_bytes(record: bytes) -> None:
    assert not is_example(record)
