"""D4: no unchecked byte is delivered. And a feed ends when it is told to: on close, in a fork, on Ctrl-C."""

import gc
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import penstock as ps
from penstock.errors import CorruptShard, DataError, FeedClosed, IndexDamaged
from penstock.registry.scan.scan import object_name
from tests.data.corpus import Corpus, some_documents
from tests.data.test_shapes import TEMPLATE, chats

ROOT = Path(__file__).resolve().parents[2]


def flip(path: Path, bit: int) -> None:
    """Change one bit of a file, in place."""
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.chmod(0o644)
    path.write_bytes(data)


def files_of(corpus: Corpus, recipe: ps.Recipe) -> dict[str, Path]:
    """The files behind the first source: its token payload, the payload's index, and its plan table."""
    with corpus.open(recipe) as feed:
        prepared = feed.plan.prepared[0]
    shard = prepared.tokens.manifest.shards[0]
    registry = corpus.folder / "registry"
    return {
        "payload": registry / "derived" / shard.name,
        "index": registry / object_name(shard.index),
        "table": registry / object_name(prepared.phases[0].whole.table),
    }


@pytest.fixture
def read_through(own: Corpus) -> tuple[Corpus, ps.Recipe]:
    own.add("web", some_documents(200, longest=40, seed=3))
    return own, own.recipe(ps.Source("web@1", epochs=1), length=32, batch=2)


@pytest.mark.parametrize("what", ["payload", "index", "table"])
def test_a_flipped_bit_is_an_error_and_never_a_wrong_token(
    read_through: tuple[Corpus, ps.Recipe], what: str
) -> None:
    """Goal: D4. Method: flip single bits all over a file; each reading ends in an error that names it."""
    corpus, recipe = read_through
    expected = [batch.digest for batch in corpus.read(recipe)]
    path = files_of(corpus, recipe)[what]
    good, bits = path.read_bytes(), path.stat().st_size * 8
    draws = random.Random(what)
    chosen = [0, bits - 1, *(draws.randrange(bits) for _ in range(28))]
    for bit in chosen:
        flip(path, bit)
        for threads in (0, 2):
            with pytest.raises((CorruptShard, IndexDamaged)) as raised:
                corpus.read(recipe, threads=threads)
            # An index is named by its digest, which is its file's name.
            assert path.name in str(raised.value), bit
        path.write_bytes(good)
    assert [batch.digest for batch in corpus.read(recipe)] == expected


@pytest.mark.parametrize("what", ["rest", "mask"])
def test_a_flipped_bit_in_a_rest_or_a_mask_is_an_error(own: Corpus, what: str) -> None:
    """Goal: D4 for what a change of length plans and for what the loss depends on. Method: as above."""
    chats(own)
    stages = [ps.Chat(str(own.tokenizer), template=TEMPLATE), ps.Pack([(0, 32), (5, 24)])]
    recipe = own.recipe(ps.Source("chat@1", epochs=1), batch=2, stages=stages)
    expected = [batch.digest for batch in own.read(recipe)]
    with own.open(recipe) as feed:
        prepared = feed.plan.prepared[0]
    rest, registry = prepared.phases[1].rest, own.folder / "registry"
    assert rest is not None
    assert prepared.loss is not None
    files = {
        "rest": registry / object_name(rest.table),
        "mask": registry / "derived" / prepared.loss.manifest.shards[0].name,
    }
    path = files[what]
    good, bits, draws = path.read_bytes(), path.stat().st_size * 8, random.Random(what)
    for bit in [0, bits - 1, *(draws.randrange(bits) for _ in range(14))]:
        flip(path, bit)
        with pytest.raises((CorruptShard, IndexDamaged)) as raised:
            own.read(recipe)
        assert path.name in str(raised.value), bit
        path.write_bytes(good)
    assert [batch.digest for batch in own.read(recipe)] == expected


@pytest.mark.parametrize("what", ["payload", "index", "table"])
@pytest.mark.parametrize("kept", [0.0, 0.5, 0.999])
def test_a_file_that_was_cut_is_an_error(
    read_through: tuple[Corpus, ps.Recipe], what: str, kept: float
) -> None:
    corpus, recipe = read_through
    path = files_of(corpus, recipe)[what]
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * kept)])
    with pytest.raises(DataError):
        corpus.read(recipe)


def test_damage_is_named_and_stays_an_error(read_through: tuple[Corpus, ps.Recipe]) -> None:
    corpus, recipe = read_through
    path = files_of(corpus, recipe)["payload"]
    flip(path, path.stat().st_size * 4)
    with corpus.open(recipe, threads=2) as feed:
        for _ in range(3):
            with pytest.raises(CorruptShard) as raised:
                list(feed)
            assert path.name in raised.value.shard
            assert raised.value.offset >= 0


def test_a_damaged_note_about_a_table_is_made_anew(read_through: tuple[Corpus, ps.Recipe]) -> None:
    """The note of which table belongs to a plan is a cache: whatever becomes of it, the stream stays."""
    corpus, recipe = read_through
    expected = [batch.digest for batch in corpus.read(recipe)]
    (path,) = (corpus.folder / "registry/plans").iterdir()
    good, draws = path.read_bytes(), random.Random(6)
    for bit in [7, 39 * 8 + 7, *(draws.randrange(len(good) * 8) for _ in range(20))]:
        flip(path, bit)
        assert [batch.digest for batch in corpus.read(recipe)] == expected
        path.write_bytes(good)
    path.unlink()
    assert [batch.digest for batch in corpus.read(recipe)] == expected


def test_a_flipped_bit_in_an_array_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "rows.npy"
    np.save(path, np.arange(4000, dtype="u2").reshape(500, 8))
    registry = ps.Registry(tmp_path / "registry")
    registry.register("rows", path)
    recipe = ps.Recipe(sources=[ps.Source("rows@1", epochs=1)], batch=10)
    draws, good = random.Random(4), path.read_bytes()
    for bit in [0, *(draws.randrange(len(good) * 8) for _ in range(20))]:
        flip(path, bit)
        with ps.open(recipe, registry=registry, threads=1) as feed, pytest.raises(CorruptShard) as raised:
            list(feed)
        assert raised.value.shard.endswith("rows.npy")
        path.write_bytes(good)


def test_raw_files_may_go_once_their_tokens_are_kept(read_through: tuple[Corpus, ps.Recipe]) -> None:
    """Only what is delivered must be there: a second reading needs the tokens, not the text."""
    corpus, recipe = read_through
    expected = [batch.digest for batch in corpus.read(recipe)]
    (corpus.folder / "web/000.jsonl").unlink()
    assert [batch.digest for batch in corpus.read(recipe)] == expected


def feed_threads() -> list[str]:
    """Names of this process's reading threads."""
    names = []
    for task in Path("/proc/self/task").iterdir():
        try:
            names.append((task / "comm").read_text().strip())
        except (FileNotFoundError, ProcessLookupError):
            continue
    return [name for name in names if name.startswith("penstock-feed-")]


@pytest.mark.parametrize("threads", [0, 1, 3, 8])
def test_threads_have_names_and_are_gone_after_close(corpus: Corpus, threads: int) -> None:
    feed = corpus.open(corpus.recipe("web@1"), threads=threads)
    deadline = time.monotonic() + 30
    # A thread gives itself its name when it first runs.
    while len(feed_threads()) < threads and time.monotonic() < deadline:
        os.sched_yield()
    assert sorted(feed_threads()) == [f"penstock-feed-{number}" for number in range(threads)]
    next(feed)
    feed.close()
    assert feed_threads() == []
    feed.close()


def test_a_feed_that_is_forgotten_ends_its_threads(corpus: Corpus) -> None:
    for read in (0, 5):
        feed = corpus.open(corpus.recipe("web@1"), threads=3)
        [next(feed) for _ in range(read)]
        del feed
        gc.collect()
        assert feed_threads() == []


def test_a_feed_that_failed_or_ended_leaves_no_thread(read_through: tuple[Corpus, ps.Recipe]) -> None:
    corpus, recipe = read_through
    corpus.read(recipe, threads=4)
    assert feed_threads() == []
    flip(files_of(corpus, recipe)["payload"], 8000)
    with pytest.raises(CorruptShard):
        corpus.read(recipe, threads=4)
    assert feed_threads() == []


@pytest.mark.parametrize("threads", [0, 2])
def test_a_closed_feed_says_so(corpus: Corpus, threads: int) -> None:
    recipe = corpus.recipe("web@1")
    with corpus.open(recipe, threads=threads) as feed:
        batch = next(feed)
        before = batch["tokens"].copy()
    for _ in range(2):
        with pytest.raises(FeedClosed) as raised:
            next(feed)
        assert raised.value.hint
    # What was handed out stays good, and so does the place to go on.
    assert (batch["tokens"] == before).all()
    assert corpus.read(recipe, 1, cursor=feed.cursor)[0].step == 1
    assert feed.statistics().batches == 1


def in_child(work: Callable[[], None]) -> int:
    """The exit code of a forked child that does some work; 99 when it raised."""
    child = os.fork()
    if child == 0:
        code = 99
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        os.sched_yield()
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    pytest.fail("the child of a fork hangs")


# Frameworks that other tests imported warn about any fork; this one only looks and leaves.
@pytest.mark.filterwarnings("ignore:.*fork:RuntimeWarning", "ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("threads", [0, 3])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_feed_in_the_child_of_a_fork_is_closed_and_never_hangs(corpus: Corpus, threads: int) -> None:
    recipe = corpus.recipe("web@1")
    feeds = [corpus.open(recipe, threads=threads)]
    batch = next(feeds[0])
    kept = batch["tokens"].copy()

    def use() -> None:
        with pytest.raises(FeedClosed, match="fork"):
            next(feeds[0])
        assert feeds[0].cursor.step == 1
        assert (batch["tokens"] == kept).all()

    def close_and_forget() -> None:
        feeds[0].close()
        feeds.clear()
        gc.collect()

    def open_again() -> None:
        assert corpus.read(recipe, 1, threads=threads)[0].digest == batch.digest

    for work in (use, close_and_forget, open_again):
        assert in_child(work) == 0
    with feeds[0] as feed:
        assert next(feed).step == 1


INTERRUPTED = """
import sys
import penstock as ps
recipe, registry = ps.Recipe.load(sys.argv[1]), ps.Registry(sys.argv[2])
feed = ps.open(recipe, registry=registry, threads=1)
try:
    print("waiting", flush=True)
    for _ in feed:
        pass
except KeyboardInterrupt:
    print("interrupted", flush=True)
    feed.close()
    raise
"""


def test_ctrl_c_ends_a_process_that_waits_for_a_batch(own: Corpus) -> None:
    """Goal: safe on Ctrl-C. Method: steps of half a million rows, so that the process does nothing but wait for them."""
    own.add("web", some_documents(50, longest=9, seed=3, empty=False))
    toml = 'batch = 500000\n[[sources]]\nname = "web@1"\n[[stages]]\nkind = "tokenize"\ntokenizer = "tokenizer.json"\n'
    (own.folder / "recipe.toml").write_text(f'{toml}[[stages]]\nkind = "pack"\nlength = 2\n')
    own.open(ps.Recipe.load(own.folder / "recipe.toml")).close()
    command = [sys.executable, "-c", INTERRUPTED, str(own.folder / "recipe.toml"), own.registry.url]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=ROOT, **pipes) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert out == "interrupted\n"
    assert "KeyboardInterrupt" in err
    assert process.returncode == -signal.SIGINT
