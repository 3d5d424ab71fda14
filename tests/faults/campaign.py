"""Random damage and random kills, by seed: what a place of checkpoints goes through, and what has to be true after it.

After any damage: nothing wrong is ever loaded, the newest checkpoint that is whole is what loads, and ``repair`` brings back every
checkpoint whose data is whole. After any kill: the same, and the run ends with the bits of an uninterrupted one. CI has a small sample
(``test_campaign``), ``python -m benchmarks faults`` the whole.
"""

import multiprocessing
import os
import random
import shutil
import signal
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import numpy as np

import penstock as ps
from penstock.errors import NothingLoads, PenstockError
from penstock.state.contract import ITEM_BYTES
from penstock.state.log import record_copies
from penstock.state.log.history import record_name
from penstock.state.log.log import Log
from penstock.state.log.manifest_copies import manifest_copy_name, manifest_name
from penstock.state.log.record_copies import copy_name, page_name
from penstock.state.log.repair import repair
from penstock.state.save.duplicates import duplicate_of
from penstock.store import open_store
from tests.faults.gangs import STEPS, uninterrupted
from tests.faults.trainer import begin, content, main, marks, train

_FROZEN = np.arange(4000.0)
#: A campaign of kills has at most so many trials for each kill that is asked for, and a run at most so many lives.
_TRIALS_PER_KILL = 4
_LIVES = 12
#: A life that makes no progress for so long is a failure.
_LIFE_S = 60.0
#: What can happen to a file: its old bytes, the bytes of another file of its kind, and chance give the new ones; None deletes it.
_DAMAGES: dict[str, Callable[[bytes, bytes, random.Random], bytes | None]] = {
    "flip": lambda data, other, draw: _flipped(data, draw),
    "lose": lambda data, other, draw: None,
    "empty": lambda data, other, draw: b"",
    "cut": lambda data, other, draw: data[: draw.randrange(len(data) + 1)],
    "zero a page": lambda data, other, draw: _zeroed(data, draw),
    "swap": lambda data, other, draw: other,
    "grow": lambda data, other, draw: data + draw.randbytes(draw.randrange(1, 50)),
}


@dataclass
class Tally:
    """What came of a campaign."""

    trials: int = 0
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    #: What must never be; with the seed of the trial.
    failures: list[str] = field(default_factory=list)

    def text(self) -> str:
        """In one line."""
        counts = ", ".join(f"{count} {what}" for what, count in sorted(self.counts.items()))
        return f"{self.trials} trials, {len(self.failures)} failures; {counts}"


def _flipped(data: bytes, draw: random.Random) -> bytes:
    if not data:
        return b"\x01"
    at = draw.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1 :]


def _zeroed(data: bytes, draw: random.Random) -> bytes:
    at = draw.randrange(max(1, len(data))) // 4096 * 4096
    return data[:at] + bytes(min(4096, len(data) - at)) + data[at + 4096 :]


def _tree(step: int) -> dict[str, Any]:
    return {"frozen": _FROZEN.copy(), "w": np.random.default_rng(step).random(3000), "step": step}


def _make(place: Path, copies: int) -> None:
    """A place with a past: two incarnations, retired checkpoints, tensors that are shared, pages."""
    for steps in (range(1, 5), range(5, 10)):
        with ps.Checkpoints(place, keep=ps.Keep(last=4, copies=copies)) as ck:
            ck.resume(_tree(0))
            for step in steps:
                ck.save(step, _tree(step), {"cursor": step}).wait()


def damages(count: int, seed: int, folder: Path) -> Tally:
    """Damage copies of a place, one to three files at a time, whatever they are."""
    pages, record_copies.PAGE_SIZES = record_copies.PAGE_SIZES, (16, 4)
    tally = Tally()
    began = time.perf_counter()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        originals = []
        for copies in (1, 2):
            _make(folder / f"copies-{copies}", copies)
            originals.append(_Original(folder / f"copies-{copies}"))
        for trial in range(count):
            draw = random.Random(f"{seed} {trial}")
            try:
                _damage_once(draw.choice(originals), folder / "trial", draw, tally)
            except (PenstockError, AssertionError) as problem:
                tally.failures.append(f"damage {seed} {trial}: {type(problem).__name__}: {problem}")
            tally.trials += 1
            shutil.rmtree(folder / "trial", ignore_errors=True)
    finally:
        record_copies.PAGE_SIZES = pages
    tally.seconds = time.perf_counter() - began
    return tally


class _Original:
    """A whole place, and what its checkpoints consist of."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.files = sorted(str(path.relative_to(place)) for path in place.rglob("*") if path.is_file())
        self.kinds: dict[str, list[str]] = {}
        for name in self.files:
            self.kinds.setdefault(name.rpartition("/")[0].split("/")[0], []).append(name)
        self.history = Log(open_store(place)).read()
        self.checkpoints = ps.Checkpoints(place, read_only=True).list()

    def is_whole(self, checkpoint: ps.Checkpoint, place: Path) -> bool:
        """Whether manifest and data of a checkpoint are, by comparing bytes with the original."""
        names = (manifest_name(checkpoint.digest), manifest_copy_name(checkpoint.digest))
        return any(self._same(name, place) for name in names) and all(self._pieces(checkpoint, place))

    def is_recorded(self, number: int, place: Path) -> bool:
        """Whether a copy of a record is."""
        names = [record_name(number), copy_name(number)]
        names += [page_name(size, number // size) for size in record_copies.PAGE_SIZES]
        return any(self._same(name, place) for name in names)

    def leaves_a_trace(self, number: int, place: Path) -> bool:
        """Whether a record that is lost can be known to have been there."""
        copies = (record_name(number), copy_name(number))
        return number + 1 < self.history.length or any((place / name).exists() for name in copies)

    def _same(self, name: str, place: Path) -> bool:
        before, now = self.place / name, place / name
        return before.is_file() and now.is_file() and before.read_bytes() == now.read_bytes()

    def _pieces(self, checkpoint: ps.Checkpoint, place: Path) -> Iterator[bool]:
        manifest = checkpoint.manifest
        for tensor in manifest.tensors.values():
            for piece in tensor.pieces:
                file = manifest.files[piece.file]
                bytes_ = piece.box.elements * ITEM_BYTES[tensor.dtype]
                duplicate = duplicate_of(file, piece.start, bytes_)
                yield self._range(file.name, piece.start, bytes_, place) or (
                    duplicate is not None
                    and self._range(
                        duplicate.name, duplicate.at + piece.start - duplicate.start, bytes_, place
                    )
                )

    def _range(self, name: str, start: int, bytes_: int, place: Path) -> bool:
        """Whether a file has its length and, in a range, its bytes."""
        if not (place / name).is_file():
            return False
        before, now = (self.place / name).read_bytes(), (place / name).read_bytes()
        return len(before) == len(now) and before[start : start + bytes_] == now[start : start + bytes_]


def _damage_once(original: _Original, place: Path, draw: random.Random, tally: Tally) -> None:
    shutil.copytree(original.place, place)
    for _ in range(draw.choice([1, 1, 1, 2, 3])):
        kind = draw.choice(sorted(original.kinds))
        name, other = draw.choice(original.kinds[kind]), draw.choice(original.kinds[kind])
        how = draw.choice(sorted(_DAMAGES))
        new = _DAMAGES[how]((original.place / name).read_bytes(), (original.place / other).read_bytes(), draw)
        with suppress(FileNotFoundError):
            (place / name).unlink()
        if new is not None:
            (place / name).write_bytes(new)
        tally.counts[f"in {kind}"] += 1
    whole = [checkpoint for checkpoint in original.checkpoints if original.is_whole(checkpoint, place)]
    loadable = [checkpoint for checkpoint in whole if original.is_recorded(checkpoint.number, place)]
    traced = [checkpoint.step for checkpoint in whole if original.leaves_a_trace(checkpoint.number, place)]
    into = _tree(0)
    with ps.Checkpoints(place) as ck:
        try:
            resumed = ck.resume(into)
        except NothingLoads:
            assert not loadable, f"step {loadable[-1].step} is whole, and nothing loads"
            tally.counts["nothing left"] += 1
        else:
            assert resumed is not None, "checkpoints were there, and resume says nothing"
            expected = _tree(resumed.step)
            for name, array in expected.items():
                assert np.array_equal(into[name], array), f"step {resumed.step}: {name} was loaded wrong"
            assert resumed.step == loadable[-1].step, (
                f"step {loadable[-1].step} is whole, {resumed.step} was loaded"
            )
            fell = resumed.step != original.checkpoints[-1].step
            tally.counts["fell back" if fell else "loaded the newest"] += 1
    done = repair(open_store(place), patience_s=0)
    tally.counts["repaired"] += not done.nothing
    history = Log(open_store(place)).read()
    steps = {committed.step for committed in history.checkpoints()}
    assert not history.lost, "records are lost after a repair"
    assert set(traced) <= steps, f"steps {sorted(set(traced) - steps)} are whole and were not brought back"
    assert repair(open_store(place), dry_run=True).nothing, "a repaired place wants another repair"


def _contents(steps: int) -> list[str]:
    """What rank 0 of 1 holds before every step."""
    state = begin(0, 1)
    contents = [content(state)]
    for step in range(steps):
        train(state, step)
        contents.append(content(state))
    return contents


def kills(count: int, seed: int, folder: Path) -> Tally:
    """Kill training processes with SIGKILL at random moments of their lives, while they resume, train, save, prune and end, until ``count`` of
    them were killed. The moment is a mark of the process's own progress and a pause; one that ends within the pause is looked at as well,
    and is no kill."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.faults.trainer"])
    tally = Tally()
    contents, expected = _contents(STEPS), uninterrupted(1)[0]
    began = time.perf_counter()
    # The first one starts the server that forks the others.
    _Life(context, folder / "first").end()
    pause_s = _Life(context, folder / "second").end()
    place, lives, step = folder / "0", 0, 0
    for trial in range(_TRIALS_PER_KILL * count):
        if tally.counts["killed"] == count:
            break
        draw = random.Random(f"{seed} {trial}")
        life = _Life(context, place)
        when, code = life.kill(draw.randrange(marks(step, STEPS)), draw.uniform(0.0, pause_s))
        if code not in (0, -signal.SIGKILL):
            tally.failures.append(f"kill {seed} {trial}: the process ended with {code}")
        tally.counts["killed" if code else "ended before the kill"] += 1
        if code:
            tally.counts[f"while it {_phase(when, marks(step, STEPS))}"] += 1
        tally.trials += 1
        lives += 1
        try:
            before, step = step, _check_killed(place, contents, draw)
            assert step >= before, f"step {before} was committed, and {step} is the newest"
            tally.counts["with a checkpoint" if step else "before the first checkpoint"] += 1
            if step == STEPS or lives == _LIVES:
                answer = main(str(place), 0, 1, uuid.uuid4().hex, STEPS)
                assert answer["content"] == expected, "the run ended with other bits"
                place, lives, step = folder / str(trial + 1), 0, 0
                tally.counts["runs that ended with the same bits"] += 1
        except (PenstockError, AssertionError) as problem:
            tally.failures.append(f"kill {seed} {trial}: {type(problem).__name__}: {problem}")
            place, lives, step = folder / str(trial + 1), 0, 0
    if tally.counts["killed"] < count:
        tally.failures.append(
            f"kills {seed}: only {tally.counts['killed']} of {count} were killed in {tally.trials} trials"
        )
    tally.seconds = time.perf_counter() - began
    return tally


def _phase(passed: int, all_marks: int) -> str:
    """What a life does after so many marks."""
    if passed <= 1:
        return "begins and resumes"
    return "trains and saves" if passed < all_marks - 1 else "writes the last saves and ends"


def _marked(connection: Connection, place: str) -> None:
    """What a life runs: every mark of its progress is a byte in a pipe."""
    main(place, 0, 1, uuid.uuid4().hex, STEPS, lambda: connection.send_bytes(b"."))


class _Life:
    """A training process whose progress is seen."""

    def __init__(self, context: ForkServerContext, place: Path) -> None:
        self._marks, theirs = context.Pipe(duplex=False)
        self._process = context.Process(target=_marked, args=(theirs, str(place)))
        self._process.start()
        theirs.close()

    def end(self) -> float:
        """Wait until it ends by itself; the seconds between two marks, on average."""
        moments = []
        with suppress(EOFError):
            while self._marks.poll(_LIFE_S):
                self._marks.recv_bytes()
                moments.append(time.perf_counter())
        self._process.join(_LIFE_S)
        assert self._process.exitcode == 0
        return (moments[-1] - moments[0]) / len(moments)

    def kill(self, mark: int, pause_s: float) -> tuple[int, int]:
        """Kill it a pause after it has passed a mark; how many marks it had passed, and its exit code."""
        passed = 0
        with suppress(EOFError):
            while passed <= mark and self._marks.poll(_LIFE_S):
                self._marks.recv_bytes()
                passed += 1
        self._process.join(pause_s)
        if self._process.pid is not None and self._process.is_alive():
            # The server that forked it may have reaped it a moment ago: then it has ended by itself.
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)
        self._process.join(_LIFE_S)
        with suppress(EOFError):
            while self._marks.poll(0):
                self._marks.recv_bytes()
                passed += 1
        self._marks.close()
        code = self._process.exitcode
        assert code is not None, "a killed process did not end"
        return passed, code


def _check_killed(place: Path, contents: list[str], draw: random.Random) -> int:
    """Look at what a kill left; the step of the newest checkpoint, 0 without one."""
    looking = ps.Checkpoints(place, read_only=True)
    checkpoint = looking.latest()
    if checkpoint is not None:
        state = begin(0, 1)
        looking.load(checkpoint, state)
        assert content(state) == contents[checkpoint.step], f"step {checkpoint.step} was loaded wrong"
    newest = looking.log.read().newest_good()
    assert (None if newest is None else newest.step) == (None if checkpoint is None else checkpoint.step), (
        "a committed checkpoint does not load"
    )
    dry_run = draw.random() < 0.8
    if looking.log.read().length == 0:
        return 0
    done = repair(open_store(place), dry_run=dry_run, patience_s=0)
    assert not done.rebuilt, f"a kill lost records {[record.number for record in done.rebuilt]}"
    assert not done.appended, "a kill lost the log"
    return 0 if checkpoint is None else checkpoint.step
