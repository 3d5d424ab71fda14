"""Saving and loading: what comes back is what was there, whatever the layout, the place and the time."""

import logging
import uuid
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import (
    CheckpointDamaged,
    CheckpointUnknown,
    Fenced,
    SaveFailed,
    TreeInvalid,
    TreeMismatch,
    UsageError,
)
from penstock.state.load import load as loading
from penstock.state.tree import from_json, to_json
from penstock.store import Store
from tests.state.layouts import Divided, equal, gang

TYPES = ("float32", "float16", "float64", "int64", "uint8", "bool", "int32")


def state(seed: int = 1) -> dict[str, Any]:
    """A small nested state."""
    draw = np.random.default_rng(seed)
    return {
        "model": {"w": draw.random((300, 40), np.float32), "b": np.zeros(40, np.float16)},
        "optimizer": [draw.random(7), {"step": seed, "lr": float("inf"), "name": "adam", "big": 1 << 70}],
        "scale": np.float32(seed),
    }


def empty_like(tree: Any) -> Any:
    """The same tree with other contents."""
    if isinstance(tree, dict):
        return {key: empty_like(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [empty_like(value) for value in tree]
    if isinstance(tree, np.ndarray):
        return np.zeros_like(tree)
    return type(tree)(0) if not isinstance(tree, str) else ""


def test_a_tree_comes_back_from_every_kind_of_place(store: Store) -> None:
    tree = state()
    with ps.Checkpoints(store.url) as ck:
        assert ck.latest() is None
        saved = ck.save(5, tree, entries={"cursor": {"step": 5}, "raw": b"\0\1"}).wait()
    other = empty_like(tree)
    again = ps.Checkpoints(store.url)
    checkpoint = again.latest()
    assert checkpoint is not None
    assert (checkpoint.step, checkpoint.digest, checkpoint.bytes) == (5, saved.digest, saved.bytes)
    assert again.load(checkpoint, into=other) is other
    np.testing.assert_equal(other, tree)
    assert again.entries(checkpoint) == {"cursor": {"step": 5}, "raw": b"\0\1"}


def test_a_checkpoint_is_loaded_by_its_step(tmp_path: Path) -> None:
    tree, other = state(), empty_like(state())
    with ps.Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(5, tree, entries={"cursor": 5}).wait()
        checkpoints.load(5, into=other)
        np.testing.assert_equal(other, tree)
        assert checkpoints.entries(5) == {"cursor": 5}
        with pytest.raises(CheckpointUnknown, match="step 6"):
            checkpoints.load(6, into=other)
        for wrong in ("latest", True, None):
            with pytest.raises(UsageError, match="a checkpoint or a step is needed"):
                checkpoints.load(wrong, into=other)  # type: ignore[arg-type]


def test_what_is_saved_is_what_was_there_at_the_call(tmp_path: Path) -> None:
    tree = {"w": np.ones(1 << 20, np.float32)}
    with ps.Checkpoints(tmp_path) as ck:
        pending = ck.save(1, tree, entries={"list": [1]})
        tree["w"][:] = 2
        checkpoint = pending.wait()
        ck.load(checkpoint, into=tree)
    assert (tree["w"] == 1).all()


def test_data_files_are_plain_safetensors(tmp_path: Path) -> None:
    tree = state()
    with ps.Checkpoints(tmp_path, run="try") as ck:
        ck.save(5, tree).wait()
    (path,) = (tmp_path / "data").rglob("*.safetensors")
    arrays = safetensors.numpy.load_file(path)
    assert set(arrays) == {"model/w", "model/b", "optimizer/0", "scale"}
    np.testing.assert_equal(arrays["model/w"], tree["model"]["w"])
    with safetensors.safe_open(path, "np") as file:
        assert file.metadata() == {
            "penstock": "1",
            "run": "try",
            "incarnation": "0",
            "step": "5",
            "rank": "0",
        }


_PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()


@given(
    st.recursive(
        _PLAIN,
        lambda below: (
            st.lists(below)
            | st.dictionaries(st.text(), below)
            | st.dictionaries(st.sampled_from(["$int", "$dict", "a"]), below)
        ),
    )
)
def test_plain_values_come_back(value: Any) -> None:
    through = msgspec.json.decode(msgspec.json.encode(to_json("v", value)))
    assert from_json(through) == value


@st.composite
def cases(draw: Any) -> Any:
    """Tensors, and two layouts with their numbers of ranks."""
    names = [f"t{number}" for number in range(draw(st.integers(1, 4)))]
    whole, layouts = {}, ({}, {})
    for number, name in enumerate(names):
        shape = tuple(draw(st.lists(st.integers(0, 9), min_size=0, max_size=3)))
        dtype = draw(st.sampled_from(TYPES))
        words = np.random.default_rng(number).integers(0, 2, shape) * 77
        whole[name] = np.asarray(words, dtype)
        for layout in layouts:
            choices = [None, *range(len(shape))]
            layout[name] = draw(st.sampled_from(choices))
    return whole, layouts, draw(st.integers(1, 4)), draw(st.integers(1, 4))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cases())
def test_any_layout_loads_into_any_layout(case: Any) -> None:
    whole, (before, after), ranks, other_ranks = case
    place = f"memory://{uuid.uuid4().hex}/ck"

    def save(rank: int) -> int:
        with ps.Checkpoints(place, token="a", rank=rank, ranks=ranks) as ck:
            return ck.save(3, Divided(whole, before, rank, ranks)).wait().step

    assert gang(ranks, save) == [3] * ranks

    def load(rank: int) -> Divided:
        target = Divided({k: np.zeros_like(v) for k, v in whole.items()}, after, rank, other_ranks)
        with ps.Checkpoints(place, token="b", rank=rank, ranks=other_ranks) as ck:
            checkpoint = ck.resume(target)
            assert checkpoint is not None
            assert checkpoint.step == 3
        return target

    loaded = gang(other_ranks, load)
    expected = [Divided(whole, after, rank, other_ranks) for rank in range(other_ranks)]
    assert equal([divided.arrays() for divided in loaded], [divided.arrays() for divided in expected])
    # A rank finds its own entry, if the saved state had such a rank.
    own = {rank: {"rng": f"of rank {rank}"} if rank < ranks else {} for rank in range(other_ranks)}
    if ranks > 1:
        assert [divided.came for divided in loaded] == [own[rank] for rank in range(other_ranks)]


def test_replicas_are_written_once(tmp_path: Path) -> None:
    whole = {"big": np.random.default_rng(1).random((1000, 1000)), "small": np.arange(10)}

    def save(rank: int) -> int:
        with ps.Checkpoints(tmp_path, token="a", rank=rank, ranks=4) as ck:
            pending = ck.save(1, Divided(whole, {"big": None, "small": None}, rank, 4))
            pending.wait()
            return pending.bytes_written

    written = gang(4, save)
    assert sum(written) == whole["big"].nbytes + whole["small"].nbytes
    assert max(written) <= whole["big"].nbytes // 4 + whole["small"].nbytes


def test_what_did_not_change_is_not_written_again_and_still_loads_after_pruning(tmp_path: Path) -> None:
    tree = {"base": np.random.default_rng(1).random(1 << 20), "lora": np.zeros(1000)}
    with ps.Checkpoints(tmp_path, keep=ps.Keep(last=1)) as ck:
        ck.save(0, tree).wait()
        for step in range(1, 4):
            tree["lora"] += 1
            pending = ck.save(step, tree)
            pending.wait()
            assert pending.bytes_written == tree["lora"].nbytes
    ck = ps.Checkpoints(tmp_path)
    assert [checkpoint.step for checkpoint in ck.list()] == [3]
    other = {"base": np.zeros(1 << 20), "lora": np.zeros(1000)}
    newest = ck.latest()
    assert newest is not None
    ck.load(newest, into=other)
    np.testing.assert_equal(other, tree)


def test_a_resumed_run_refers_to_what_it_loaded(tmp_path: Path) -> None:
    tree = {"base": np.random.default_rng(1).random(1 << 18), "lora": np.zeros(1000)}
    with ps.Checkpoints(tmp_path) as ck:
        ck.save(0, tree).wait()
    with ps.Checkpoints(tmp_path) as ck:
        assert ck.resume(tree) is not None
        tree["lora"] += 1
        pending = ck.save(1, tree)
        pending.wait()
    assert pending.bytes_written == tree["lora"].nbytes


def test_an_old_file_is_not_kept_for_a_small_part_of_it(tmp_path: Path) -> None:
    tree = {"kept": np.ones(1 << 16), "changed": np.zeros(1 << 20)}
    with ps.Checkpoints(tmp_path, keep=ps.Keep(last=1)) as ck:
        ck.save(0, tree).wait()
        tree["changed"] += 1
        pending = ck.save(1, tree)
        pending.wait()
    assert pending.bytes_written == tree["kept"].nbytes + tree["changed"].nbytes
    assert len(list((tmp_path / "data").rglob("*.safetensors"))) == 1


def test_saving_the_same_state_twice_is_an_alarm(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tree = state()
    with caplog.at_level(logging.WARNING), ps.Checkpoints(tmp_path) as ck:
        ck.save(1, tree).wait()
        assert not caplog.records
        ck.save(2, tree).wait()
    assert "no tensor changed between steps 1 and 2" in caplog.text


def test_partial_loads_and_other_names(tmp_path: Path) -> None:
    with ps.Checkpoints(tmp_path) as ck:
        checkpoint = ck.save(
            1, {"model": {"w": np.arange(6.0), "b": np.ones(2)}, "optimizer": {"m": np.ones(6)}}
        ).wait()
    ck = ps.Checkpoints(tmp_path)
    backbone = {"backbone": {"w": np.zeros(6), "b": np.zeros(2)}, "head": np.full(3, 7.0)}
    ck.load(checkpoint, into=backbone, only="backbone", rename={"backbone": "model"})
    np.testing.assert_equal(
        backbone, {"backbone": {"w": np.arange(6.0), "b": np.ones(2)}, "head": np.full(3, 7.0)}
    )
    with pytest.raises(TreeMismatch) as problem:
        ck.load(checkpoint, into={"model": {"w": np.zeros(6)}, "new": np.zeros(1)})
    assert (problem.value.missing, problem.value.unexpected) == (["new"], ["model/b", "optimizer/m"])
    loose = {"model": {"w": np.zeros(6)}, "new": np.full(1, 5.0)}
    ck.load(checkpoint, into=loose, strict=False)
    np.testing.assert_equal(loose, {"model": {"w": np.arange(6.0)}, "new": np.full(1, 5.0)})
    for wrong in (np.zeros(5), np.zeros(6, np.float32)):
        with pytest.raises(TreeMismatch, match="different: model/w"):
            ck.load(checkpoint, into={"model": {"w": wrong}}, strict=False)


def test_bad_input_is_refused(tmp_path: Path) -> None:
    ck = ps.Checkpoints(tmp_path)
    with pytest.raises(TreeInvalid, match="'a/b' in the tree: a object"):
        ck.save(1, {"a": {"b": object()}})
    with pytest.raises(TreeInvalid, match="cannot be saved"):
        ck.save(1, {"a": np.array(["text"])})
    with pytest.raises(TreeInvalid):
        ck.save(1, np.zeros(3))
    with pytest.raises(UsageError):
        ck.save(-1, {})
    with pytest.raises(CheckpointUnknown, match="of step 7"):
        ck.at(7)
    with pytest.raises(UsageError):
        ps.Checkpoints(tmp_path, read_only=True).save(1, {"a": np.zeros(1)})
    with pytest.raises(UsageError, match="token"):
        ps.Checkpoints(tmp_path, rank=1, ranks=2).save(1, {"a": np.zeros(1)}).wait()
    ck.close()


def test_only_the_newest_incarnation_commits(tmp_path: Path) -> None:
    tree = {"a": np.zeros(3)}
    old, new = ps.Checkpoints(tmp_path), ps.Checkpoints(tmp_path)
    old.save(1, tree).wait()
    assert new.resume(tree) is not None
    tree["a"] += 1
    pending = old.save(2, tree)
    with pytest.raises(Fenced):
        pending.wait()
    new.save(2, tree).wait()
    assert [(checkpoint.step, checkpoint.incarnation) for checkpoint in new.list()] == [(1, 0), (2, 1)]
    old.close()
    new.close()


def test_a_failure_nobody_heard_of_is_raised_by_the_next_save(tmp_path: Path) -> None:
    tree = {"a": np.zeros(3)}
    old, new = ps.Checkpoints(tmp_path), ps.Checkpoints(tmp_path)
    first = old.save(1, tree)
    first.wait()
    new.save(2, tree).wait()
    pending = old.save(3, tree)
    assert pending.ended(60)
    with pytest.raises(Fenced):
        old.save(4, tree)
    old.close()
    new.close()


def test_failures_are_a_policy(tmp_path: Path) -> None:
    """A place that cannot be written to: a file stands where a folder should be."""
    place = tmp_path / "ck"
    place.mkdir()
    (place / "data").write_text("in the way")
    tree = {"a": np.arange(1000)}
    failing = ps.Failure(retries=1)
    with ps.Checkpoints(place, failure=failing) as ck, pytest.raises(ps.PenstockError, match="data"):
        ck.save(1, tree).wait()
    spill = tmp_path / "spill"
    with ps.Checkpoints(place, failure=ps.Failure(retries=0, spill=str(spill))) as ck:
        checkpoint = ck.save(2, tree).wait()
    assert checkpoint.manifest.files[0].name.startswith("file://")
    other = {"a": np.zeros(1000, np.int64)}
    ck = ps.Checkpoints(place)
    ck.load(ck.at(2), into=other)
    np.testing.assert_equal(other, tree)
    with ps.Checkpoints(place, failure=ps.Failure(retries=0, then="continue")) as ck:
        for step in (3, 4):
            pending = ck.save(step, tree)
        ck.wait()
        assert len(ck.failures) == 2
        assert pending.error is not None


def test_a_rank_that_is_alone_tells_nobody_that_it_failed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for folder in ("data", "parts"):
        (tmp_path / folder).write_text("in the way")
    with ps.Checkpoints(tmp_path, failure=ps.Failure(retries=0)) as ck, pytest.raises(ps.PenstockError):
        ck.save(1, {"a": np.arange(10)}).wait()
    assert "the others" not in caplog.text


def test_a_damaged_checkpoint_is_left_for_an_older_one(tmp_path: Path) -> None:
    tree = {"a": np.random.default_rng(1).random(100_000)}
    with ps.Checkpoints(tmp_path) as ck:
        ck.save(1, tree).wait()
        kept = tree["a"].copy()
        tree["a"] += 1
        newest = ck.save(2, tree).wait()
    path = tmp_path / newest.manifest.files[0].name
    data = bytearray(path.read_bytes())
    data[-100_000] ^= 4
    path.write_bytes(data)
    with pytest.raises(CheckpointDamaged) as problem:
        ps.Checkpoints(tmp_path).load(newest, into=tree)
    assert problem.value.tensor == "a"
    with ps.Checkpoints(tmp_path) as ck:
        resumed = ck.resume(tree)
        assert resumed is not None
        assert resumed.step == 1
    np.testing.assert_equal(tree["a"], kept)
    assert [(checkpoint.step, bool(checkpoint.damage)) for checkpoint in ck.list()] == [(1, False), (2, True)]


def test_a_missing_manifest_file_or_size_is_noticed_without_loading(tmp_path: Path) -> None:
    tree = {"a": np.random.default_rng(1).random(1000)}
    with ps.Checkpoints(tmp_path) as ck:
        for step in range(4):
            tree["a"] += 1
            ck.save(step, tree).wait()
        checkpoints = [ck.at(step) for step in range(4)]
    (tmp_path / checkpoints[3].manifest.files[0].name).unlink()
    for folder in ("manifests", "copies/manifests"):
        (tmp_path / folder / f"{checkpoints[2].digest[3:]}.json").unlink()
    with (tmp_path / checkpoints[1].manifest.files[0].name).open("ab") as file:
        file.write(b"x")
    looking = ps.Checkpoints(tmp_path, read_only=True).latest()
    assert looking is not None
    assert looking.step == 0
    assert not any(checkpoint.damage for checkpoint in ck.list())
    ps.Checkpoints(tmp_path).latest()
    assert [bool(checkpoint.damage) for checkpoint in ck.list()] == [False, True, True, True]


def test_a_file_of_another_step_says_which(tmp_path: Path) -> None:
    tree = {"a": np.random.default_rng(1).random(1000)}
    with ps.Checkpoints(tmp_path) as ck:
        first = ck.save(1, tree).wait()
        tree["a"] += 1
        second = ck.save(2, tree).wait()
    stale = (tmp_path / first.manifest.files[0].name).read_bytes()
    (tmp_path / second.manifest.files[0].name).write_bytes(stale)
    with pytest.raises(CheckpointDamaged, match="a file of step 1"):
        ps.Checkpoints(tmp_path).load(second, into=tree)


def test_a_rank_that_fails_does_not_leave_the_others_waiting(tmp_path: Path) -> None:
    whole = {"a": np.arange(12.0)}

    def save(rank: int) -> str:
        layout: dict[str, int | None] = {"a": 0}
        # Rank 1 believes in another shape, so that the pieces do not make a whole.
        mine = {"a": np.arange(14.0)} if rank == 1 else whole
        with ps.Checkpoints(tmp_path, token="a", rank=rank, ranks=3, deadline_s=60) as ck:
            with pytest.raises(SaveFailed) as problem:
                ck.save(1, Divided(mine, layout, rank, 3)).wait()
            return str(problem.value)

    assert all("[12]" in reason and "[14]" in reason for reason in gang(3, save))
    assert ps.Checkpoints(tmp_path).latest() is None


def test_a_run_that_builds_on_another_one_shares_its_files_and_keeps_them(tmp_path: Path) -> None:
    base = {"model": np.random.default_rng(1).random(1 << 18)}
    with ps.Checkpoints(tmp_path / "base") as first:
        checkpoint = first.save(100, base).wait()
        tuned = {"model": base["model"].copy(), "lora": np.zeros(10)}
        with ps.Checkpoints(tmp_path / "tuned", base=checkpoint, keep=ps.Keep(last=1)) as second:
            for step in (1, 2):
                tuned["lora"] += 1
                pending = second.save(step, tuned)
                pending.wait()
                assert pending.bytes_written == tuned["lora"].nbytes
        # The other run goes on and prunes, and keeps what is referred to.
        for step in (101, 102):
            base["model"] += 1
            first.save(step, base).wait()
        assert first.prune(ps.Keep(last=1)).retired == (101,)
    other = {"model": np.zeros(1 << 18), "lora": np.zeros(10)}
    again = ps.Checkpoints(tmp_path / "tuned")
    latest = again.latest()
    assert latest is not None
    again.load(latest, into=other)
    np.testing.assert_equal(other, tuned)


def test_a_state_that_is_larger_than_its_memory_is_saved_in_waves(tmp_path: Path) -> None:
    tree = {"a": np.random.default_rng(1).random((300, 700)), "b": np.arange(1000), "c": np.zeros((0, 3))}
    with ps.Checkpoints(tmp_path, memory_bytes=100_000) as ck:
        pending = ck.save(1, tree)
        checkpoint = pending.wait()
        assert pending.bytes_written == tree["b"].nbytes or pending.bytes_written <= 100_000
    assert len(checkpoint.manifest.files) == 18
    other = {name: np.zeros_like(array) for name, array in tree.items()}
    ps.Checkpoints(tmp_path).load(checkpoint, into=other)
    np.testing.assert_equal(other, tree)


def test_ranks_refer_to_their_own_older_files(tmp_path: Path) -> None:
    whole = {"a": np.random.default_rng(1).random((8, 50_000)), "b": np.zeros(8)}

    def run(rank: int) -> list[int]:
        state = Divided(whole, {"a": 0, "b": 0}, rank, 2)
        written = []
        with ps.Checkpoints(tmp_path, token="x", rank=rank, ranks=2) as ck:
            for step in (1, 2, 3):
                state.arrays()["b"][:] += 1
                pending = ck.save(step, state)
                pending.wait()
                written.append(pending.bytes_written)
        return written

    assert gang(2, run) == [[1_600_032, 32, 32]] * 2


def test_arrays_that_do_not_lie_in_one_piece_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Small halves, so that one array is read in many parts by both of them.
    monkeypatch.setattr(loading, "HALF_BYTES_MIN", 4096)
    whole = np.random.default_rng(1).random((64, 300))
    tree = {"columns": whole[:, ::3], "turned": whole.T, "backwards": whole[::-1], "number": np.array(3.5)}
    with ps.Checkpoints(tmp_path) as ck:
        checkpoint = ck.save(1, tree).wait()
    space = np.zeros((64, 900))
    other = {
        "columns": space[:, :300:3],
        "turned": np.zeros((64, 300)).T,
        "backwards": np.zeros((64, 300))[::-1],
        "number": np.array(0.0),
    }
    ps.Checkpoints(tmp_path).load(checkpoint, into=other)
    np.testing.assert_equal(other, tree)
    assert not space[:, 1::3].any()


def test_ranks_of_a_job_know_each_other_and_a_new_job_is_a_new_incarnation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = {"a": np.arange(8.0)}

    def save(rank: int) -> int:
        with ps.Checkpoints(tmp_path, rank=rank, ranks=2) as ck:
            return ck.save(1, Divided(whole, {"a": 0}, rank, 2)).wait().incarnation

    monkeypatch.setenv("PENSTOCK_INCARNATION", "0")
    for number, job in enumerate(("night", "day")):
        monkeypatch.setenv("PENSTOCK_JOB", job)
        assert gang(2, save) == [number, number]
