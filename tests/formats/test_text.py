"""Plain text: one row per line."""

import gzip
from pathlib import Path

import pytest
import zstandard

from penstock.errors import BadRow, FileUnusable
from penstock.formats.contract import Policy
from penstock.registry import Registry
from tests.formats.damage import assert_cuts_are_found, assert_flips_are_found, assert_rows, copy_path

LINES = [f"Zeile {number} \u2014 " + "so lang " * (number % 20) for number in range(3_000)]
ROWS = [{"text": line} for line in LINES]


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "registry")


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_lines_are_rows(tmp_path: Path, registry: Registry, end: str) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(end.join(LINES).encode())
    version = registry.register("a", path)
    assert version.manifest.format == "text"
    assert_rows(version, ROWS)
    assert [(field.name, field.kind) for field in version.schema] == [("text", "string")]


def test_a_flipped_bit_is_found(tmp_path: Path, registry: Registry) -> None:
    path = tmp_path / "a.txt"
    path.write_text("\n".join(LINES))
    version = registry.register("a", path)
    assert_flips_are_found(registry, version, path, ROWS)
    assert_cuts_are_found(registry, version, path)


def test_frames_are_read_in_place(tmp_path: Path, registry: Registry) -> None:
    text = "\n".join(LINES).encode()
    path = tmp_path / "a.txt.zst"
    path.write_bytes(
        b"".join(zstandard.compress(text[at : at + 30_000]) for at in range(0, len(text), 30_000))
    )
    version = registry.register("a", path)
    assert not version.manifest.shards[0].derived
    assert_rows(version, ROWS)
    assert_flips_are_found(registry, version, path, ROWS)


def test_gzip_is_read_through_a_copy(tmp_path: Path, registry: Registry) -> None:
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress("\n".join(LINES).encode(), mtime=0))
    version = registry.register("a", path)
    assert_rows(version, ROWS)
    assert_flips_are_found(registry, version, copy_path(registry, version), ROWS, every=3)
    assert_flips_are_found(registry, version, path, ROWS, read=False, every=6)


def test_lines_that_are_not_text_fail_or_are_listed(tmp_path: Path, registry: Registry) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"good\n\xff\xfe\nalso good\n" + b"x" * 500 + b"\n")
    policy = Policy(row_bytes_max=100)
    with pytest.raises(BadRow, match=r"row 2 .byte 5.*UTF-8"):
        registry.register("a", path, policy=policy, format="text")
    version = registry.register("a", path, policy=Policy(row_bytes_max=100, skip_bad=2), format="text")
    assert_rows(version, [{"text": "good"}, {"text": "also good"}])
    assert [bad.line for bad in version.manifest.skipped] == [2, 4]


def test_what_is_no_text_is_not_taken_for_one(tmp_path: Path, registry: Registry) -> None:
    (tmp_path / "a.txt").write_bytes(b"\x01\x02\0\x03" * 100)
    with pytest.raises(FileUnusable, match="no known format"):
        registry.register("a", tmp_path / "a.txt")
