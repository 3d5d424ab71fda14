"""What ranks hold is known and compared: a difference is kept, or it is an error, and never saved as if it were none."""

import logging
import uuid
from ast import literal_eval
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import LayoutChanged, PenstockError, RanksDiffer, SaveFailed, TreeMismatch, UsageError
from penstock.state.contract import Held
from penstock.state.inspect.verify import Verifier
from penstock.state.load.host_mover import held_of
from penstock.state.ranks import division
from penstock.state.tree import PlainTree
from tests.state.layouts import Divided, gang

#: Enough elements that a tensor counts as large.
LARGE = 40_000


def tree_of(rank: int = 0) -> dict[str, Any]:
    """The same on every rank."""
    draw = np.random.default_rng(7)
    return {
        "small": draw.random(10, np.float32),
        "matrix": draw.random((30, 50)),
        "large": draw.random((8, LARGE // 8)),
        "value": 3,
        "text": {"inside": "a"},
    }


class Drawing(PlainTree):
    """A tree with a random generator, which every rank keeps as an entry of its own."""

    def __init__(self, tree: dict[str, Any], rank: int, ranks: int) -> None:
        super().__init__({name: leaf for name, leaf in tree.items() if name != "draw"}, rank, ranks)
        self.tree = tree

    def loaded(self) -> None:
        super().loaded()
        assert isinstance(self.root, dict)
        self.tree.update(self.root)

    def entries(self) -> dict[str, Any]:
        return {"draw": repr(self.tree["draw"].bit_generator.state)}

    def load_entries(self, entries: dict[str, Any]) -> None:
        self.tree["draw"].bit_generator.state = literal_eval(entries["draw"])


def plant(tree: dict[str, Any], kind: str, name: str, seed: int) -> None:
    """Make one rank's tree another one."""
    draw = np.random.default_rng(seed)
    array = tree[name]
    match kind:
        case "missing":
            del tree[name]
        case "added":
            tree[f"{name}-more"] = draw.random(5)
        case "shape":
            tree[name] = draw.random((*array.shape[:-1], array.shape[-1] + 1)).astype(array.dtype)
        case "dtype":
            tree[name] = array.astype(np.float16)
        case "contents":
            tree[name] = draw.random(array.shape).astype(array.dtype)
        case "element":
            at = np.unravel_index(int(draw.integers(array.size)), array.shape)
            array[at] = np.nextafter(array[at], 2, dtype=array.dtype)
        case "value":
            tree["value"] = (True, 3.0, "3", 4)[seed % 4]
        case "no value":
            del tree["value"]
        case "generator":
            tree["draw"].random(1 + seed)


def emptied(tree: dict[str, Any]) -> dict[str, Any]:
    """The same tree with other contents."""
    arrays = {name: np.zeros_like(leaf) for name, leaf in tree.items() if isinstance(leaf, np.ndarray)}
    fresh = {"value": None, "text": {"inside": ""}, "draw": np.random.default_rng(6)}
    return {**tree, **arrays, **{name: leaf for name, leaf in fresh.items() if name in tree}}


def same(left: dict[str, Any], right: dict[str, Any]) -> bool:
    """Whether every leaf has the same type and bits."""
    return left.keys() == right.keys() and all(
        (leaf.dtype, leaf.tobytes()) == (right[name].dtype, right[name].tobytes())
        if isinstance(leaf, np.ndarray)
        else repr(_told(leaf)) == repr(_told(right[name]))
        for name, leaf in left.items()
    )


def _told(leaf: Any) -> Any:
    return leaf.bit_generator.state if isinstance(leaf, np.random.Generator) else leaf


KINDS = ("generator", "missing", "added", "shape", "dtype", "contents", "element", "value", "no value")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    kind=st.sampled_from(KINDS),
    name=st.sampled_from(["small", "matrix", "large"]),
    ranks=st.integers(2, 4),
    odd=st.integers(0, 3),
    first=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_a_planted_difference_is_an_error_on_every_rank_or_comes_back_exactly(
    kind: str, name: str, ranks: int, odd: int, first: bool, seed: int
) -> None:
    """Goal: nothing that ranks hold is assumed. Method: one rank of two to four gets another tree, before the first save or after it;
    either no rank's save works, or every rank gets its own tree back, bit for bit; another number of ranks gets an error or what all had."""
    place = f"memory://{uuid.uuid4().hex}/ck"
    trees = [{**tree_of(), "draw": np.random.default_rng(5)} for _ in range(ranks)]
    # A single element of a large tensor is found only when all of them are looked at.
    how = "check" if kind == "element" else "sample"

    def save(rank: int) -> str:
        with ps.Checkpoints(place, token="a", rank=rank, ranks=ranks, replicas=how, deadline_s=60) as ck:
            if not first:
                ck.save(1, Drawing(trees[rank], rank, ranks)).wait()
            if rank == odd % ranks:
                plant(trees[rank], kind, name, seed)
            try:
                return f"saved {ck.save(2, Drawing(trees[rank], rank, ranks)).wait().step}"
            except SaveFailed as problem:
                return f"refused: {problem}"

    ended = set(gang(ranks, save))
    if ended != {"saved 2"}:
        assert all(ending.startswith("refused") for ending in ended), ended
        assert [checkpoint.step for checkpoint in ps.Checkpoints(place, read_only=True).list()] == [1] * (
            not first
        )
        return
    assert kind not in ("shape", "dtype")
    assert kind not in ("contents", "element") or name != "large"

    def load(rank: int, of: int, token: str) -> dict[str, Any] | None:
        tree = emptied(trees[rank])
        with ps.Checkpoints(place, token=token, rank=rank, ranks=of) as ck:
            try:
                ck.load(ck.at(2), Drawing(tree, rank, of))
            except (LayoutChanged, TreeMismatch):
                return None
        return tree

    assert all(
        same(result or {}, trees[rank])
        for rank, result in enumerate(gang(ranks, lambda r: load(r, ranks, "b")))
    )
    for rank, loaded in enumerate(gang(ranks - 1, lambda r: load(r, ranks - 1, "c"))):
        assert loaded is None or same(loaded, trees[rank])


def test_small_tensors_and_values_that_differ_are_kept_per_rank(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Goal: exact on the same layout, an error with names on another one. Method: a counter and a value of each rank's own among equal
    ones; three saves, of which only the first finds out; loaded by two ranks, by one, and by one that takes the first rank's."""
    caplog.set_level(logging.WARNING, logger="penstock.state")
    trees = [{**tree_of(), "count": np.array([rank, 5]), "loss": rank / 3} for rank in range(2)]

    def save(rank: int) -> list[int]:
        written = []
        with ps.Checkpoints(tmp_path, token="a", rank=rank, ranks=2) as ck:
            for step in (1, 2, 3):
                trees[rank]["count"][1] = 5 + (step == 3)
                pending = ck.save(step, trees[rank])
                pending.wait()
                written.append(pending.bytes_written)
        return written

    written = gang(2, save)
    # The second save finds everything as it was, on both ranks; the third writes each rank's counter alone.
    assert [sizes[1:] for sizes in written] == [[0, 16], [0, 16]]
    assert [record.message for record in caplog.records if "each keeps its own" in record.message] == [
        "ranks hold different contents, so each keeps its own, and only as many ranks can resume from it: count, loss"
    ]
    checkpoint = ps.Checkpoints(tmp_path).latest()
    assert checkpoint is not None
    assert checkpoint.manifest.kept_apart == ["count", "loss"]
    assert checkpoint.manifest.form == 2
    assert Verifier().verify(checkpoint).damages == []

    def load(rank: int) -> dict[str, Any]:
        tree = {**emptied(tree_of()), "count": np.zeros(2, np.int64), "loss": None}
        with ps.Checkpoints(tmp_path, token="b", rank=rank, ranks=2) as ck:
            ck.resume(tree)
        return tree

    assert all(same(tree, trees[rank]) for rank, tree in enumerate(gang(2, load)))
    alone = {**emptied(tree_of()), "count": np.zeros(2, np.int64), "loss": None}
    with pytest.raises(LayoutChanged, match="count, loss") as caught:
        ps.Checkpoints(tmp_path).load(checkpoint, alone)
    assert caught.value.names == ["count", "loss"]
    assert "replicas='first'" in str(caught.value.hint)
    assert same(ps.Checkpoints(tmp_path, replicas="first").load(checkpoint, alone), trees[0])
    # What ranks have in common is nobody's own.
    ps.Checkpoints(tmp_path).load(checkpoint, {"small": np.zeros(10, np.float32)}, only="small")


def test_damage_to_what_a_rank_kept_is_found(tmp_path: Path) -> None:
    def save(rank: int) -> None:
        with ps.Checkpoints(tmp_path, token="a", rank=rank, ranks=2) as ck:
            ck.save(1, {"count": np.full(100, rank)}).wait()

    gang(2, save)
    checkpoint = ps.Checkpoints(tmp_path).at(1)
    (piece,) = checkpoint.manifest.own[1].tensors["count"].pieces
    file = tmp_path / checkpoint.manifest.files[piece.file].name
    with file.open("r+b") as opened:
        opened.seek(piece.start + 3)
        opened.write(b"\xff")
    (damage,) = Verifier().verify(checkpoint).damages
    assert (damage.tensor, damage.offset) == ("count (rank 1)", piece.start)


def test_stages_that_only_some_ranks_have_are_saved_and_each_rank_loads_its_own(tmp_path: Path) -> None:
    """Goal: pipelines and experts without DTensor. Method: three ranks with a layer each, and one that two of them share; then the same
    ranks, one process that has all of it, and two ranks that have it divided otherwise."""
    layers = {f"layer{at}": np.random.default_rng(at).random((40, 200)) for at in range(3)}
    layers["shared"] = np.arange(5.0)
    having = {0: ["layer0", "shared"], 1: ["layer1", "shared"], 2: ["layer2"]}

    def of(names: list[str], fill: bool = True) -> dict[str, Any]:
        return {"model": {name: layers[name] * fill for name in names}, "lr": 0.1 * fill}

    def save(rank: int) -> None:
        with ps.Checkpoints(tmp_path, token="a", rank=rank, ranks=3) as ck:
            ck.save(1, of(having[rank])).wait()

    gang(3, save)
    checkpoint = ps.Checkpoints(tmp_path).at(1)
    assert {name: checkpoint.manifest.tensors[f"model/{name}"].bytes for name in layers} == {
        name: array.nbytes for name, array in layers.items()
    }

    def load(rank: int, ranks: int, names: list[str]) -> bool:
        tree = of(names, fill=False)
        with ps.Checkpoints(tmp_path, token=f"b{ranks}", rank=rank, ranks=ranks) as ck:
            ck.resume(tree)
        return all(np.array_equal(tree["model"][name], layers[name]) for name in names) and tree["lr"] == 0.1

    assert gang(3, lambda rank: load(rank, 3, having[rank])) == [True] * 3
    assert load(0, 1, list(layers))
    halves = {0: ["layer0", "layer1", "shared"], 1: ["layer2"]}
    assert gang(2, lambda rank: load(rank, 2, halves[rank])) == [True] * 2
    with pytest.raises(TreeMismatch, match="unexpected in the checkpoint: model/layer2"):
        ps.Checkpoints(tmp_path).load(checkpoint, of(["layer0", "layer1", "shared"]))


def test_a_large_tensor_that_differs_is_refused_with_its_name_and_ranks(tmp_path: Path) -> None:
    trees = [{"w": np.ones(LARGE), "v": np.ones(LARGE)} for _ in range(3)]
    trees[2]["v"] *= 2

    def save(rank: int, how: Any) -> str:
        with ps.Checkpoints(tmp_path / how, token="a", rank=rank, ranks=3, replicas=how) as ck:
            try:
                return str(ck.save(1, trees[rank]).wait().step)
            except RanksDiffer as problem:
                return f"{problem.name} {problem.ranks} {problem}"
            except SaveFailed as problem:
                return f"v [2] {problem}"

    for how in ("sample", "check"):
        for text in gang(3, partial(save, how=how)):
            assert text.startswith("v [2]")
            assert "'v' is not the same on all ranks: its contents on rank 2" in text
        assert ps.Checkpoints(tmp_path / how).latest() is None
    assert gang(3, lambda rank: save(rank, "first")) == ["1"] * 3
    loaded = {"w": np.zeros(LARGE), "v": np.zeros(LARGE)}
    ps.Checkpoints(tmp_path / "first").resume(loaded)
    assert same(loaded, trees[0])


def test_one_name_with_two_shapes_is_refused_with_both(tmp_path: Path) -> None:
    def save(rank: int) -> str:
        with ps.Checkpoints(tmp_path, token="a", rank=rank, ranks=2) as ck:
            with pytest.raises(RanksDiffer) as caught:
                ck.save(1, {"b": np.zeros(8 + rank)})
            return str(caught.value)

    for text in gang(2, save):
        assert "'b'" in text
        assert "F64 [8] on rank 0" in text
        assert "F64 [9] on rank 1" in text


def test_parts_of_different_divisions_are_never_committed_together(tmp_path: Path) -> None:
    """Goal: a rank that lost a tensor unnoticed does not make a hole. Method: ranks that meet in the store alone; one of them drops a tensor
    that it was to write; the save fails on both ranks, and the next one, before which they meet again, works."""
    names = [f"t{at}" for at in range(8)]

    def save(rank: int) -> list[str]:
        tree = {name: np.arange(4.0) for name in names}
        ended = []
        with ps.Checkpoints(tmp_path, token="a", rank=rank, ranks=2, deadline_s=60) as ck:
            for step in (1, 2, 3):
                if step == 2 and rank == 1:
                    tree = {"t0": tree["t0"]}
                try:
                    ended.append(str(ck.save(step, tree).wait().step))
                except SaveFailed as problem:
                    ended.append(str(problem))
        return ended

    for first, second, third in gang(2, save):
        assert (first, third) == ("1", "3")
        assert "rank 1 holds other tensors than at the last save" in second
    checkpoint = ps.Checkpoints(tmp_path).at(3)
    assert sorted(checkpoint.manifest.tensors) == names
    assert [(entry.ranks, entry.names) for entry in checkpoint.manifest.partial] == [((0,), names[1:])]


class Lone(PlainTree):
    """A tree whose tensors belong to each rank alone."""

    def held(self) -> list[Held]:
        assert isinstance(self.root, dict)
        arrays = {name: leaf for name, leaf in self.root.items() if isinstance(leaf, np.ndarray)}
        return [
            Held(**{**_fields(held_of(name, array, self.rank, self.ranks)), "per_rank": True})
            for name, array in arrays.items()
        ]


def _fields(held: Held) -> dict[str, Any]:
    return {name: getattr(held, name) for name in Held.__slots__}


def test_tensors_that_are_declared_per_rank_are_never_compared_and_never_resharded(tmp_path: Path) -> None:
    """Goal: what is different by nature, such as pending gradients. Method: large tensors whose shapes differ as well; same ranks get
    their own back, another number is refused, the tensors are not among those that all ranks share."""

    def save(rank: int) -> None:
        with ps.Checkpoints(tmp_path, token="a", rank=rank, ranks=2) as ck:
            ck.save(1, Lone({"grad": np.full(LARGE + rank, float(rank))}, rank, 2)).wait()

    def load(rank: int) -> bool:
        root = {"grad": np.zeros(LARGE + rank)}
        with ps.Checkpoints(tmp_path, token="b", rank=rank, ranks=2) as ck:
            ck.resume(Lone(root, rank, 2))
        return bool((root["grad"] == rank).all())

    gang(2, save)
    assert gang(2, load) == [True, True]
    checkpoint = ps.Checkpoints(tmp_path).at(1)
    assert checkpoint.manifest.tensors == {}
    with pytest.raises(LayoutChanged, match="grad"):
        ps.Checkpoints(tmp_path).load(checkpoint, {})
    ps.Checkpoints(tmp_path, replicas="first").load(checkpoint, {})


def test_contents_of_one_layout_are_refused_by_another_of_as_many_ranks(tmp_path: Path) -> None:
    whole = {"w": np.arange(64.0).reshape(8, 8), "count": np.zeros(1)}

    def tree(rank: int, along: int) -> Divided:
        copies = {name: array.copy() for name, array in whole.items()}
        return Divided(copies, {"w": along, "count": None}, rank, 2)

    def save(rank: int) -> None:
        mine = tree(rank, 0)
        mine.arrays()["count"][0] = rank
        with ps.Checkpoints(tmp_path, token="a", rank=rank, ranks=2) as ck:
            ck.save(1, mine).wait()

    def load(rank: int, along: int) -> float:
        mine = tree(rank, along)
        ps.Checkpoints(tmp_path, rank=rank, ranks=2).load(checkpoint, mine)
        return float(mine.arrays()["count"][0])

    gang(2, save)
    checkpoint = ps.Checkpoints(tmp_path).at(1)
    assert [load(rank, 0) for rank in range(2)] == [0.0, 1.0]
    with pytest.raises(LayoutChanged, match="the layout is another one now: count"):
        load(1, 1)


def test_the_limits_of_what_is_captured_by_all_hold(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Goal: bounded memory. Method: with room for two of three small tensors, a difference in the third is an error, not kept."""
    monkeypatch.setattr(division, "SMALL_BYTES_TOTAL", 160)

    def save(rank: int, odd: str) -> str:
        tree = {name: np.full(10, float(rank and name == odd)) for name in ("a", "b", "c")}
        with ps.Checkpoints(tmp_path / odd, token="a", rank=rank, ranks=2) as ck:
            try:
                return ",".join(ck.save(1, tree).wait().manifest.kept_apart)
            except SaveFailed as problem:
                return str(problem)

    assert gang(2, lambda rank: save(rank, "b")) == ["b", "b"]
    assert all(
        "'c' is not the same on all ranks" in message for message in gang(2, lambda rank: save(rank, "c"))
    )


@pytest.mark.parametrize("moment", ["tree", "metrics", "late entries", "late metrics"])
def test_a_rank_that_cannot_take_part_in_a_save_ends_it_for_all_at_once(tmp_path: Path, moment: str) -> None:
    """Goal: no rank waits for one that has an error. Method: rank 1 fails in its tree, in its metrics, or when the state is captured already;
    rank 0 gets the reason instead of a timeout, and the next save of the same step works, with the memory that the failed one gave back."""

    def fail() -> dict[str, Any]:
        raise KeyError("late")

    def save(rank: int) -> list[str]:
        said = []
        with ps.Checkpoints(tmp_path, token="a", rank=rank, ranks=2, deadline_s=20) as ck:
            for fails in (True, False):
                tree: dict[str, Any] = {"b": np.zeros(8)}
                options: dict[str, Any] = {}
                if fails and rank == 1:
                    match moment:
                        case "tree":
                            tree["bad"] = object()
                        case "metrics":
                            options = {"metrics": {"loss": "low"}}
                        case "late entries":
                            options = {"entries": fail}
                        case "late metrics":
                            options = {"metrics": fail}
                try:
                    said.append(str(ck.save(3, tree, **options).wait().step))
                except (KeyError, PenstockError) as problem:
                    said.append(str(problem))
        return said

    (reason, first), (own, second) = gang(2, save)
    assert (first, second) == ("3", "3")
    assert reason.startswith("the checkpoint of step 3 was not saved: rank 1: ")
    assert own.strip("'") in reason


def test_ranks_agree_on_how_replicas_are_treated(tmp_path: Path) -> None:
    def save(rank: int) -> str:
        how: Any = ("sample", "check")[rank]
        with ps.Checkpoints(tmp_path, token="a", rank=rank, ranks=2, replicas=how) as ck:
            with pytest.raises(UsageError) as caught:
                ck.save(1, {"b": np.zeros(8)})
            return str(caught.value)

    assert gang(2, save) == ["rank 0 saves with replicas='sample', rank 1 with replicas='check'"] * 2
    with pytest.raises(UsageError, match="replicas must be"):
        ps.Checkpoints(tmp_path, replicas="all")
