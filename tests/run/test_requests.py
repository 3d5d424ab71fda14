"""What a program may ask of its run: save, stop, log, a phase, and to be left in the middle; and being told to leave."""

import dataclasses
import logging
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import penstock as ps
import penstock.torch
from penstock import errors
from penstock.process.job.catalogue import jobs
from penstock.report import ledger
from penstock.run import EXIT_LEFT, EXIT_UNSAVED, Policy, Run, Spike
from penstock.run.journal import journal, metrics
from penstock.state.ranks.clock import Clock
from penstock.state.save.durable import Finisher
from tests.process.jobs import wait_until
from tests.run.comparing import first_difference
from tests.run.small import make, start, train
from tests.torch.stream import Stream

STEPS = 12
ROOT = Path(__file__).parents[2]


def policy(**more: Any) -> Policy:
    kept = {"save_every": None, "stop_at": STEPS, "digest_every": 1, "keep": ps.Keep(every=1)}
    return Policy(**{**kept, **more})


def saved(directory: Path) -> list[int]:
    return [checkpoint.step for checkpoint in ps.Checkpoints(directory / "checkpoints").list()]


def stepping(run: Run, leave: Any = None) -> torch.nn.Module:
    """A loop as people write it with PyTorch; ``leave(where, step)`` says where to break."""
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for step, batch in run.steps(penstock.torch.state(model, optimizer)):
        if leave is not None and leave("begin", step):
            break
        optimizer.zero_grad()
        loss = model(batch["tokens"][:, :8].float() / 1000).square().mean()
        loss.backward()
        if leave is not None and leave("middle", step):
            break
        optimizer.step()
        run.report(loss=loss)
        if leave is not None and leave("end", step):
            break
    return model


def test_a_loop_that_trains_the_batch_before_is_told(
    stream: Stream, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Goal: no batch is lost in silence. Method: loops that look one batch ahead, in every life, and loops that may begin late for good reasons."""

    def ahead(run: Run, late: Any) -> None:
        model = torch.nn.Linear(8, 8)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        held: Any = None
        for step, batch in run.steps(penstock.torch.state(model, optimizer)):
            current, held = (held, batch) if late else (batch, None)
            if current is None:
                continue
            model(current["tokens"][:, :8].float() / 1000).square().mean().backward()
            if late or step % 3 == 2:
                optimizer.step()
                optimizer.zero_grad()

    for name, late, stop_at in (("late", True, 3), ("late", True, 6), ("accumulating", False, 6)):
        caplog.clear()
        ahead(make(stream, tmp_path / name, policy(stop_at=stop_at)), late)
        warnings = [message for message in caplog.messages if "loses a batch at every resume" in message]
        assert len(warnings) == late, name
    caplog.clear()
    stepping(make(stream, tmp_path / "ordinary", policy(stop_at=4)))
    assert not caplog.messages


def test_saving_is_asked_for(stream: Stream, tmp_path: Path) -> None:
    run = make(stream, tmp_path, policy())
    train(run, at=lambda step: run.save() if step in (3, 7) else None)
    assert saved(tmp_path) == [0, 4, 8, STEPS]


def test_a_stop_ends_the_loop_saved_and_the_next_start_goes_on(stream: Stream, tmp_path: Path) -> None:
    run = make(stream, tmp_path / "a", policy())
    _, executed = train(run, at=lambda step: run.stop("enough for today") if step == 5 else None)
    assert executed == list(range(6))
    assert saved(tmp_path / "a") == [0, 6]
    facts = {
        entry.kind: entry.facts for entry in journal.read(tmp_path / "a") if entry.kind in ("stop", "end")
    }
    assert facts == {"stop": {"reason": "enough for today"}, "end": {"how": "done"}}

    state, executed = train(make(stream, tmp_path / "a", policy()))
    assert executed == list(range(6, STEPS))
    whole, _ = train(make(stream, tmp_path / "b", policy()))
    assert np.array_equal(state["weights"], whole["weights"])
    assert first_difference(tmp_path / "a", tmp_path / "b") == ""


def test_the_best_checkpoint_by_a_logged_metric_is_kept(stream: Stream, tmp_path: Path) -> None:
    """Goal: what nanoGPT does by hand. Method: a value that is lowest in the middle, logged and saved every third step."""
    values = {2: 3.0, 5: 1.0, 8: 2.0, 11: 4.0}
    run = make(stream, tmp_path, policy(keep=ps.Keep(last=1, best=ps.Best("val_loss"))), checkpoints=None)

    def evaluate(step: int) -> None:
        if step in values:
            run.log(val_loss=torch.tensor(values[step]), lr=1e-3)
            run.save()

    train(run, at=evaluate)
    assert saved(tmp_path) == [6, STEPS]
    best = ps.Checkpoints(tmp_path / "checkpoints").at(6)
    assert best.metrics["val_loss"] == 1.0
    entries = metrics.read(tmp_path)
    assert [(entry.step, entry.values["val_loss"]) for entry in entries] == list(values.items())


def test_metrics_of_an_undone_past_are_gone(stream: Stream, tmp_path: Path) -> None:
    """Goal: a step has what its last execution logged. Method: a rollback over steps that were logged."""
    spike = Spike(k=20, window=8, least=4, then="rollback", back=1)
    run = make(stream, tmp_path, policy(save_every=4, spike=spike))
    seen: list[int] = []

    def log(step: int) -> None:
        seen.append(step)
        run.log(count=len(seen))

    train(run, bad={9: 1e6}, at=log)
    assert seen == [*range(10), *range(8, 8), *range(10, STEPS)]
    assert [entry.step for entry in metrics.read(tmp_path)] == [*range(8), 10, 11]


@pytest.mark.parametrize("value", ["much", [1, 2], None, torch.ones(2), 10**400])
def test_only_numbers_are_logged_and_committed(stream: Stream, tmp_path: Path, value: Any) -> None:
    run = make(stream, tmp_path / "run", policy())
    with pytest.raises(errors.UsageError, match=r"number|one element"):
        train(run, at=lambda step: run.log(val_loss=value))
    with ps.Checkpoints(tmp_path / "place") as checkpoints, pytest.raises(errors.UsageError, match="number"):
        checkpoints.save(0, start(), metrics={"loss": value})


def test_a_phase_changes_no_bit_and_is_counted_apart(stream: Stream, tmp_path: Path) -> None:
    """Goal: an evaluation is free to draw. Method: the same run with and without one that draws from every global generator."""

    def evaluate(run: Run, step: int) -> None:
        with run.phase("eval"), run.phase("inner"):
            drawn.append((torch.rand(3).tolist(), np.random.random(), Clock().pause(0.02)))

    drawn: list[Any] = []
    with_phase = make(stream, tmp_path / "a", policy())
    train(with_phase, at=lambda step: evaluate(with_phase, step) if step % 4 == 0 else None)
    train(make(stream, tmp_path / "b", policy()))
    assert first_difference(tmp_path / "a", tmp_path / "b") == ""
    assert len({str(each) for each in drawn}) == 3
    told = [each.facts["name"] for each in journal.read(tmp_path / "a") if each.kind == "phase"]
    assert told == ["inner", "eval"] * 3
    accounts = ledger(tmp_path / "a")
    assert 60_000_000 <= accounts.parts["eval"] < accounts.wall
    assert sum(accounts.accounts.values()) == accounts.wall


def test_a_phase_that_is_left_open_is_refused(stream: Stream, tmp_path: Path) -> None:
    run = make(stream, tmp_path, policy())
    left_open: list[Any] = []

    def enter(step: int) -> None:
        if step == 2:
            left_open.append(run.phase("eval"))
            left_open[0].__enter__()

    with pytest.raises(errors.UsageError, match="step 2 ends while a phase is open"):
        train(run, at=enter)


def test_a_reason_may_be_anything_that_has_words(stream: Stream, tmp_path: Path) -> None:
    run = make(stream, tmp_path, policy())
    train(run, at=lambda step: run.stop(ValueError("no more")) if step == 3 else None)  # type: ignore[arg-type]
    assert [entry.facts["reason"] for entry in journal.read(tmp_path) if entry.kind == "stop"] == ["no more"]


FORKING = """
import os, sys
from pathlib import Path
import penstock as ps
from tests.run.small import make, start, update
from tests.torch.stream import Stream
run = make(Stream(Path(sys.argv[1])), Path(sys.argv[2]), ps.RunPolicy(save_every=4, stop_at=9))
state = start()
for step, batch in run.steps(state):
    run.report(loss=update(run, state, batch)[0])
    if step in (3, 7):
        child = os.fork()
        if child == 0:
            sys.exit(5 if step == 3 else 6)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) in (5, 6)
"""


def test_children_of_a_fork_end_nothing_of_the_run(stream: Stream, tmp_path: Path) -> None:
    """Goal: a program may fork in its loop. Method: children that leave by `sys.exit`, which runs what is registered for the end."""
    command = [sys.executable, "-c", FORKING, str(stream.folder), str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert [entry.facts["how"] for entry in journal.read(tmp_path) if entry.kind == "end"] == ["done"]


@pytest.mark.parametrize(("where", "kept"), [("begin", 7), ("end", 8), ("middle", 0)])
def test_a_break_saves_what_is_whole(
    stream: Stream, tmp_path: Path, where: str, kept: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Goal: `break` loses nothing that is known to be whole and saves nothing else. Method: leave before, inside and after a step, go on, and compare."""
    with caplog.at_level(logging.WARNING, "penstock.run"):
        stepping(make(stream, tmp_path / "a", policy()), lambda at, step: (at, step) == (where, 7))
    assert max(saved(tmp_path / "a")) == kept
    assert ("run.stop()" in caplog.text) == (where == "middle")
    state = stepping(make(stream, tmp_path / "a", policy()))
    whole = stepping(make(stream, tmp_path / "b", policy()))
    assert torch.equal(state.weight, whole.weight)
    assert first_difference(tmp_path / "a", tmp_path / "b") == ""


def test_a_rollback_further_than_what_is_kept_is_refused_at_the_start(stream: Stream, tmp_path: Path) -> None:
    spike = Spike(then="rollback", back=9)
    short = policy(save_every=4, keep=ps.Keep(last=3), spike=spike)
    with pytest.raises(errors.UsageError, match="last 3 checkpoints") as caught:
        train(make(stream, tmp_path, short))
    assert "Keep(last=4)" in str(caught.value.hint)


def test_a_verdict_that_cannot_be_executed_is_a_stop(stream: Stream, tmp_path: Path) -> None:
    """Goal: a run is never bricked by its own decision. Method: extra saves have pushed out what a rollback would go back to."""
    spike = Spike(k=20, window=8, least=4, then="rollback", back=3)
    run = make(stream, tmp_path, policy(save_every=4, keep=ps.Keep(last=2), spike=spike))
    with pytest.raises(errors.RunStopped, match="no checkpoint from before step 6 is left"):
        train(run, bad={9: 1e6}, at=lambda step: run.save() if step in (7, 8) else None)
    actions = [entry.facts["action"] for entry in journal.read(tmp_path) if entry.kind == "verdict"]
    assert actions == ["stop"]
    assert not ps.SkipJournal(tmp_path / "skips.jsonl").read().steps
    _, executed = train(make(stream, tmp_path, policy(save_every=4)))
    assert executed == [9, 10, 11]


def test_a_save_is_postponed_while_the_one_before_is_written(
    stream: Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a slow disk costs checkpoints and no time. Method: writing the first one is held up until step 9, which is reached without it."""
    free = threading.Event()
    real = Finisher.finish

    def held_up(self: Finisher, captured: Any, attempt: int, metrics: dict[str, float]) -> Any:
        assert captured.step or free.wait(60)
        return real(self, captured, attempt, metrics)

    monkeypatch.setattr(Finisher, "finish", held_up)
    run = make(stream, tmp_path, policy(save_every=2, when_busy="postpone"))
    train(run, at=lambda step: free.set() if step == 9 else None)
    first, *later = saved(tmp_path)
    assert first == 0
    assert later[0] >= 10
    assert later[-1] == STEPS


def test_a_changed_recipe_is_told_with_the_supported_way(stream: Stream, tmp_path: Path) -> None:
    """Goal: the refusal helps. Method: change the batch, do what the hint says, and change what cannot be changed."""
    recipe = dataclasses.replace(stream.recipe(), batch=16)

    def go(changed: ps.Recipe, stop: int) -> None:
        train(ps.Run(tmp_path, recipe=changed, registry=stream.registry, policy=policy(stop_at=stop), seed=3))

    go(recipe, 5)
    for _ in range(2):
        with pytest.raises(errors.CursorForeign, match=r"batch was \[\[0,16\]\], is \[\[0,24\]\]") as caught:
            go(dataclasses.replace(recipe, batch=24), 6)
    assert "batch=[…, (5, rows)]" in str(caught.value.hint)
    go(dataclasses.replace(recipe, batch=((0, 16), (5, 24))), 6)
    with pytest.raises(errors.CursorForeign, match="seed was 17, is 18") as caught:
        go(dataclasses.replace(recipe, seed=18), 7)
    assert "another directory" in str(caught.value.hint)


PROGRAM = """
import os, sys, time
import penstock as ps
from pathlib import Path
from tests.run.small import make, start, update
from tests.torch.stream import Stream
run = make(Stream(Path(sys.argv[1])), Path(sys.argv[2]), ps.RunPolicy(save_every=None, stop_at=400, grace_s=float(os.environ.get("GRACE_S", 1.5))))
state = start()
for step, batch in run.steps(state):
    run.report(loss=update(run, state, batch)[0])
    print(step, flush=True)
    time.sleep(0.02)
"""


def _until_step(process: "subprocess.Popen[str]", step: int) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if int(line) == step:
            return
    raise AssertionError("it ended before")


def _started(stream: Stream, out: Path, **environment: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(stream.folder), str(out)],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_ctrl_c_saves_and_leaves(stream: Stream, tmp_path: Path) -> None:
    with _started(stream, tmp_path) as process:
        _until_step(process, 5)
        os.kill(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == EXIT_LEFT, said
    assert "once more to stop at once" in said
    assert max(saved(tmp_path)) >= 6


@pytest.mark.parametrize("point", ["run.restore", "state.captured", "state.parted"])
def test_a_notice_before_the_first_step_is_heeded_after_it(
    stream: Stream, tmp_path: Path, point: str
) -> None:
    """Goal: SIGTERM while a run restores, or saves for the first time, is no end in the middle. Method: real processes that are held there."""
    for life in range(2):
        with _started(stream, tmp_path, PENSTOCK_POINTS=f"{point}=hold:1", GRACE_S="60") as process:
            wait_until((tmp_path / f"events/{life:06d}-0000.pev").exists, "it listens")
            os.kill(process.pid, signal.SIGTERM)
            _, said = process.communicate(timeout=60)
        assert process.returncode == EXIT_LEFT, said
    ends = [entry for entry in journal.read(tmp_path) if entry.kind == "end"]
    assert [entry.facts["how"] for entry in ends] == ["left", "left"]
    assert 0 < ends[0].step < ends[1].step == max(saved(tmp_path))


def test_ctrl_c_under_supervision_is_a_notice_and_never_an_interrupt(stream: Stream, tmp_path: Path) -> None:
    """Goal: no KeyboardInterrupt inside a step, and a save that takes longer than the grace. Method: a save is held up for two seconds,
    and the grace is one."""
    out, home = tmp_path / "run", tmp_path / "home"
    words = [sys.executable, "-m", "penstock.cli.main", "run", "--grace", "1", "--"]
    with subprocess.Popen(
        [*words, sys.executable, "-c", PROGRAM, str(stream.folder), str(out)],
        cwd=ROOT,
        env={**os.environ, "PENSTOCK_HOME": str(home), "PENSTOCK_POINTS": "state.captured=hold:2@2"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert any(line == "[0] 5\n" for line in process.stdout)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGINT, said
    assert "KeyboardInterrupt" not in said
    (job,) = jobs(home)
    state = job.state()
    assert state is not None
    assert state.workers[0][1]["exit"]["code"] == EXIT_LEFT, said
    assert max(saved(out)) >= 6


def test_a_failed_save_ends_the_run_after_the_step(stream: Stream, tmp_path: Path) -> None:
    """Goal: nobody trains on unsaved. Method: the place of checkpoints becomes a file while the run goes on."""
    run = make(stream, tmp_path, policy(stop_at=5_000))
    place, last = tmp_path / "checkpoints", 0

    def at(step: int) -> None:
        nonlocal last
        last = step
        if place.is_dir() and any(entry.kind == "commit" for entry in journal.read(tmp_path)):
            place.rename(tmp_path / "moved")
            place.write_text("")
            run.save()
        Clock().pause(0.005)

    with pytest.raises(errors.PenstockError):
        train(run, at=at)
    assert last < 4_000
    (failed,) = (entry.step for entry in journal.read(tmp_path) if entry.kind == "save_failed")
    assert 0 < failed <= last


def test_who_cannot_save_in_time_leaves_in_time_and_says_so(stream: Stream, tmp_path: Path) -> None:
    """Goal: 75 means saved. Method: the second save is held up for two minutes, and the grace is a second and a half."""
    with _started(stream, tmp_path, PENSTOCK_POINTS="state.captured=hold:120@2") as process:
        _until_step(process, 5)
        os.kill(process.pid, signal.SIGTERM)
        _, said = process.communicate(timeout=60)
    assert process.returncode == EXIT_UNSAVED, said
    assert saved(tmp_path) == [0]
    assert [entry.facts["committed"] for entry in journal.read(tmp_path) if entry.kind == "end"] == [False]


FULL = """
import os, sys
import penstock as ps
from pathlib import Path
from penstock.state.save.options import Failure
from tests.run.small import make, train
from tests.torch.stream import Stream
disk = Path(sys.argv[2])
place = ps.Checkpoints(disk / "checkpoints", failure=Failure(retries=0, then="continue"))
run = make(Stream(Path(sys.argv[1])), disk / "run", ps.RunPolicy(save_every=4, stop_at=40), checkpoints=place)

def at(step):
    if step == 9:
        with open(disk / "filler", "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(1 << 16))
            except OSError:
                pass
            try:
                while True:
                    file.write(bytes(1))
            except OSError:
                pass
        run.note("the disk is full", free=os.statvfs(disk).f_bavail)
    if step == 30:
        (disk / "filler").unlink()

train(run, at=at)
from penstock.run.journal import journal
from penstock.run.journal import step_records as records
told = [(each.kind, each.step) for each in journal.read(disk / "run")]
assert ("note", 9) in told and ("commit", 40) in told and told[-1][0] == "end", told
assert [step for kind, step in told if kind == "save_failed"], told
assert list(records.read(disk / "run")) == list(range(40))
print("whole")
"""


def test_a_disk_that_is_full_for_a_while_costs_checkpoints_and_nothing_else(
    stream: Stream, tmp_path: Path
) -> None:
    """Goal: then="continue" means it. Method: a tmpfs that is full to the last byte from step 9 to step 30."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = (
        f"mount -t tmpfs -o size=8m none {place} && exec {sys.executable} -c '{FULL}' {stream.folder} {place}"
    )
    done = subprocess.run(
        ["unshare", "--map-root-user", "--mount", "sh", "-c", mounted],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.stdout.endswith("whole\n"), done.stderr
    assert "kept until there is room" in done.stderr


def test_a_run_that_was_replaced_stops_within_seconds(stream: Stream, tmp_path: Path) -> None:
    """Goal: S2 is noticed before the next save. Method: another incarnation begins while a run without saves goes on."""
    with ps.Checkpoints(tmp_path / "place", watch_s=0.05) as checkpoints:
        run = make(stream, tmp_path / "run", policy(stop_at=1_000_000), checkpoints=checkpoints)

        def at(step: int) -> None:
            if step == 4:
                checkpoints.wait()
                with ps.Checkpoints(tmp_path / "place") as other:
                    other.begin(start())
            Clock().pause(0.005)

        with pytest.raises(errors.Fenced):
            train(run, at=at)
