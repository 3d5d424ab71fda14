"""Verifying finds everything that is wrong with a checkpoint, and nothing that is right."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.state import Checkpoint, Checkpoints
from penstock.state.inspect.verify import Verifier
from penstock.store import Store
from tests.state.trees import any_bits, every_type, laid, saved, whole


def data_files(place: Path) -> list[Path]:
    return sorted((place / "data").rglob("*.safetensors"))


def flip(file: Path, byte: int) -> None:
    raw = bytearray(file.read_bytes())
    raw[byte] ^= 4
    file.write_bytes(raw)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "place"


def test_what_was_saved_is_as_it_was_saved(store: Store) -> None:
    arrays = {"a": any_bits("F32", (500, 700)), "b": any_bits("BF16", (3,)), "none": any_bits("F64", (0, 2))}
    checkpoint = laid(store, [(name, array, whole(array)) for name, array in arrays.items()])
    report = Verifier().verify(checkpoint)
    assert report.ok
    assert (report.tensors, report.bytes, report.bytes_read) == (3, checkpoint.bytes, checkpoint.bytes)


def test_every_damaged_chunk_is_reported_with_file_byte_and_tensor(place: Path) -> None:
    """Goal: all damage, not the first. Method: flip bits in three chunks of two tensors."""
    checkpoint = saved(place, {"a": any_bits("F32", (700, 700)), "b": any_bits("F32", (64,))})
    (file,) = data_files(place)
    starts = {name: tensor.pieces[0].start for name, tensor in checkpoint.manifest.tensors.items()}
    chunk = checkpoint.manifest.chunk_bytes
    for byte in (starts["a"] + 5, starts["a"] + 6 * chunk + 1, starts["b"] + 255):
        flip(file, byte)
    report = Verifier().verify(checkpoint)
    assert [(damage.tensor, damage.offset) for damage in report.damages] == [
        ("a", starts["a"]),
        ("a", starts["a"] + 6 * chunk),
        ("b", starts["b"]),
    ]
    assert all(damage.file == checkpoint.manifest.files[0].name for damage in report.damages)
    assert "and 2 places more" in report.reason
    assert report.to_json()["ok"] is False


def test_one_damaged_tensor_among_many_small_ones_is_the_only_one_reported(place: Path) -> None:
    checkpoint = saved(place, {f"t{n}": any_bits("F32", (16,), n) for n in range(500)})
    (file,) = data_files(place)
    flip(file, checkpoint.manifest.tensors["t250"].pieces[0].start)
    assert [damage.tensor for damage in Verifier().verify(checkpoint).damages] == ["t250"]


def cut_short(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def flip_header(file: Path) -> None:
    flip(file, 8)


def flip_shape(file: Path) -> None:
    raw = file.read_bytes()
    file.write_bytes(raw.replace(b'"shape":[8,8]', b'"shape":[8,9]', 1))


def no_safetensors(file: Path) -> None:
    raw = bytearray(file.read_bytes())
    raw[:8] = b"\xff" * 8
    file.write_bytes(raw)


def other_step(file: Path) -> None:
    file.write_bytes(file.read_bytes().replace(b'"step":"3"', b'"step":"4"', 1))


def other_run(file: Path) -> None:
    file.write_bytes(file.read_bytes().replace(b'"run":"place"', b'"run":"plaza"', 1))


def no_stamp(file: Path) -> None:
    file.write_bytes(file.read_bytes().replace(b'"penstock":"1"', b'"penstuck":"1"', 1))


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (Path.unlink, "it is missing"),
        (cut_short, "bytes, not"),
        (flip_header, "header cannot be read"),
        (flip_shape, "does not list this piece"),
        (no_safetensors, "not a safetensors file"),
        (other_step, "it is a file of step 4"),
        (other_run, "it is a file of run plaza"),
        (no_stamp, "does not say which checkpoint"),
    ],
)
def test_files_that_are_not_what_the_manifest_says_are_reported(
    place: Path, harm: Callable[[Path], object], reason: str
) -> None:
    checkpoint = saved(place, {"w": any_bits("F32", (8, 8))})
    harm(data_files(place)[0])
    report = Verifier().verify(checkpoint)
    assert reason in report.reason
    assert report.damages[0].file == checkpoint.manifest.files[0].name


def test_a_stale_file_under_the_right_name_is_recognised(place: Path) -> None:
    """Goal: a file of another step is named as such, not only as damaged. Method: put the file of step 3 where that of 4 is."""
    saved(place, {"w": any_bits("F32", (64, 64), 1)}, step=3)
    newer = saved(place, {"w": any_bits("F32", (64, 64), 2)}, step=4)
    older, own = data_files(place)
    shutil.copy(older, own)
    reasons = [damage.reason for damage in Verifier().verify(newer).damages]
    assert reasons[0] == "it is a file of incarnation 0 and step 3"
    assert "expected xxh3" in reasons[1]


def test_a_manifest_that_is_gone_or_changed_is_damage(place: Path) -> None:
    def again() -> Checkpoint:
        with Checkpoints(place, read_only=True) as opened:
            return opened.at(3)

    saved(place, {"w": any_bits("F32", (8, 8))})
    (manifest,) = (place / "manifests").iterdir()
    flip(manifest, 40)
    assert "its digest is not" in Verifier().verify(again()).reason
    manifest.unlink()
    assert "the manifest is missing" in Verifier().verify(again()).reason


def test_what_checkpoints_share_is_read_once_and_its_damage_reported_for_each(place: Path) -> None:
    tree = {"frozen": any_bits("F32", (900, 900)), "w": any_bits("F32", (30, 30))}
    with Checkpoints(place) as checkpoints:
        first = checkpoints.save(1, tree).wait()
        tree["w"] = any_bits("F32", (30, 30), 7)
        second = checkpoints.save(2, tree).wait()
    flip(data_files(place)[0], first.manifest.tensors["frozen"].pieces[0].start)
    verifier = Verifier()
    one, two = verifier.verify(first), verifier.verify(second)
    assert (len(one.damages), len(two.damages)) == (1, 1)
    assert one.damages == two.damages
    assert two.bytes_read == 30 * 30 * 4


def test_every_type_and_shape_verifies(place: Path) -> None:
    assert Verifier().verify(saved(place, every_type())).ok
