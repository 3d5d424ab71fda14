"""WebDataset archives, written by webdataset, by Python's tarfile and by the system's tar."""

import gzip
import io
import random
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import webdataset
import zstandard

from penstock.errors import BadRow, FileUnusable, TooManyBadRows
from penstock.formats.contract import Policy
from penstock.registry import Registry
from tests.formats.damage import assert_cuts_are_found, assert_flips_are_found, assert_rows, copy_path, same

ROWS = 60


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "registry")


def samples() -> list[dict[str, Any]]:
    return [
        {
            "__key__": f"part/{number:06}",
            "jpg": b"\xff\xd8\xff" + bytes([number]) * (number * 200),
            "txt": f"ein s\u00fc\u00dfes Bild {number}",
            "json": {"size": [number, 2], "ratio": number / 7},
            "cls": number % 10,
            "seg.npy": np.arange(number, dtype=np.float32).reshape(-1, 1),
        }
        for number in range(ROWS)
    ]


def write(path: Path) -> Path:
    with webdataset.TarWriter(str(path), mtime=0) as writer:
        for sample in samples():
            # The writer encodes by extension; `jpg` is bytes already.
            writer.write(sample)
    return path


def members(path: Path, files: list[tuple[str, bytes]], *, form: int = tarfile.PAX_FORMAT) -> Path:
    with tarfile.open(path, "w", format=form) as archive:
        for name, data in files:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def test_what_webdataset_writes_is_read(tmp_path: Path, registry: Registry) -> None:
    version = registry.register("a", write(tmp_path / "a.tar"))
    assert version.manifest.format == "webdataset"
    assert_rows(version, samples())
    assert {field.name: field.kind for field in version.schema} == {
        "__key__": "string",
        "jpg": "bytes",
        "txt": "string",
        "json": "object",
        "cls": "int",
        "seg.npy": "array",
    }
    assert not any(field.optional for field in version.schema)


# webdataset leaves the closing of its files to the garbage collector.
@pytest.mark.filterwarnings("ignore:unclosed file", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_rows_are_the_samples_that_webdataset_reads(tmp_path: Path, registry: Registry) -> None:
    path = write(tmp_path / "a.tar")
    version = registry.register("a", path)
    theirs = list(webdataset.WebDataset(str(path), shardshuffle=False).decode())
    for row, sample in zip(version, theirs, strict=True):
        assert same(row, {name: sample[name] for name in row})


def test_a_flipped_bit_is_found(tmp_path: Path, registry: Registry) -> None:
    path = write(tmp_path / "a.tar")
    version = registry.register("a", path)
    assert path.stat().st_size > 300_000
    assert_flips_are_found(registry, version, path, samples())
    assert_cuts_are_found(registry, version, path)


@pytest.mark.parametrize("suffix", ["tar.gz", "tgz", "tar.zst"])
def test_compressed_archives_are_read_through_a_plain_copy(
    tmp_path: Path, registry: Registry, suffix: str
) -> None:
    plain = write(tmp_path / "a.tar")
    packed = tmp_path / f"a.{suffix}"
    compress = zstandard.compress if suffix.endswith("zst") else gzip.compress
    packed.write_bytes(compress(plain.read_bytes()))
    version = registry.register("a", packed)
    copy = copy_path(registry, version)
    assert copy.read_bytes() == plain.read_bytes()
    assert_rows(version, samples())
    assert_flips_are_found(registry, version, copy, samples(), every=8)
    assert_flips_are_found(registry, version, packed, samples(), read=False, every=8)
    packed.write_bytes(packed.read_bytes()[:-5])
    with pytest.raises(FileUnusable, match="cannot be decompressed") as caught:
        Registry(tmp_path / "other").register("a", packed)
    assert caught.value.path == str(packed)


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_all_forms_of_tar_are_read(tmp_path: Path, registry: Registry, form: int) -> None:
    long = "d" * 90 + "/" + "f" * 60
    path = members(tmp_path / "a.tar", [("a.txt", b"1"), (f"{long}.txt", b"2"), ("c.txt", b"")], form=form)
    rows = [{"__key__": "a", "txt": "1"}, {"__key__": long, "txt": "2"}, {"__key__": "c", "txt": ""}]
    assert_rows(registry.register("a", path), rows)


def test_what_the_system_packs_is_read(tmp_path: Path, registry: Registry) -> None:
    """Folders and files without an extension are passed over, as webdataset does; the order is the archive's."""
    (tmp_path / "in/sub").mkdir(parents=True)
    for name, text in [
        ("in/README", "?"),
        ("in/sub/0.txt", "zero"),
        ("in/sub/0.json", "[0]"),
        ("in/sub/1.txt", "one"),
    ]:
        (tmp_path / name).write_text(text)
    subprocess.run(["tar", "--sort=name", "-cf", "a.tar", "in"], cwd=tmp_path, check=True)
    version = registry.register("a", tmp_path / "a.tar")
    assert_rows(
        version, [{"__key__": "in/sub/0", "json": [0], "txt": "zero"}, {"__key__": "in/sub/1", "txt": "one"}]
    )
    assert {field.name: field.optional for field in version.schema}["json"]


@pytest.mark.parametrize(
    ("files", "line", "reason"),
    [
        ([("a.json", b"{}"), ("b.json", b"{")], 2, "member `json` is not valid JSON"),
        ([("a.txt", b"x"), ("b.txt", b"\xff")], 2, "member `txt` is not UTF-8 at byte 0"),
        ([("a.cls", b"one"), ("b.cls", b"2")], 1, "member `cls` is not a whole number: b'one'"),
        ([("a.npy", b"\x93NUMPY")], 1, "member `npy` is not a valid npy array"),
        ([("a.json", b"{}"), ("b.json", b"[]")], 2, "member `json` is list, but was object before"),
        ([("a.txt", b"1"), ("a.txt", b"2")], 1, "two members with extension `txt`"),
        ([("a.txt", b"1"), ("b.txt", b"2"), ("a.cls", b"3")], 3, "key `a` was used before"),
        ([("a.txt", b"1"), ("b.txt", b"2" * 9_000)], 2, "longer than 4096 bytes"),
    ],
)
def test_bad_samples_fail_by_number_or_are_listed(
    tmp_path: Path, registry: Registry, files: list[tuple[str, bytes]], line: int, reason: str
) -> None:
    path = members(tmp_path / "a.tar", [*files, ("good.bin", b"!")])
    with pytest.raises(BadRow) as caught:
        registry.register("a", path, policy=Policy(row_bytes_max=4096))
    assert (caught.value.shard, caught.value.line) == (str(path), line)
    assert reason in caught.value.reason
    version = registry.register("a", path, policy=Policy(row_bytes_max=4096, skip_bad=1))
    assert [(bad.shard, bad.line) for bad in version.manifest.skipped] == [("a.tar", line)]
    assert version[-1] == {"__key__": "good", "bin": b"!"}
    assert version.verify().ok


def headers() -> list[bytes]:
    """Npy files of many types, as numpy writes them, and each with one byte of its header changed."""
    draw = random.Random(0)
    types = ["?", "<i2", ">u8", "<f2", "<f8", "<c16", "<f16", "S3", "<U2", "V5", "<M8[25ns]", "<m8[D]"]
    fields = [[("a", "<f4"), ("b\u00e9", ">i2", (2, 1))], [("x", [("y", "S1"), ("z", "?")]), ("it's", "<u4")]]
    padded = np.dtype({"names": ["a", "b"], "formats": ["u1", "<f8"]}, align=True)
    shapes: list[tuple[int, ...]] = [(), (1,), (2, 3), (0, 4)]
    files: list[bytes] = []
    for dtype in [*types, *fields, padded]:
        for shape in shapes:
            file = io.BytesIO()
            np.save(file, np.zeros(shape, np.dtype(dtype), order="F"))  # type: ignore[call-overload]
            files.append(file.getvalue())
    for whole in files[:]:
        used = whole.index(b"}") + 1
        for _ in range(20):
            changed = bytearray(whole)
            changed[draw.randrange(used)] = draw.choice(b"0123456789(),[]{}'\"<>|=VSOUMmfiuc? L\n\\x\x00\xff")
            files.append(bytes(changed))
    return files


def test_what_is_registered_can_be_read_and_what_numpy_saves_is_registered(
    tmp_path: Path, registry: Registry
) -> None:
    """The checks of registration and the decoders of reading are two programs: rows that the first lets through must
    not fail in the second."""
    numbers = [
        b"1",
        b" +07\x0b\n",
        b"-0",
        b"1_0",
        b"0x1",
        b"",
        b"9" * 4000,
        b"9" * 4001,
        "\u0663".encode(),
        b"1\0",
    ]
    texts = [
        b"1e308",
        b"1e309",
        b"-0",
        b"9" * 4300,
        b"-" + b"9" * 4300,
        b"1" + b"0" * 400 + b".5",
        b'"\\ud800"',
    ]
    texts += [
        b"\xef\xbb\xbf1",
        b"[" * 256 + b"]" * 256,
        b"[" * 257 + b"]" * 257,
        b"NaN",
        b'"\xed\xa0\x80"',
        b"1\0",
    ]
    files = headers()
    named = (
        [("npy", data) for data in files]
        + [("cls", data) for data in numbers]
        + [("json", data) for data in texts]
    )
    path = members(tmp_path / "a.tar", [(f"{n:05}.{name}", data) for n, (name, data) in enumerate(named)])
    version = registry.register("a", path, policy=Policy(skip_bad=10_000, mixed=True))
    rows = list(version)
    saved = len(files) // 21
    assert [row["__key__"] for row in rows[:saved]] == [f"{n:05}" for n in range(saved)]
    for row, data in zip(rows[:saved], files, strict=False):
        assert same(row["npy"], np.load(io.BytesIO(data)))
    bad = {skipped.line for skipped in version.manifest.skipped}
    assert len(bad) + len(rows) == len(named)
    assert [data for n, (name, data) in enumerate(named, 1) if name == "cls" and n not in bad] == [
        b"1",
        b" +07\x0b\n",
        b"-0",
        b"9" * 4000,
    ]


def test_mixed_members_are_allowed_when_asked_for(tmp_path: Path, registry: Registry) -> None:
    path = members(tmp_path / "a.tar", [("a.json", b"{}"), ("b.json", b"[1]"), ("c.json", b"null")])
    version = registry.register("a", path, policy=Policy(mixed=True))
    assert [row["json"] for row in version] == [{}, [1], None]
    assert [(field.kind, field.optional) for field in version.schema] == [("string", False), ("mixed", True)]


def test_more_bad_samples_than_allowed_are_an_error(tmp_path: Path, registry: Registry) -> None:
    path = members(tmp_path / "a.tar", [("a.txt", b"1"), ("a.txt", b"2"), ("b.cls", b"?"), ("c.cls", b"?")])
    with pytest.raises(TooManyBadRows, match="more than 2 bad rows"):
        registry.register("a", path, policy=Policy(skip_bad=2))


def test_archives_that_are_not_whole_are_refused(tmp_path: Path, registry: Registry) -> None:
    whole = write(tmp_path / "a.tar").read_bytes()
    path = tmp_path / "bad.tar"
    for bad, problem, reason in [
        (whole[: len(whole) // 2], FileUnusable, "it is cut off"),
        (whole.rstrip(b"\0"), FileUnusable, "it is cut off"),
        (whole + whole, FileUnusable, "data after the end of the archive"),
        (whole[:1000] + b"x" * 2000, FileUnusable, "bad.tar"),
        (bytes(10_240), FileUnusable, "no rows"),
    ]:
        path.write_bytes(bad)
        with pytest.raises(problem, match=reason):
            registry.register("bad", path, format="webdataset")


def test_pickles_are_never_loaded(tmp_path: Path, registry: Registry) -> None:
    """A member that would run code when decoded stays bytes, and an array of objects is refused."""
    hostile = io.BytesIO()
    np.save(hostile, np.array([{}], dtype=object), allow_pickle=True)
    path = members(tmp_path / "a.tar", [("a.pyd", b"cos\nsystem\n(S'false'\ntR.")])
    assert registry.register("a", path)[0]["pyd"].startswith(b"cos")
    path = members(tmp_path / "b.tar", [("a.npy", hostile.getvalue())])
    with pytest.raises(BadRow, match="allow_pickle=False"):
        registry.register("b", path)
