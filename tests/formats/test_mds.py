"""MDS shards, written by mosaicml-streaming."""

import io
import json
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.errors import BadRow, DerivedTooLarge, FileUnusable
from penstock.formats.contract import Policy
from penstock.registry import Registry
from penstock.store import open_store
from tests.formats.damage import assert_cuts_are_found, assert_flips_are_found, assert_rows, copy_path
from tests.formats.mosaic import PACKINGS, images, samples, written


@pytest.fixture(scope="module")
def mosaic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("mosaic"))


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "registry")


def rows() -> list[dict[str, Any]]:
    """In the order of the columns, which MDS sorts."""
    return [dict(sorted(sample.items())) for sample in samples()]


def shard(folder: Path, *, suffix: str = "mds") -> Path:
    return folder / f"shard.00000.{suffix}"


def test_every_encoding_comes_back_exactly(mosaic: Path, registry: Registry) -> None:
    version = registry.register("a", mosaic / "plain")
    assert version.manifest.format == "mds"
    assert [entry.name for entry in version.manifest.shards] == ["shard.00000.mds"]
    assert_rows(version, rows())
    assert {field.name: field.kind for field in version.schema}["any"] == "array"


def test_many_shards_are_one_version(mosaic: Path, registry: Registry) -> None:
    version = registry.register("a", mosaic / "many")
    assert len(version.manifest.shards) > 3
    assert_rows(version, rows())


@pytest.mark.parametrize("packing", PACKINGS.values())
def test_a_compressed_shard_is_read_through_a_plain_copy(
    mosaic: Path, registry: Registry, packing: str
) -> None:
    version = registry.register("a", mosaic / packing)
    assert version.manifest.format == "mds"
    assert_rows(version, rows())
    copy = copy_path(registry, version)
    copy.unlink()
    assert_rows(registry.resolve("a"), rows())


def test_a_plain_shard_is_preferred_to_its_compressed_twin(
    mosaic: Path, registry: Registry, tmp_path: Path
) -> None:
    folder = tmp_path / "twins"
    shutil.copytree(mosaic / "plain", folder)
    shutil.copy(shard(mosaic / "zstd", suffix="mds.zstd"), folder)
    version = registry.register("a", folder)
    assert [entry.name for entry in version.manifest.shards] == ["shard.00000.mds"]


def test_images_stay_encoded(mosaic: Path, registry: Registry) -> None:
    from PIL import Image

    for row, expected in zip(registry.register("a", mosaic / "images"), images(), strict=True):
        picture = np.asarray(expected["png"])
        assert np.array_equal(np.asarray(Image.open(io.BytesIO(row["png"]))), picture)
        assert row["pil"].endswith(picture.tobytes())
        assert [np.asarray(Image.open(io.BytesIO(data))).tobytes() for data in row["pngs"]] == [
            np.asarray(image).tobytes() for image in expected["pngs"]
        ]
        assert row["jpegs"] == expected["jpegs"]


def test_pickles_are_refused(mosaic: Path, registry: Registry) -> None:
    with pytest.raises(FileUnusable, match="'bad' holds pickles") as caught:
        registry.register("a", mosaic / "pickled")
    assert caught.value.hint is not None
    assert "json" in caught.value.hint


def test_snappy_is_refused_with_a_way_out(mosaic: Path, registry: Registry) -> None:
    with pytest.raises(FileUnusable, match="snappy"):
        registry.register("a", mosaic / "snappy")


def test_flips_and_cuts_are_found(mosaic: Path, registry: Registry, tmp_path: Path) -> None:
    path = tmp_path / "a.mds"
    shutil.copy(shard(mosaic / "plain"), path)
    version = registry.register("a", path)
    assert_flips_are_found(registry, version, path, rows(), every=2)
    assert_cuts_are_found(registry, version, path)


def test_flips_of_a_compressed_shard_and_of_its_copy_are_found(
    mosaic: Path, registry: Registry, tmp_path: Path
) -> None:
    path = tmp_path / "a.mds.zstd"
    shutil.copy(shard(mosaic / "zstd", suffix="mds.zstd"), path)
    version = registry.register("a", path)
    assert_flips_are_found(registry, version, path, rows(), read=False, every=6)
    assert_flips_are_found(registry, version, copy_path(registry, version), rows(), every=6)


def test_a_copy_stays_within_the_limit(mosaic: Path, registry: Registry) -> None:
    with pytest.raises(DerivedTooLarge):
        registry.register("a", mosaic / "zstd", policy=Policy(derived_bytes_max=10_000))


def made(parts: list[bytes], encodings: dict[str, str], **changes: Any) -> bytes:
    """A shard of given samples, right or wrong."""
    config: dict[str, Any] = {
        "column_encodings": list(encodings.values()),
        "column_names": list(encodings),
        "column_sizes": [8 if encoding == "int" else None for encoding in encodings.values()],
        "format": "mds",
        "version": 2,
        **changes,
    }
    text = json.dumps(config).encode()
    offsets = np.cumsum([8 + 4 * len(parts) + len(text), *map(len, parts)])
    return struct.pack(f"<I{len(offsets)}I", len(parts), *offsets.tolist()) + text + b"".join(parts)


def sample(text: bytes) -> bytes:
    return struct.pack("<I", len(text)) + text


WHOLE = made([sample(b"one"), sample(b"two")], {"text": "str"})
BROKEN = {
    "cut": (WHOLE[:-1], "its table ends at byte"),
    "more": (WHOLE + b"x", "its table ends at byte"),
    "cut in the columns": (WHOLE[:40], "would stand"),
    "tiny": (WHOLE[:11], "too few"),
    "no samples": (made([], {"text": "str"}), "no samples"),
    "backwards": (
        struct.pack("<IIII", 2, *np.array([16, 15, 30])) + WHOLE[16:30],
        "columns|before it begins",
    ),
    "unknown encoding": (made([b""], {"text": "utf-9"}), "'utf-9'"),
    "unknown array": (made([b""], {"x": "ndarray:int128"}), "int128"),
    "wrong version": (made([b""], {"text": "str"}, version=3), "version 3"),
    "wrong sizes": (made([b""], {"text": "str"}, column_sizes=[4]), "sizes of columns"),
    "twice": (made([b""], {"a": "str"}, column_names=["a", "a"], column_encodings=["str"] * 2), "same name"),
    "no columns": (made([b""], {}), "there are none"),
    "columns of nonsense": (made([b""], {"a": "str"}, column_names=7), "its columns"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_file_that_breaks_its_contract_is_named(tmp_path: Path, registry: Registry, name: str) -> None:
    data, reason = BROKEN[name]
    path = tmp_path / "a.mds"
    path.write_bytes(data)
    with pytest.raises(FileUnusable, match=reason) as caught:
        registry.register("a", path, format="mds")
    assert caught.value.path == str(path)


BAD_SAMPLES = {
    "invalid UTF-8": ("str", sample(b"\xff\xfe")),
    "wrong size": ("str", struct.pack("<I", 9) + b"abc"),
    "no head": ("str", b"ab"),
    "json": ("json", sample(b"{]")),
    "decimal": ("str_decimal", sample(b"1.2.3")),
    "integer": ("str_int", sample(b"x")),
    "array of no dtype": ("ndarray", sample(b"\x93NUMPY")),
    "array cut": ("ndarray:int32", sample(b"\x04\x05" + b"1234")),
    "list cut": ("list[png]", sample(struct.pack("<III", 0, 1, 99))),
}


@pytest.mark.parametrize("name", BAD_SAMPLES)
def test_a_sample_that_cannot_be_decoded_is_named_or_left_out(
    tmp_path: Path, registry: Registry, name: str
) -> None:
    encoding, bad = BAD_SAMPLES[name]
    good = {
        "str": b"ok",
        "json": b"1",
        "str_decimal": b"1.5",
        "str_int": b"7",
        "ndarray": b"\x08\x04\x01\x07",
    }
    fine = sample(good.get(encoding, b"\x04\x01" + b"1234" if "int32" in encoding else bytes(8)))
    path = tmp_path / "a.mds"
    data = made([fine, bad, fine], {"x": encoding})
    path.write_bytes(data)
    with pytest.raises(BadRow, match="cannot be decoded") as caught:
        registry.register("a", path)
    place = data.index(bad, len(data) - 2 * len(fine) - len(bad))
    assert (caught.value.shard, caught.value.line) == (str(path), 2)
    assert caught.value.offset <= place
    version = registry.register("a", path, policy=Policy(skip_bad=1))
    assert version.rows == 2
    assert [skipped.line for skipped in version.manifest.skipped] == [2]
    assert len(list(version)) == 2


def test_remote_shards_are_read(mosaic: Path, registry: Registry) -> None:
    store = open_store("memory://test-mds/data")
    store.put_if_absent("a.mds", shard(mosaic / "plain").read_bytes())
    store.put_if_absent("b.mds.zstd", shard(mosaic / "zstd", suffix="mds.zstd").read_bytes())
    assert_rows(registry.register("a", "memory://test-mds/data"), rows() + rows())
