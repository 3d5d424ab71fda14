"""The live tap: what runs can be looked at, rebuilt and compared; a training loop shows its own arrays within a budget."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import penstock as ps
from penstock.cli.main import main
from penstock.data.tap.arrays import PLACES, Ring
from penstock.errors import UsageError
from penstock.run import Policy
from penstock.view.address import parse
from penstock.view.model import BatchView
from penstock.view.opener import OpenedStream, Opener
from penstock.view.tap import compare_taps, read_ring, read_tap, rings_in, shown_view, taps_in
from tests.conftest import ROOT
from tests.data.corpus import Corpus, some_documents
from tests.data.maps import louder
from tests.run.small import make, start
from tests.torch.stream import Stream
from tests.view.library import Library


@pytest.fixture
def reader(library: Library, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], Path, str]]:
    """A real process that reads batches, its tap, and its recipe."""
    recipe, tap = library.recipe("texts@1"), tmp_path / "reader.tap"
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.view.feeding", str(library.folder / "registry"), recipe, str(tap)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    yield process, tap, recipe
    process.kill()
    process.wait(timeout=30)
    process.communicate()


def ask(process: subprocess.Popen[str]) -> list[str]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("next\n")
    process.stdin.flush()
    return process.stdout.readline().split()


def test_a_running_feed_can_be_looked_at_rebuilt_and_compared(
    library: Library, reader: tuple[subprocess.Popen[str], Path, str]
) -> None:
    """Goal: look at what runs without touching it. Method: a real process; the batch is rebuilt here from its tap alone."""
    process, tap, recipe = reader
    tapped = read_tap(tap)
    assert tapped is not None
    assert (tapped.step, tapped.alive, tapped.pid) == (None, True, process.pid)
    for _ in range(3):
        step, digest = ask(process)
        tapped = read_tap(tap)
        assert tapped is not None
        assert (tapped.step, tapped.digest) == (int(step), digest)
    opened = library.opener.open(parse(recipe))
    assert isinstance(opened, OpenedStream)
    compared = compare_taps(opened, [tapped])
    assert [(rank["equal"], rank["lane"]) for rank in compared["ranks"]] == [(True, "0/1")]
    assert tapped.about["recipe_digest"] == opened.plan.recipe.digest
    # Nothing but the tap is needed to look, by the name of its file.
    alone = Opener(ps.Registry(tap.parent / "other"), taps=tap.parent).open(parse("run:reader"))
    assert isinstance(alone, OpenedStream)
    assert alone.batch().digest == digest
    assert [entry.pid for entry in alone.live()] == [process.pid]


def test_a_tap_of_a_killed_process_is_told_to_be_stale_and_an_orderly_end_leaves_none(
    reader: tuple[subprocess.Popen[str], Path, str], library: Library, tmp_path: Path
) -> None:
    process, tap, recipe = reader
    ask(process)
    os.kill(process.pid, signal.SIGKILL)
    process.wait(timeout=30)
    tapped = read_tap(tap)
    assert tapped is not None
    assert (tapped.alive, tapped.step) == (False, 0)
    other = tmp_path / "own.tap"
    with ps.open(ps.Recipe.load(recipe), registry=library.registry, threads=0) as feed:
        assert feed.publish(other) == other
        assert [entry.path for entry in taps_in(tmp_path)] == [other, tap]
    assert not other.exists()
    (tmp_path / "junk.tap").write_bytes(b"PENTAP1\n" + bytes(200))
    (tmp_path / "short.tap").write_bytes(b"x")
    assert [entry.path for entry in taps_in(tmp_path)] == [tap]


def test_a_run_is_looked_at_while_it_runs(
    stream: Stream, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Goal: `penstock view run:…`. Method: a real run; at each step the view is asked what the run has, and gets these bits."""
    run, state = make(stream, tmp_path / "exp", Policy(save_every=4, stop_at=6)), start()
    for step, batch in run.steps(state):
        (tapped,) = taps_in(tmp_path / "exp" / "taps")
        assert (tapped.step, tapped.digest, tapped.alive) == (step, batch.digest, True)
        if step == 3:
            assert main(["view", f"run:{tmp_path}/exp"]) == 0
            shown = capsys.readouterr().out
            assert f"live: rank 0 (pid {os.getpid()}), lane 0/1, step 3, as rebuilt here" in shown
            assert f"digest {batch.digest}" in shown
            ids = batch["tokens"]
            assert ps.tap("after-collate", {"input_ids": ids, "logprobs": np.zeros(ids.shape)}, step=step)
            assert main(["view", f"run:{tmp_path}/exp", "--tap", "after-collate", "--ids"]) == 0
            assert f"step {step}" in capsys.readouterr().out
            assert main(["view", f"run:{tmp_path}/exp", "--tap", "nothing"]) == 2
    assert taps_in(tmp_path / "exp" / "taps") == []
    capsys.readouterr()
    # Over, the run is still what it was, up to its last step.
    assert main(["view", f"run:{tmp_path}/exp", "--json"]) == 0
    assert '"step": 5' in capsys.readouterr().out


def test_a_budget_bounds_what_is_shown_and_cuts_are_said(tmp_path: Path) -> None:
    ring = Ring(tmp_path / "loop-1.ring", ring_bytes=1 << 18, bytes_per_s=10_000)
    tokens = np.arange(64 * 128, dtype=np.int64).reshape(64, 128)
    assert ring.show({"tokens": tokens, "names": np.array(["a", "b"])}, 7)
    # The debt of the first is paid over seconds.
    assert not ring.show({"tokens": tokens}, 8)
    ((entry,), left) = read_ring(tmp_path / "loop-1.ring")
    assert (entry.facts["step"], entry.number, left) == (7, 1, 1)
    kept = entry.arrays["tokens"]
    assert 0 < len(kept) < 64
    assert np.array_equal(kept, tokens[: len(kept)])
    assert entry.facts["cuts"] == [f"rows 0:{len(kept)} of 64", "names: no numbers"]
    ring.close()
    assert rings_in(tmp_path) == {}
    for bad in (b"", b"PENRING1" + b"\xff" * 200):
        (tmp_path / "bad.ring").write_bytes(bad)
        with pytest.raises(UsageError, match="ring"):
            read_ring(tmp_path / "bad.ring")


def test_a_reader_never_sees_half_an_entry(tmp_path: Path) -> None:
    """Goal: no lock between loop and viewer. Method: one thread writes as fast as it can, another reads; every entry is whole."""
    ring = Ring(tmp_path / "fast.ring", bytes_per_s=1 << 40)
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            ring.show({"tokens": np.full((32, 512), number)}, number)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        seen = 0
        deadline = time.monotonic() + 60
        while seen < 200 and time.monotonic() < deadline:
            entries, _ = read_ring(tmp_path / "fast.ring")
            assert len(entries) <= PLACES
            for entry in entries:
                assert (entry.arrays["tokens"] == entry.facts["step"]).all()
                seen += 1
    finally:
        stop.set()
        writer.join(60)
        ring.close()
    assert seen >= 200


def test_what_a_loop_shows_is_a_batch_like_any_other(library: Library, tmp_path: Path) -> None:
    """Goal: tensors after collate in the same view. Method: torch tensors with labels, a mask and logprobs."""
    import torch

    opened = Opener(library.registry).open(parse(library.recipe("texts@1")))
    assert isinstance(opened, OpenedStream)
    base = opened.batch()
    assert isinstance(base, BatchView)
    ids = torch.as_tensor(np.asarray(base.arrays["tokens"]).astype(np.int64))
    labels = ids.clone()
    labels[:, :5] = -100
    ring = Ring(tmp_path / "loop.ring")
    logprobs = torch.rand(ids.shape, dtype=torch.bfloat16, requires_grad=True)
    ring.show({"input_ids": ids, "labels": labels, "logprobs": logprobs}, 3)
    (entry,), _ = read_ring(tmp_path / "loop.ring")
    view = shown_view(entry, "loop", "exp", opened.vocabularies[0])
    window = view.window((0, 2), (0, 8))
    assert window.texts() == base.window((0, 2), (0, 8)).texts()
    assert window.columns["loss_mask"].tolist() == [[0] * 5 + [1] * 3] * 2
    assert "logprobs" in view.numeric
    ring.close()


def test_a_feed_with_a_users_function_can_be_looked_at_too(tmp_path: Path) -> None:
    """Goal: recipes with maps are told by the place of the function. Method: publish, and rebuild from the tap alone."""
    corpus = Corpus(tmp_path)
    corpus.add("web", some_documents(40, longest=20, seed=1))
    stages = [ps.Map(louder), *corpus.stages(16)]
    with corpus.open(corpus.recipe("web@1", stages=stages)) as feed:
        feed.publish(tmp_path / "taps" / "mapped.tap")
        batch = next(feed)
        opened = Opener(corpus.registry, taps=tmp_path / "taps").open(parse("run:mapped"))
        assert isinstance(opened, OpenedStream)
        assert opened.batch().digest == batch.digest


def test_names_of_taps_are_names() -> None:
    with pytest.raises(UsageError, match="name must be of letters"):
        ps.tap("../../x", {"a": np.zeros(1)})
