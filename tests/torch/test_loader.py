"""The PyTorch loader gives the feed's bits, and its state is exact however far it has run ahead."""

import itertools
import json
import pickle
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
import torch

import penstock as ps
from penstock import errors
from penstock.data import join
from penstock.torch import Batch, Loader, loader
from tests.torch.stream import Stream


def digests(batches: Iterable[Batch]) -> list[tuple[int, str]]:
    return [(batch.step, batch.digest) for batch in batches]


def test_tensors_are_the_bits_of_the_feed(stream: Stream) -> None:
    """Goal: D1 in torch. Method: compare every field of ten steps, across a change of weights and of batch size."""
    fields = ("tokens", "cu_seqlens", "segments", "positions", "loss_mask")
    with loader(stream.recipe(), registry=stream.registry, fields=fields) as batches:
        for batch, expected in zip(batches, stream.batches(10), strict=False):
            assert (batch.step, batch.digest) == (expected.step, expected.digest)
            assert batch.origin(3) == expected.origin(3)
            assert list(batch) == list(fields)
            assert batch["tokens"].dtype == torch.long
            assert batch["cu_seqlens"].dtype == torch.int32
            for field in fields:
                assert np.array_equal(batch[field].numpy(), expected[field])


def test_types_can_be_chosen(stream: Stream) -> None:
    types = {"tokens": None, "loss_mask": torch.bfloat16, "segments": torch.long}
    with loader(stream.recipe(), registry=stream.registry, fields=types) as batches:
        batch = next(iter(batches))
    assert [tensor.dtype for tensor in batch.values()] == [torch.uint16, torch.bfloat16, torch.long]
    batch["tokens"].fill_(0)
    assert stream.batches(1)[0]["tokens"].any()


@pytest.mark.parametrize(("prefetch", "threads"), [(0, 0), (0, 2), (1, 2), (5, 3)])
def test_a_state_taken_after_a_batch_resumes_with_the_next(
    stream: Stream, prefetch: int, threads: int
) -> None:
    """Goal: D3 despite reading ahead. Method: take a state after every batch, and begin a fresh loader at each."""
    expected = [(batch.step, batch.digest) for batch in stream.batches(12)]
    options = {"registry": stream.registry, "prefetch": prefetch, "threads": threads}
    states = []
    with loader(stream.recipe(), **options) as batches:
        states.append(batches.state_dict())
        for batch in itertools.islice(batches, 9):
            states.append(batches.state_dict())
            assert batches.state_dict(after=batch.step) == states[-1]
    for at, state in enumerate(states):
        with loader(stream.recipe(), **options) as resumed:
            resumed.load_state_dict(json.loads(json.dumps(state)))
            assert resumed.state_dict() == state
            assert digests(itertools.islice(resumed, 3)) == expected[at : at + 3]


def test_batches_that_wait_ahead_do_not_count(stream: Stream) -> None:
    """Method: go on until the loader really is ahead, then resume from there."""
    with loader(stream.recipe(), registry=stream.registry, prefetch=3, threads=2) as batches:
        last = next(batch for batch in batches if batches.waiting == 3)
        state = batches.state_dict()
        after = next(iter(batches))
        assert after.step == last.step + 1
        batches.load_state_dict(state)
        assert batches.waiting == 0
        again = next(iter(batches))
    assert (again.step, again.digest) == (after.step, after.digest)


def test_a_loop_goes_on_where_the_last_one_stopped(stream: Stream) -> None:
    with loader(stream.recipe(), registry=stream.registry) as batches:
        steps = [[batch.step for batch in itertools.islice(batches, count)] for count in (3, 1, 4)]
    assert steps == [[0, 1, 2], [3], [4, 5, 6, 7]]


def test_a_state_resumes_with_another_number_of_lanes(stream: Stream) -> None:
    """Goal: D2 through states. Method: stop one lane, go on with four, and join their digests."""
    whole = stream.batches(8)
    with loader(stream.recipe(), registry=stream.registry) as single:
        list(itertools.islice(single, 5))
        state = single.state_dict()
    lanes = [
        loader(stream.recipe(), lane=ps.Lane(k, of=4), registry=stream.registry, threads=1) for k in range(4)
    ]
    for lane in lanes:
        lane.load_state_dict(state)
    for step, parts in zip(range(5, 8), zip(*lanes, strict=False), strict=False):
        assert join([part.digest for part in parts]) == whole[step].digest
        together = torch.cat([part["tokens"] for part in parts])
        assert np.array_equal(together.numpy(), whole[step]["tokens"])
    for lane in lanes:
        lane.close()


def test_a_foreign_state_is_refused_and_changes_nothing(stream: Stream) -> None:
    with (
        loader(stream.recipe(), registry=stream.registry) as batches,
        loader(stream.recipe(seed=18), registry=stream.registry) as other,
    ):
        list(itertools.islice(batches, 2))
        before = batches.state_dict()
        tampered = {"cursor": before["cursor"].replace('"step":2', '"step":3')}
        assert tampered != before
        for state, reason in [
            (other.state_dict(), "recipes differ"),
            (tampered, "check does not match"),
            ({}, "holds no cursor"),
            ({"epoch": 3}, "holds no cursor, only epoch"),
            ([1], "holds no cursor, only list"),
            ({"cursor": "{"}, "cannot be read"),
        ]:
            with pytest.raises(errors.CursorForeign, match=reason):
                batches.load_state_dict(state)
        assert batches.state_dict() == before
        assert next(iter(batches)).step == 2


def test_a_finite_stream_has_a_length_and_can_be_looped_again(stream: Stream) -> None:
    with loader(stream.finite(), registry=stream.registry, prefetch=3) as batches:
        first = digests(batches)
        assert len(batches) == len(first) == len(list(batches)) > 10
        assert digests(batches) == first

        last = [batches.state_dict() for _ in batches][-1]
        rewound = batches.state_dict()
    with loader(stream.finite(), registry=stream.registry) as resumed:
        resumed.load_state_dict(last)
        assert list(resumed) == []
        assert digests(resumed) == first
        resumed.load_state_dict(rewound)
        assert digests(resumed) == first


def test_a_loop_that_counts_to_the_length_can_be_repeated(stream: Stream) -> None:
    """Lightning and Trainer take exactly `len` batches and never see the end; their next epoch is a whole one."""
    with loader(stream.finite(), registry=stream.registry) as batches:
        epochs = [digests(itertools.islice(batches, len(batches))) for _ in range(3)]
    assert len(epochs[0]) == len(batches)
    assert epochs[0] == epochs[1] == epochs[2]


def test_a_feed_with_skips_can_be_taken_over(stream: Stream) -> None:
    """Goal: skips reach the loop. Method: leave out steps in the middle and at the end; resume between; count."""
    skips = ps.Skips(steps=((3, 6), (20, 90)))
    whole = [(batch.step, batch.digest) for batch in stream.batches(20, stream.finite())]

    def opened() -> Loader:
        return loader(ps.open(stream.finite(), registry=stream.registry, skips=skips), prefetch=3)

    with opened() as batches:
        first = digests(itertools.islice(batches, 3))
        state = batches.state_dict()
        rest = digests(batches)
        assert first + rest == [*whole[:3], *whole[6:]]
        assert len(batches) == 17
    with opened() as resumed:
        resumed.load_state_dict(state)
        assert digests(resumed) == rest
        late = next(resumed.state_dict() for batch in resumed if batch.step > 6)
    with (
        loader(stream.finite(), registry=stream.registry) as plain,
        pytest.raises(errors.CursorForeign, match="left out"),
    ):
        plain.load_state_dict(late)
    with (
        ps.open(stream.finite(), registry=stream.registry) as feed,
        pytest.raises(errors.UsageError, match="has its lane"),
    ):
        loader(feed, lane=ps.Lane(0, of=2))


def test_an_endless_stream_has_no_length(stream: Stream) -> None:
    with loader(stream.recipe(), registry=stream.registry) as batches:
        with pytest.raises(TypeError, match="no end"):
            len(batches)
        assert batches


def test_a_closed_loader_says_so(stream: Stream) -> None:
    with loader(stream.recipe(), registry=stream.registry) as batches:
        kept = next(iter(batches))
        state = batches.state_dict()
    assert kept["tokens"].shape == (16, 32)
    assert batches.state_dict() == state
    with pytest.raises(errors.FeedClosed, match="was closed"):
        next(iter(batches))
    with pytest.raises(errors.FeedClosed, match="was closed"):
        batches.load_state_dict(state)
    batches.close()


def test_a_batch_survives_what_frameworks_do_to_it(stream: Stream) -> None:
    """Accelerate and Lightning move it with `to`; Trainer rebuilds it from a dict; queues pickle it."""
    with loader(stream.recipe(), registry=stream.registry) as batches:
        batch = next(iter(batches))
    assert batch.to("cpu", non_blocking=True).step == 0
    assert batch.to("meta")["tokens"].device.type == "meta"
    for rebuilt in (type(batch)({k: v + 0 for k, v in batch.items()}), pickle.loads(pickle.dumps(batch))):
        assert isinstance(rebuilt, Batch)
        assert torch.equal(rebuilt["tokens"], batch["tokens"])
        with pytest.raises(errors.UsageError, match="rebuilt"):
            rebuilt.digest  # noqa: B018
    assert "step 0" in repr(batch)


def test_what_makes_no_sense_is_refused(stream: Stream) -> None:
    for options, reason in [
        ({"prefetch": -1}, "prefetch is -1"),
        ({"fields": "tokens"}, "got the text 'tokens'"),
        ({"fields": ("tokens", "labels")}, "no field 'labels'"),
    ]:
        with pytest.raises(errors.UsageError, match=reason):
            loader(stream.recipe(), registry=stream.registry, **options)


class Stumbling:
    """Turns a batch into its step, and stumbles once it reaches one of them, as often as it is told to."""

    def __init__(self, step: int, problem: BaseException, times: int) -> None:
        self.step, self.problem, self.times = step, problem, times

    def __call__(self, batch: ps.Batch) -> int:
        if batch.step == self.step and self.times:
            self.times -= 1
            raise self.problem
        return batch.step


@pytest.mark.parametrize("problem", [errors.FeedClosed(reason="planted"), KeyboardInterrupt(), MemoryError()])
def test_a_problem_ahead_costs_no_batch(stream: Stream, problem: BaseException) -> None:
    """Goal: neither lost nor repeated. Method: stumble three times at step 5 with batches ahead, and collect across it."""
    from penstock.data.feed.prefetch import Prefetch

    feed = ps.open(stream.recipe(), registry=stream.registry, threads=2)
    with Prefetch(feed, Stumbling(5, problem, times=3), prefetch=4) as steps:
        seen, stumbles = [], 0
        while len(seen) < 9:
            try:
                for step in steps:
                    seen.append(step)
                    assert steps.cursor().step == step + 1
                    if len(seen) == 9:
                        break
            except type(problem):
                stumbles += 1
                if isinstance(problem, errors.PenstockError):
                    assert seen == [0, 1, 2, 3, 4]
    assert seen == list(range(9))
    assert stumbles == 3


def test_the_state_is_what_checkpoint_libraries_take(stream: Stream, tmp_path: Path) -> None:
    from torch.distributed.checkpoint.stateful import Stateful

    with loader(stream.recipe(), registry=stream.registry) as batches:
        assert isinstance(batches, Stateful)
        torch.save(batches.state_dict(), tmp_path / "state.pt")
        batches.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
