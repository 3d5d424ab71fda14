"""Records that cannot be decoded, maps that raise, files that are damaged, readers that are killed."""

import gc
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.data.feed import worker_count
from penstock.data.feed.options import ReadOptions
from penstock.data.feed.python_stage import DEPTH_MAX
from penstock.errors import CorruptShard, FeedClosed, RecipeInvalid, SampleUndecodable, TooManyUndecodable
from tests.data.gallery import MOVES, NOTES, Gallery, note, png, read_lanes, write_archive
from tests.data.reader import lines_of
from tests.data.record_maps import decoded, fails_first, fragile, named_valid, seen, shapeless, tossed, unlike
from tests.data.test_trust import in_child

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Gallery:
    return Gallery.make(tmp_path_factory.mktemp("gallery"))


def fragile_recipe(gallery: Gallery, **fields: Any) -> ps.Recipe:
    source = ps.Source("notes@1", stages=[ps.Map(fragile)], epochs=2)
    return gallery.recipe(source, **({"shuffle": "none", "batch": 6} | fields))


@pytest.mark.parametrize("threads", [0, 3])
def test_a_map_that_raises_is_an_error_at_its_step_and_names_the_sample(
    gallery: Gallery, threads: int
) -> None:
    """Goal: whatever threads have read ahead, the steps before it come first. Method: sample 13 is in the third step."""
    recipe = gallery.recipe(
        ps.Source("notes@1", stages=[ps.Filter("id % 10 != 3 or id == 13"), ps.Map(fragile)]),
        shuffle="none",
        batch=4,
    )
    with gallery.open(recipe, threads=threads) as feed:
        assert [next(feed).step for _ in range(3)] == [0, 1, 2]
        for _ in range(2):
            with pytest.raises(SampleUndecodable) as raised:
                next(feed)
            assert feed.cursor.step == 3
    problem = raised.value
    assert (problem.version, problem.sample, problem.shard) == ("notes@1", 13, "notes.parquet")
    assert problem.reason == "ValueError: nothing can be made of 13"
    assert problem.stage == "map tests.data.record_maps:fragile"
    assert "mask" in f"{problem.hint}"


@pytest.mark.parametrize(("threads", "restless"), [(0, False), (3, False), (3, True)])
def test_a_step_that_failed_can_be_asked_for_again(
    gallery: Gallery, monkeypatch: pytest.MonkeyPatch, threads: int, restless: bool
) -> None:
    """Goal: an error costs nothing but itself. Method: every sample fails once, and the consumer asks until the step comes; also while
    it changes at every step who finishes the next: all threads, one, or the consumer."""
    if restless:
        for name, value in (
            ("WINDOW", 1),
            ("_WAITING", 0.0),
            ("_BESIDE", 99.0),
            ("_IDLE", 1.1),
            ("_BUSY", 1.1),
        ):
            monkeypatch.setattr(worker_count, name, value)
        monkeypatch.setattr(worker_count, "_TRIALS", (2, 2))
    source = ps.Source("notes@1", epochs=2)
    expected = gallery.read(gallery.recipe(source, batch=5), threads=0)
    seen.clear()
    stages = [ps.Map(fails_first)]
    with gallery.open(gallery.recipe(source, batch=5, stages=stages), threads=threads) as feed:
        batches, failures = [], 0
        while len(batches) < len(expected) and failures < 1000:
            at = feed.cursor.step
            try:
                batches.append(next(feed))
            except SampleUndecodable:
                failures += 1
                assert feed.cursor.step == at
        assert [(batch.step, batch.digest) for batch in batches] == [(b.step, b.digest) for b in expected]
        assert 0 < failures <= NOTES
        for _ in range(2):
            assert next(feed, None) is None


@pytest.mark.parametrize("lanes", [1, 2, 3])
@pytest.mark.parametrize("threads", [0, 2])
def test_masked_samples_stay_in_their_place(gallery: Gallery, lanes: int, threads: int) -> None:
    recipe = fragile_recipe(gallery, undecodable="mask")
    feeds = [gallery.open(recipe, lane=ps.Lane(k, of=lanes), threads=threads) for k in range(lanes)]
    valid, ids, texts = [], [], []
    for parts in zip(*feeds, strict=True):
        valid += [bool(flag) for part in parts for flag in part["valid"]]
        ids += [int(number) for part in parts for number in part["id"]]
        texts += [text for part in parts for text in part["text"]]
    bad = [number % 10 == 3 for number in range(NOTES)] * 2
    assert valid == [not is_bad for is_bad in bad]
    assert ids == [0 if is_bad else number for number, is_bad in zip([*range(NOTES)] * 2, bad, strict=True)]
    assert [text is None for text in texts] == bad
    counts = [feed.statistics().undecodable for feed in feeds]
    assert sum(count.count for count in counts) == sum(bad)
    fault = min((fault for count in counts for fault in count.first), key=lambda fault: fault.origin.sample)
    assert (fault.origin.sample, fault.origin.epoch) == (3, 0)
    assert fault.reason == "map tests.data.record_maps:fragile: ValueError: nothing can be made of 3"


def test_masked_samples_give_the_same_digest_on_every_lane_and_thread(gallery: Gallery) -> None:
    recipe = fragile_recipe(gallery, undecodable="mask")
    expected, _ = read_lanes(gallery, recipe, None, 1, 0, 8)
    for lanes, threads in ((2, 1), (3, 3), (6, 0)):
        assert [w.digest for w in read_lanes(gallery, recipe, None, lanes, threads, 8)[0]] == [
            w.digest for w in expected
        ]


@pytest.mark.parametrize("threads", [0, 2])
def test_more_masked_samples_than_allowed_are_an_error(gallery: Gallery, threads: int) -> None:
    """A sample that comes again in the second epoch is the same sample."""
    recipe = fragile_recipe(gallery, undecodable="mask", undecodable_max=3)
    assert len(gallery.read(recipe, threads=threads)) == 10
    with gallery.open(
        fragile_recipe(gallery, undecodable="mask", undecodable_max=2), threads=threads
    ) as feed:
        assert [next(feed).step for _ in range(3)] == [0, 1, 2]
        for _ in range(2):
            with pytest.raises(TooManyUndecodable, match="more than 2 samples") as raised:
                next(feed)
            assert feed.cursor.step == 3
    assert "notes@1 row 23" in raised.value.last


@pytest.mark.parametrize(
    ("function", "reason"),
    [(named_valid, "'valid'"), (shapeless, "got object"), (unlike, "not list")],
)
def test_what_no_record_can_hold_is_refused(gallery: Gallery, function: Any, reason: str) -> None:
    recipe = gallery.recipe("notes@1", stages=[ps.Map(function)])
    with pytest.raises(SampleUndecodable, match=reason), gallery.open(recipe) as feed:
        next(feed)


def test_a_field_that_batches_have_themselves_is_refused_at_open(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"valid": true, "id": 1}\n')
    registry = ps.Registry(tmp_path / "registry")
    registry.register("rows", tmp_path / "rows.jsonl")
    with pytest.raises(RecipeInvalid, match="a field 'valid'") as raised:
        ps.open(ps.Recipe(sources=[ps.Source("rows@1")], batch=1), registry=registry)
    assert "Map" in f"{raised.value.hint}"


def test_a_picture_that_is_none_is_masked_and_a_damaged_file_never_is(tmp_path: Path) -> None:
    """Goal: D4. Method: a member that is no PNG is a sample that cannot be decoded; a flipped bit is an error."""
    rows = [{"__key__": f"{n:02}", "png": png(n), "json": {"label": n}} for n in range(8)]
    rows[5]["png"] = b"no picture at all"
    write_archive(tmp_path / "some.tar", rows)
    registry = ps.Registry(tmp_path / "registry")
    registry.register("some", tmp_path / "some.tar")
    source = ps.Source("some@1", stages=[ps.Map(decoded)], epochs=1)
    recipe = ps.Recipe(sources=[source], batch=4, shuffle="none", undecodable="mask")
    with ps.open(recipe, registry=registry) as feed:
        batches = list(feed)
        assert (
            feed.statistics()
            .undecodable.first[0]
            .reason.startswith("map tests.data.record_maps:decoded: Unident")
        )
    assert batches[1]["valid"].tolist() == [1, 0, 1, 1]
    assert batches[1]["image"].shape == (4, 4, 5, 3)
    assert not batches[1]["image"][1].any()
    data = bytearray((tmp_path / "some.tar").read_bytes())
    data[700] ^= 1
    (tmp_path / "some.tar").write_bytes(bytes(data))
    with pytest.raises(CorruptShard), ps.open(recipe, registry=ps.Registry(tmp_path / "registry")) as feed:
        list(feed)


@pytest.mark.parametrize("threads", [0, 2])
def test_a_file_that_was_mended_goes_on_at_its_step(tmp_path: Path, threads: int) -> None:
    """Goal: damage is an error for as long as it lasts. Method: flip a bit of the second file, ask, flip it back, ask again."""
    for shard in range(2):
        rows = [{"__key__": f"{shard}{n:02}", "json": {"n": n}, "cls": n} for n in range(16)]
        write_archive(tmp_path / f"{shard}.tar", rows)
    registry = ps.Registry(tmp_path / "registry")
    registry.register("some", [tmp_path / "0.tar", tmp_path / "1.tar"])
    recipe = ps.Recipe(sources=[ps.Source("some@1", epochs=1)], batch=4, shuffle="none")
    with ps.open(recipe, registry=registry, threads=0) as feed:
        expected = [batch.digest for batch in feed]
    whole = (tmp_path / "1.tar").read_bytes()
    (tmp_path / "1.tar").write_bytes(whole[:700] + bytes([whole[700] ^ 1]) + whole[701:])
    with ps.open(recipe, registry=ps.Registry(tmp_path / "registry"), threads=threads) as feed:
        digests = [next(feed).digest for _ in range(4)]
        for _ in range(2):
            with pytest.raises(CorruptShard):
                next(feed)
            assert feed.cursor.step == 4
        (tmp_path / "1.tar").write_bytes(whole)
        late = 0
        while len(digests) < len(expected):
            try:
                digests.append(next(feed).digest)
            except CorruptShard:
                # A step that was read ahead before the file was mended still tells of it, once.
                late += 1
                assert late <= 4 * threads
        assert digests == expected


def test_a_length_means_nothing_for_records(gallery: Gallery) -> None:
    stage = ps.Map(tossed, random=True, length_max=8)
    with pytest.raises(RecipeInvalid, match="no length in tokens"):
        gallery.open(gallery.recipe("moves@1", stages=[stage]))


def finishing_threads() -> list[str]:
    """The threads that finish batches."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("penstock-finish-")]


def test_threads_are_gone_after_close_after_an_error_and_when_forgotten(gallery: Gallery) -> None:
    feed = gallery.open(gallery.mixed(), threads=3)
    next(feed)
    assert sorted(finishing_threads()) == [f"penstock-finish-{n}" for n in range(3)]
    feed.close()
    feed.close()
    assert finishing_threads() == []
    for _ in range(2):
        with pytest.raises(FeedClosed):
            next(feed)
    assert gallery.read(gallery.mixed(), 1, cursor=feed.cursor)[0].step == 1
    with pytest.raises(SampleUndecodable):
        gallery.read(fragile_recipe(gallery), threads=3)
    assert finishing_threads() == []
    feed = gallery.open(gallery.mixed(), threads=2)
    next(feed)
    del feed
    gc.collect()
    assert finishing_threads() == []


def test_a_process_that_never_closes_its_feed_ends(gallery: Gallery) -> None:
    code = (
        "import sys, penstock as ps\n"
        "recipe = ps.Recipe(sources=[ps.Source('moves@1')], batch=4)\n"
        "feed = ps.open(recipe, registry=ps.Registry(sys.argv[1]), threads=3)\n"
        "print(next(feed).step)\n"
    )
    command = [sys.executable, "-c", code, gallery.registry.url]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert (ended.stdout, ended.stderr) == ("0\n", "")


# Frameworks that other tests imported warn about any fork; this one only looks and leaves.
@pytest.mark.filterwarnings("ignore:.*fork:RuntimeWarning", "ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("threads", [0, 3])
def test_a_feed_in_the_child_of_a_fork_is_closed_and_never_hangs(gallery: Gallery, threads: int) -> None:
    feeds = [gallery.open(gallery.mixed(), threads=threads)]
    next(feeds[0])

    def use() -> None:
        with pytest.raises(FeedClosed, match="fork"):
            next(feeds[0])

    def close_and_forget() -> None:
        feeds[0].close()
        feeds.clear()
        gc.collect()

    for work in (use, close_and_forget):
        assert in_child(work) == 0
    with feeds[0] as feed:
        assert next(feed).step == 1


def test_what_waits_is_bounded_by_count_and_by_memory(gallery: Gallery) -> None:
    """Goal: memory stays within its limit. Method: let threads run until they stop by themselves."""
    plan = gallery.open(gallery.recipe("moves@1")).plan
    (batch,) = gallery.read(gallery.recipe("moves@1"), 1)
    for memory_bytes, most in ((1 << 30, DEPTH_MAX), (5 * batch.size_bytes, 6), (1, 1)):
        with ps.Feed(plan, ps.Lane(), options=ReadOptions(threads=3, memory_bytes=memory_bytes)) as feed:
            next(feed)
            deadline, steady = time.monotonic() + 30, 0
            while steady < 2000 and time.monotonic() < deadline:
                before = feed.ready
                os.sched_yield()
                steady = steady + 1 if feed.ready == before else 0
            assert 1 <= feed.ready <= most
    assert MOVES > 12


RECIPE = """
seed = 5
batch = [[0, 12], [25, 24]]
weights = [[0, {pictures = 0.6, notes = 0.2, moves = 0.2}], [14, {pictures = 0.1, notes = 0.1, moves = 0.8}]]
[[sources]]
name = "pictures@1"
[[sources]]
name = "notes@1"
[[sources.stages]]
kind = "filter"
expression = "id < 25"
[[sources]]
name = "moves@1"
[[sources.stages]]
kind = "map"
function = "tests.data.record_maps:shifted"
random = true
"""
END = 60


def test_killed_readers_go_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    """Goal: D6. Method: SIGKILL two readers at random lines, each with other lanes and threads; compare with one reading."""
    gallery = Gallery.make(tmp_path)
    (tmp_path / "recipe.toml").write_text(RECIPE)
    log, draws = tmp_path / "log", random.Random(3)
    reader = [sys.executable, "-m", "tests.data.reader", str(tmp_path), str(log)]
    for lanes, threads in ((3, 2), (4, 3)):
        lines = draws.randrange(4, 25)
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with subprocess.Popen(
            [*reader, str(lanes), str(threads), str(END), str(lines)], cwd=ROOT, **pipes
        ) as process:
            said = [process.stdout.readline() for _ in range(lines)]
            process.send_signal(signal.SIGKILL)
        assert all(said)
        assert process.returncode == -signal.SIGKILL
    subprocess.run(
        [*reader, "2", "0", str(END), "-1"], cwd=ROOT, check=True, capture_output=True, timeout=120
    )
    digests = {line["step"]: line["digest"] for line in lines_of(log)}
    expected = gallery.read(ps.Recipe.load(tmp_path / "recipe.toml"), END)
    assert digests == {batch.step: batch.digest for batch in expected}


def test_values_survive_changes_by_the_reader(gallery: Gallery) -> None:
    """Whoever writes into a batch changes that batch alone."""
    recipe = gallery.recipe(ps.Source("notes@1", stages=[ps.Filter("id < 2")]), batch=8)
    with gallery.open(recipe) as feed:
        first = next(feed)
        first["words"][0].append(99)
        first["score"][:] = -1
        second = next(feed)
    assert all(99 not in words for words in [*first["words"][1:], *second["words"]])
    assert (second["score"] >= 0).all()
    assert np.isin(second["id"], [note(0)["id"], note(1)["id"]]).all()
