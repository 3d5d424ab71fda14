"""One reader per host: every batch is made once and is the same for everybody, whoever is killed, stopped or leaves."""

import multiprocessing as mp
import os
import random
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.data import Batch
from penstock.data.feed.share import Sharing, key_of
from penstock.data.plan.plan import prepare
from penstock.errors import FeedClosed
from tests.data.corpus import Corpus
from tests.data.gallery import Gallery
from tests.data.sharers import Sharer, recipe_of, told_of
from tests.data.test_trust import in_child
from tests.process.jobs import wait_until

LANE = ps.Lane(0, of=2)
#: Batches that a reader keeps for others, at most.
KEPT_MAX = 128


@pytest.fixture(scope="module")
def galleries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Gallery.make(tmp_path_factory.mktemp("gallery")).folder


@pytest.fixture
def folders(corpus: Corpus, galleries: Path) -> dict[str, Path]:
    return {"tokens": corpus.folder, "other": corpus.folder, "records": galleries}


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """Whatever a test leaves would meet the next one's lanes. Tests of other files that share a lane at this moment end soon."""
    yield
    for left in mp.active_children():
        left.kill()
        left.join()
    unix = Path("/proc/net/unix")
    wait_until(lambda: "penstock-lane" not in unix.read_text(), "nobody listens any more", timeout_s=60)
    assert not [name for name in os.listdir("/dev/shm") if "penstock" in name]


def expected(folder: Path, kind: str, steps: int, lane: ps.Lane = LANE) -> list[Any]:
    """What a feed gives that is not shared."""
    recipe, registry = recipe_of(folder, kind)
    with ps.open(recipe, registry=registry, lane=lane, threads=0) as feed:
        return [told_of(next(feed)) for _ in range(steps)]


@pytest.mark.parametrize(
    ("kind", "count", "threads"), [("tokens", 2, 0), ("tokens", 3, 2), ("tokens", 5, 1), ("records", 3, 1)]
)
def test_batches_are_those_of_a_feed_alone_and_made_once(
    folders: dict[str, Path], kind: str, count: int, threads: int
) -> None:
    """Goal: sharing changes no bit. Method: one, two and four followers of different speeds read the same forty steps."""
    steps = 40
    wanted = expected(folders[kind], kind, steps)
    all_of_them = [Sharer(folders[kind], kind, threads=threads) for _ in range(count)]
    read: list[list[Any]] = [[] for _ in range(count)]
    while any(len(batches) < steps for batches in read):
        for number, sharer in enumerate(all_of_them):
            portion = min(3 * number + 1, steps - len(read[number]))
            read[number] += sharer.read(portion) if portion else []
    assert all(batches == wanted for batches in read)
    # All of them go on while one is asked: a bound is what was told before or after, whichever cannot have passed it.
    before, after = ([sharer.told() for sharer in all_of_them] for _ in range(2))
    assert sorted(sharing.standing for sharing in after) == ["follower"] * (count - 1) + ["reader"]
    assert max(sharing.members for sharing in after) == count
    assert furthest(before) <= sum(sharing.made for sharing in after)
    # Somebody who takes very long is overtaken, which a machine under load may cause now and then.
    assert sum(sharing.made for sharing in before) <= furthest(after) * 1.2
    assert sum(sharing.alone for sharing in after) == 0
    for sharer in all_of_them:
        sharer.close()


def test_kills_of_any_of_them_cost_no_batch_and_leave_nothing(folders: dict[str, Path]) -> None:
    """Goal: 100 kills. Method: four read in portions; up to all of them are killed, in the middle of reading or after it, the reader
    among them every other time, and replaced; every batch that anybody got equals that of a feed alone."""
    draws, portion, kills, were_readers = random.Random(5), 6, 0, 0
    folder, number = folders["tokens"], 0
    wanted = expected(folder, "tokens", 80 * portion)
    sharers = [Sharer(folder, threads=threads) for threads in (0, 1, 0, 2)]
    while kills < 100:
        part = wanted[number * portion : (number + 1) * portion]
        for sharer in sharers:
            sharer.begin(portion)
        dying = draws.sample(range(4), draws.randint(1, 4))
        if number % 2:
            for place in dying:
                sharers[place].kill()
        for sharer in (member for place, member in enumerate(sharers) if place not in dying):
            assert sharer.end() == part
        if not number % 2:
            assert all(sharers[place].end() == part for place in dying)
            standings = [sharer.told().standing for sharer in sharers]
            if "reader" in standings:
                dying = sorted({*dying, standings.index("reader")})
                were_readers += 1
            for place in dying:
                sharers[place].kill()
        kills, number = kills + len(dying), number + 1
        for place in dying:
            sharers[place] = Sharer(folder, step=number * portion, threads=place % 3)
    assert were_readers > 10
    assert all(
        sharer.read(portion) == wanted[number * portion : (number + 1) * portion] for sharer in sharers
    )
    # A reader keeps a descriptor per batch that waits, and everybody a few connections.
    assert all(sharer.descriptors() < KEPT_MAX + 64 for sharer in sharers)
    for sharer in sharers:
        sharer.close()


def furthest(sharings: list[Sharing]) -> int:
    """How many steps whoever is ahead of the others has had."""
    return max(sharing.made + sharing.taken for sharing in sharings)


def readers_first(sharers: list[Sharer]) -> list[Sharer]:
    """The reader, then its followers."""
    for sharer in sharers:
        sharer.open()
    return sorted(sharers, key=lambda member: member.told().standing != "reader")


def test_when_the_reader_is_killed_a_follower_takes_its_place(folders: dict[str, Path]) -> None:
    wanted, folder = expected(folders["tokens"], "tokens", 60), folders["tokens"]
    sharers = [Sharer(folder) for _ in range(4)]
    for number in range(3):
        for sharer in sharers:
            assert sharer.read(10) == wanted[number * 10 : (number + 1) * 10]
        reader, *followers = readers_first(sharers)
        reader.kill()
        # All of them notice at the same time, and one is the next.
        for sharer in followers:
            sharer.begin(10)
        for sharer in followers:
            assert sharer.end() == wanted[(number + 1) * 10 : (number + 2) * 10]
        sharings = [sharer.told() for sharer in followers]
        assert [sharing.standing for sharing in sharings].count("reader") == 1
        assert sum(sharing.alone for sharing in sharings) == 0
        for sharer in followers:
            sharer.close()
        sharers = [Sharer(folder, step=(number + 1) * 10) for _ in range(4)]
    for sharer in sharers:
        sharer.close()


@pytest.mark.parametrize("kind", ["tokens", "records"])
def test_a_reader_that_is_stopped_is_left_behind_and_comes_back_as_a_follower(
    folders: dict[str, Path], kind: str
) -> None:
    wanted = expected(folders[kind], kind, 40)
    reader, *followers = readers_first([Sharer(folders[kind], kind) for _ in range(3)])
    assert [sharer.read(10) for sharer in (reader, *followers)] == [wanted[:10]] * 3
    reader.signal(signal.SIGSTOP)
    for sharer in followers:
        sharer.begin(20)
    assert [sharer.end() for sharer in followers] == [wanted[10:30]] * 2
    sharings = [sharer.told() for sharer in followers]
    assert sorted(sharing.standing for sharing in sharings) == ["follower", "reader"]
    assert [sharing.moves for sharing in sharings] == [1, 1]
    reader.signal(signal.SIGCONT)
    assert reader.read(20) == wanted[10:30]
    assert [sharer.read(10) for sharer in (reader, *followers)] == [wanted[30:]] * 3
    for sharer in (reader, *followers):
        sharer.close()


def test_a_follower_that_is_stopped_holds_nobody_back(folders: dict[str, Path]) -> None:
    wanted = expected(folders["tokens"], "tokens", 100)
    reader, stopped, other = readers_first([Sharer(folders["tokens"], threads=1) for _ in range(3)])
    stopped.signal(signal.SIGSTOP)
    assert [sharer.read(100) for sharer in (reader, other)] == [wanted] * 2
    stopped.signal(signal.SIGCONT)
    assert stopped.read(100) == wanted
    for sharer in (reader, stopped, other):
        sharer.close()


def test_a_reader_that_closes_leaves_its_place_to_a_follower(folders: dict[str, Path]) -> None:
    wanted = expected(folders["tokens"], "tokens", 40)
    sharers = [Sharer(folders["tokens"]) for _ in range(3)]
    for number in range(3):
        for sharer in sharers:
            assert sharer.read(10) == wanted[number * 10 : (number + 1) * 10]
        reader, *sharers = readers_first(sharers)
        reader.close()
    assert sharers == []


def test_other_recipes_and_other_lanes_do_not_meet(folders: dict[str, Path]) -> None:
    folder = folders["tokens"]
    sharers = [Sharer(folder), Sharer(folder, "other"), Sharer(folder, lane=1)]
    assert sharers[0].read(5) == expected(folder, "tokens", 5)
    assert sharers[1].read(5) == expected(folder, "other", 5)
    assert sharers[2].read(5) == expected(folder, "tokens", 5, ps.Lane(1, of=2))
    assert [sharer.told().standing for sharer in sharers] == ["reader"] * 3
    for sharer in sharers:
        sharer.close()


def test_a_name_that_something_else_has_means_reading_alone_with_a_warning(
    corpus: Corpus, caplog: pytest.LogCaptureFixture
) -> None:
    recipe = corpus.recipe("web@1")
    key = key_of(prepare(recipe, corpus.registry), ps.Lane())
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as squatter:
        squatter.bind(f"\0penstock-lane-{os.geteuid()}-{key}-0")
        squatter.listen()

        def answer() -> None:
            line, _ = squatter.accept()
            with line:
                line.recv(64)
                line.send(b"what do you want?")
                line.recv(64)

        answering = threading.Thread(target=answer)
        answering.start()
        with corpus.open(recipe, share=True) as feed:
            batches = [told_of(next(feed)) for _ in range(5)]
            sharing = feed.statistics().sharing
        answering.join()
    assert batches == [told_of(batch) for batch in corpus.read(recipe, 5)]
    assert (sharing.standing, sharing.alone) == ("alone", 5)
    assert "something else than Penstock" in caplog.text


def test_a_lane_is_shared_by_feeds_of_one_process_and_batches_outlive_them(corpus: Corpus) -> None:
    recipe = corpus.recipe("web@1")
    alone = [told_of(batch) for batch in corpus.read(recipe, 8)]
    kept: list[Batch] = []
    with corpus.open(recipe, share=True) as one, corpus.open(recipe, share=True, threads=1) as other:
        for _ in range(8):
            kept += [next(one), next(other)]
    assert [told_of(batch) for batch in kept[::2]] == alone
    assert [told_of(batch) for batch in kept[1::2]] == alone
    with pytest.raises(ValueError, match="read-only"):
        kept[0]["tokens"][0, 0] = 1


# Frameworks that other tests imported warn about any fork; this one only looks and leaves.
@pytest.mark.filterwarnings("ignore:.*fork:RuntimeWarning", "ignore:.*fork:DeprecationWarning")
def test_a_fork_neither_hangs_nor_takes_the_name_along(corpus: Corpus) -> None:
    with corpus.open(corpus.recipe("web@1"), share=True, threads=2) as feed:
        first = next(feed)

        def look() -> None:
            with pytest.raises(FeedClosed):
                next(feed)
            feed.close()
            with corpus.open(corpus.recipe("web@1"), share=True) as own:
                assert told_of(next(own)) == told_of(first)

        assert in_child(look) == 0
        assert next(feed).step == 1
