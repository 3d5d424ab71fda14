"""The JAX loader gives the same bits as PyTorch and numpy, and either resumes the other."""

import itertools
import pickle

import jax
import numpy as np
import pytest

import penstock as ps
import penstock.torch
from penstock import Lane, errors
from penstock.jax import Batch, loader
from penstock.jax.lane import lane_among
from tests.torch.stream import Stream

FIELDS = ("tokens", "segments", "positions", "loss_mask")


def test_jax_torch_and_numpy_have_identical_bits(stream: Stream) -> None:
    """Goal: one stream for every framework. Method: ten steps side by side, every field, bit for bit."""
    with (
        loader(stream.recipe(), registry=stream.registry, fields=FIELDS) as ours,
        penstock.torch.loader(stream.recipe(), registry=stream.registry, fields=FIELDS) as theirs,
    ):
        for a, b, c in zip(ours, theirs, stream.batches(10), strict=False):
            assert a.step == b.step == c.step
            assert a.digest == b.digest == c.digest
            assert a.origin(2) == b.origin(2) == c.origin(2)
            for field in FIELDS:
                assert np.array_equal(np.asarray(a[field]), c[field])
                assert np.array_equal(b[field].numpy(), c[field])


@pytest.mark.parametrize("prefetch", [0, 3])
def test_a_state_of_one_framework_resumes_the_other(stream: Stream, prefetch: int) -> None:
    expected = [batch.digest for batch in stream.batches(9)]
    with (
        loader(stream.recipe(), registry=stream.registry, prefetch=prefetch) as ours,
        penstock.torch.loader(stream.recipe(), registry=stream.registry, prefetch=prefetch) as theirs,
    ):
        seen = [batch.digest for batch in itertools.islice(ours, 3)]
        theirs.load_state_dict(ours.state_dict())
        seen += [batch.digest for batch in itertools.islice(theirs, 3)]
        ours.load_state_dict(theirs.state_dict())
        seen += [batch.digest for batch in itertools.islice(ours, 3)]
    assert seen == expected


def test_loaders_of_both_frameworks_share_what_one_of_them_makes(stream: Stream) -> None:
    """Goal: ``share`` reaches the feed through the loaders and changes no bit. Method: both read one lane, in turns of different
    sizes; each is then moved back by a state of the other, still sharing."""
    expected = [batch.digest for batch in stream.batches(20)]
    shared = {"registry": stream.registry, "share": True, "threads": 1}
    with (
        loader(stream.recipe(), **shared) as ours,
        penstock.torch.loader(stream.recipe(), **shared) as theirs,
    ):
        seen: dict[str, list[str]] = {"ours": [], "theirs": []}
        for count in (1, 5, 2, 8, 4):
            seen["ours"] += [batch.digest for batch in itertools.islice(ours, count)]
            seen["theirs"] += [batch.digest for batch in itertools.islice(theirs, count)]
        assert seen == {"ours": expected, "theirs": expected}
        sharings = [feed.statistics().sharing for feed in (ours, theirs)]
        assert sorted(sharing.standing for sharing in sharings if sharing is not None) == [
            "follower",
            "reader",
        ]
        assert max(sharing.members for sharing in sharings if sharing is not None) == 2
        ours.load_state_dict(theirs.state_dict(after=4))
        assert [batch.digest for batch in itertools.islice(ours, 3)] == expected[5:8]
        again = ours.statistics().sharing
        assert again is not None
        assert again.standing != "alone"


def test_a_batch_is_a_tree_like_a_dict(stream: Stream) -> None:
    """Goal: a step number in the tree would compile anew every step. Method: count the compilations of five steps."""
    compiled = []

    def total(batch: Batch) -> jax.Array:
        compiled.append(1)
        return batch["tokens"].sum() + batch["segments"].sum()

    function = jax.jit(total)
    with loader(stream.recipe(), registry=stream.registry) as batches:
        for batch in itertools.islice(batches, 5):
            plain = dict(batch)
            assert jax.tree.leaves(batch) == jax.tree.leaves(plain)
            assert int(function(batch)) == int(plain["tokens"].sum() + plain["segments"].sum())
    assert len(compiled) == 1
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(batch)]
    assert paths == ["['segments']", "['tokens']"]
    for rebuilt in (jax.tree.map(lambda array: array + 1, batch), pickle.loads(pickle.dumps(batch))):
        assert isinstance(rebuilt, Batch)
        with pytest.raises(errors.UsageError, match="rebuilt"):
            rebuilt.step  # noqa: B018
    assert "step 4" in repr(batch)


def test_a_finite_stream_has_a_length(stream: Stream) -> None:
    with loader(stream.finite(), registry=stream.registry, fields={"tokens": "uint16"}) as batches:
        delivered = list(batches)
        assert len(batches) == len(delivered)
        assert delivered[0]["tokens"].dtype == "uint16"


def test_a_feed_can_be_taken_over(stream: Stream) -> None:
    skips = ps.Skips(steps=((1, 4),))
    with loader(ps.open(stream.recipe(), registry=stream.registry, skips=skips)) as batches:
        assert [batch.step for batch in itertools.islice(batches, 3)] == [0, 4, 5]
    with (
        ps.open(stream.recipe(), lane=Lane(1, of=2), registry=stream.registry) as other,
        pytest.raises(errors.UsageError, match="reads lane 1/2, but this process is lane 0/1"),
    ):
        loader(other)


def test_what_makes_no_sense_is_refused(stream: Stream) -> None:
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("data",))
    for options, reason in [
        ({"mesh": mesh, "axis": "batch"}, "no axis batch"),
        ({"fields": ("tokens", "cu_seqlens")}, "no field 'cu_seqlens'"),
        ({"fields": "tokens"}, "got the text 'tokens'"),
        ({"prefetch": 1000}, "prefetch is 1000"),
    ]:
        with pytest.raises(errors.UsageError, match=reason):
            loader(stream.recipe(), registry=stream.registry, **options)


@pytest.mark.parametrize(
    ("held", "lanes"),
    [
        ([{0}, {1}], [(0, 2), (1, 2)]),
        ([{0, 1}, {2, 3}], [(0, 2), (1, 2)]),
        ([{0, 1}, {0, 1}, {2, 3}, {2, 3}], [(0, 2), (0, 2), (1, 2), (1, 2)]),
        ([{2, 3}, {0, 1}], [(1, 2), (0, 2)]),
        ([{0}, {0}], [(0, 1), (0, 1)]),
    ],
)
def test_a_lane_follows_from_what_every_process_holds(
    held: list[set[int]], lanes: list[tuple[int, int]]
) -> None:
    computed = [lane_among(dict(enumerate(held)), process) for process in range(len(held))]
    assert computed == [Lane(number, of=of) for number, of in lanes]


@pytest.mark.parametrize("held", [[{0, 2}, {1, 3}], [{0}, {1, 2}], [{0, 1}, {1, 2}]])
def test_what_is_no_lane_is_refused(held: list[set[int]]) -> None:
    with pytest.raises(errors.UsageError, match="not next to each other"):
        lane_among(dict(enumerate(held)), 0)
