"""In and out: what goes out comes back with the same bits, the libraries of others read it, and what is no state is refused."""

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from penstock.errors import CheckpointDamaged, ForeignUnusable, UsageError
from penstock.state import Checkpoint, Checkpoints
from penstock.state.exchange import (
    Choice,
    copy_checkpoint,
    export_safetensors,
    import_state,
    open_source,
)
from penstock.state.exchange.intake import Name
from penstock.state.inspect.verify import Verifier
from penstock.store import Store, open_store
from tests.state.trees import any_bits, columns, contents, digest_of, every_type, laid, saved


def imported(origin: Path, place: Path | Store, *, prefix: str = "", step: int = 3) -> Checkpoint:
    store = open_store(place) if isinstance(place, Path) else place
    return import_state(open_source(origin, prefix), store, Name(step)).checkpoint


def test_safetensors_shards_come_back_with_the_same_bits(tmp_path: Path) -> None:
    checkpoint = saved(tmp_path / "place", every_type())
    written = export_safetensors(checkpoint, tmp_path / "hf", Choice(), shard_bytes_max=500)
    names = [path.name for path in written]
    assert len(names) > 3
    assert names[0] == f"model-00001-of-{len(names) - 1:05d}.safetensors"
    assert names[-1] == "model.safetensors.index.json"
    index = json.loads(written[-1].read_text())
    assert index["metadata"]["total_size"] == checkpoint.bytes
    assert set(index["weight_map"]) == set(checkpoint.manifest.tensors)
    back = imported(tmp_path / "hf", tmp_path / "back")
    assert contents(back) == contents(checkpoint)
    assert Verifier().verify(back).ok


def test_the_library_reads_what_is_exported_and_we_read_what_it_writes(tmp_path: Path) -> None:
    tree = {
        "model": {
            "a.weight": any_bits("F32", (7, 5)),
            "a.bias": any_bits("BF16", (5,)),
            "flag": any_bits("BOOL", (3,)),
        }
    }
    checkpoint = saved(tmp_path / "place", tree)
    (path,) = export_safetensors(checkpoint, tmp_path / "hf", Choice(prefix="model/"))
    assert path.name == "model.safetensors"
    read = load_file(path)
    assert {name: array.tobytes() for name, array in read.items()} == {
        name: array.tobytes() for name, array in tree["model"].items()
    }
    save_file(read, tmp_path / "theirs.safetensors", {"format": "pt"})
    assert contents(
        imported(tmp_path / "theirs.safetensors", tmp_path / "back", prefix="model/")
    ) == contents(checkpoint)


def test_an_imported_checkpoint_loads_into_a_tree_and_goes_on(tmp_path: Path) -> None:
    """Goal: an import is a checkpoint like any other. Method: resume from it, save the next step, verify both."""
    weights = {"w": any_bits("F32", (40, 30)), "b": any_bits("F16", (3,))}
    save_file(weights, tmp_path / "model.safetensors")
    imported(tmp_path / "model.safetensors", tmp_path / "place", prefix="model/", step=0)
    tree = {"model": {name: np.zeros_like(array) for name, array in weights.items()}}
    with Checkpoints(tmp_path / "place") as checkpoints:
        resumed = checkpoints.resume(tree)
        assert resumed is not None
        assert resumed.step == 0
        assert {name: array.tobytes() for name, array in tree["model"].items()} == {
            name: array.tobytes() for name, array in weights.items()
        }
        checkpoints.save(1, tree).wait()
        assert [Verifier().verify(checkpoint).ok for checkpoint in checkpoints.list()] == [True, True]


def test_resharded_tensors_go_out_whole(store: Store, tmp_path: Path) -> None:
    array = any_bits("I16", (30, 40))
    checkpoint = laid(store, [("w", array, box) for box in columns(array, [1, 17])])
    (path,) = export_safetensors(checkpoint, tmp_path / "one.safetensors", Choice())
    assert path == tmp_path / "one.safetensors"
    assert load_file(path)["w"].tobytes() == array.tobytes()


def test_only_what_is_chosen_goes_out_in_the_type_that_is_asked_for(tmp_path: Path) -> None:
    array = np.linspace(-3, 3, 60, dtype=np.float32).reshape(6, 10)
    tree = {
        "model": {"w": array, "norm.w": array[0], "ids": np.arange(4)},
        "optimizer": {"w": {"exp_avg": array}},
    }
    checkpoint = saved(tmp_path / "place", tree)
    choice = Choice(prefix="model/", only=("*w", "*ids"), dtype="BF16")
    (path,) = export_safetensors(checkpoint, tmp_path / "hf", choice)
    read = load_file(path)
    assert sorted(read) == ["ids", "norm.w", "w"]
    assert read["w"].tobytes() == array.astype(ml_dtypes.bfloat16).tobytes()
    assert read["ids"].dtype == np.int64
    with pytest.raises(UsageError, match="no tensor is chosen"):
        export_safetensors(checkpoint, tmp_path / "none", Choice(prefix="nothing/"))
    with pytest.raises(UsageError, match="dtype F8 is not known"):
        Choice(dtype="F8")


def test_nothing_is_overwritten_unless_it_is_asked_for(tmp_path: Path) -> None:
    one = saved(tmp_path / "one", {"a": any_bits("F32", (9,)), "b": any_bits("F32", (9,))})
    two = saved(tmp_path / "two", {"a": any_bits("F32", (9,), 5)})
    folder = tmp_path / "hf"
    export_safetensors(one, folder, Choice(), shard_bytes_max=10)
    (folder / "config.json").write_text("{}")
    before = digest_of(folder)
    with pytest.raises(UsageError, match="exists already"):
        export_safetensors(two, folder, Choice())
    assert digest_of(folder) == before
    export_safetensors(two, folder, Choice(), force=True)
    assert sorted(digest_of(folder)) == ["config.json", "model.safetensors"]
    assert contents(imported(folder, tmp_path / "back")) == contents(two)
    with pytest.raises(UsageError, match="shard_bytes_max must be positive, got 0"):
        export_safetensors(two, folder, Choice(), shard_bytes_max=0)


def test_damage_stops_an_export_and_leaves_nothing(tmp_path: Path) -> None:
    checkpoint = saved(tmp_path / "place", {"a": any_bits("F32", (9,))})
    (file,) = (tmp_path / "place/data").rglob("*.safetensors")
    raw = bytearray(file.read_bytes())
    raw[-3] ^= 1
    file.write_bytes(raw)
    with pytest.raises(CheckpointDamaged, match="tensor a"):
        export_safetensors(checkpoint, tmp_path / "hf", Choice())
    assert digest_of(tmp_path / "hf") == {}


def test_a_copy_stands_on_its_own(store: Store, tmp_path: Path) -> None:
    """Goal: everything referred to is copied. Method: copy a checkpoint that shares files, then remove the first place."""
    tree: dict[str, Any] = {"frozen": any_bits("F32", (400, 400)), "w": any_bits("F32", (3,)), "lr": 0.5}
    place = tmp_path / "place"
    with Checkpoints(place, run="the run") as checkpoints:
        checkpoints.save(1, tree).wait()
        tree["w"] = any_bits("F32", (3,), 8)
        checkpoint = checkpoints.save(2, tree, {"cursor": {"at": 7}}, metrics={"loss": 1.5}).wait()
    assert len(checkpoint.manifest.files) == 2
    expected = contents(checkpoint)
    copied = copy_checkpoint(checkpoint, store).checkpoint
    for file in place.rglob("*.safetensors"):
        file.unlink()
    assert contents(copied) == expected
    assert (copied.step, copied.metrics, copied.manifest.run) == (2, {"loss": 1.5}, "the run")
    assert copied.manifest.values == checkpoint.manifest.values
    assert copied.manifest.entries == checkpoint.manifest.entries
    assert Verifier().verify(copied).ok
    with pytest.raises(UsageError, match="belongs to a run already"):
        copy_checkpoint(copied, store)


def test_the_run_of_a_place_is_not_fenced_off_by_mistake(tmp_path: Path) -> None:
    save_file({"a": any_bits("F32", (9,))}, tmp_path / "a.safetensors")
    with Checkpoints(tmp_path / "place") as checkpoints:
        checkpoints.save(5, {"a": any_bits("F32", (9,), 3)}).wait()
        with pytest.raises(UsageError, match="belongs to a run already"):
            imported(tmp_path / "a.safetensors", tmp_path / "place")
        assert checkpoints.save(6, {"a": any_bits("F32", (9,), 4)}).wait().step == 6
    source = open_source(tmp_path / "a.safetensors")
    forced = import_state(source, open_store(tmp_path / "place"), Name(7), force=True)
    assert forced.checkpoint.incarnation == 1
    with pytest.raises(UsageError, match="step must be a whole number from 0, got"):
        import_state(source, open_store(tmp_path / "other"), Name(-1))


def header(document: object) -> bytes:
    text = json.dumps(document).encode()
    return len(text).to_bytes(8, "little") + text


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not a safetensors file"),
        (b"some text that is no header at all", "not a safetensors file"),
        ((5).to_bytes(8, "little") + b"{not}", "header cannot be read"),
        (header({"a": {"dtype": "F4", "shape": [1], "data_offsets": [0, 1]}}) + b"x", "type F4"),
        (
            header({"a": {"dtype": "U8", "shape": [-1], "data_offsets": [0, 1]}}) + b"x",
            "no valid entry for a",
        ),
        (header({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0]}}) + b"x", "no valid entry for a"),
        (header({"a": {"dtype": "U8", "data_offsets": [0, 1]}}) + b"x", "no valid entry for a"),
        (
            header({"a": {"dtype": "U8", "shape": [2], "data_offsets": [0, 1]}}) + b"x",
            "another number of bytes",
        ),
        (header({"a": {"dtype": "U8", "shape": [9], "data_offsets": [0, 9]}}) + b"x", "ends at byte"),
    ],
)
def test_files_that_are_no_safetensors_are_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "bad.safetensors").write_bytes(content)
    with pytest.raises(ForeignUnusable, match=reason) as problem:
        open_source(tmp_path / "bad.safetensors")
    assert problem.value.path == str(tmp_path / "bad.safetensors")


def test_folders_that_hold_no_state_are_refused_with_the_reason(tmp_path: Path) -> None:
    def refused(path: Path) -> str:
        with pytest.raises(ForeignUnusable) as problem:
            open_source(path)
        return str(problem.value)

    assert "no such file" in refused(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    assert "its form is not known" in refused(tmp_path / "empty")
    saved(tmp_path / "place", {"a": np.ones(3)})
    assert "a place of checkpoints already" in refused(tmp_path / "place")
    (file,) = (tmp_path / "place/data").rglob("*.safetensors")
    assert "a data file of a checkpoint" in refused(file)
    (tmp_path / "orbax").mkdir()
    (tmp_path / "orbax/_CHECKPOINT_METADATA").write_text("{}")
    assert "Orbax" in refused(tmp_path / "orbax")
    (tmp_path / "old.pt").write_bytes(b"\x80\x02old")
    assert "not a file of torch.save" in refused(tmp_path / "old.pt")


def test_indexes_that_do_not_hold_are_refused(tmp_path: Path) -> None:
    index = tmp_path / "model.safetensors.index.json"
    for text in (
        "{",
        '{"weight_map": 3}',
        '{"weight_map": {"a": "gone.safetensors"}}',
        '{"weight_map": {"a": "../x"}}',
    ):
        index.write_text(text)
        with pytest.raises(ForeignUnusable):
            open_source(tmp_path)
    index.unlink()
    for number in range(2):
        save_file({"a": any_bits("F32", (2,))}, tmp_path / f"{number}.safetensors")
    with pytest.raises(ForeignUnusable, match=r"a is in 0.safetensors too"):
        open_source(tmp_path)
