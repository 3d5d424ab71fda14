"""The loop: what it does about bad values, notices and errors, and that every decision holds in later lives (R2)."""

import itertools
import math
import os
import random
import signal
from pathlib import Path

import numpy as np
import pytest

import penstock as ps
from penstock import errors, events
from penstock.run import EXIT_LEFT, Leave, Policy, Spike
from penstock.run.journal import journal
from penstock.run.journal import step_records as records
from tests.run.comparing import first_difference, kinds
from tests.run.small import Fault, make, start, train, update
from tests.torch.stream import Stream

STEPS = 16


def policy(**more: object) -> Policy:
    options = {"keep": ps.Keep(every=1), **more}
    return Policy(save_every=4, stop_at=STEPS, digest_every=1, **options)  # type: ignore[arg-type]


def verdicts(directory: Path) -> list[tuple[int | None, str]]:
    return [(e.step, e.facts["action"]) for e in journal.read(directory) if e.kind == "verdict"]


def test_a_run_reads_as_a_story(stream: Stream, tmp_path: Path) -> None:
    run = make(stream, tmp_path, policy())

    state, executed = train(run)

    assert executed == list(range(STEPS))
    assert state["taken"] == STEPS
    sequence = kinds(tmp_path)
    assert sequence[:2] == ["start", "restore"]
    assert sequence[-1] == "end"
    assert [e.step for e in journal.read(tmp_path) if e.kind == "commit"] == [0, 4, 8, 12, 16]
    assert [e.step for e in journal.read(tmp_path) if e.kind == "weights"] == [4]
    facts = journal.read(tmp_path)[0].facts
    assert {"command", "seed", "recipe", "policy", "pinned", "unpinned", "threads"} <= set(facts)
    assert events.statistics() is None
    (recording,) = (tmp_path / "events").iterdir()
    seen = [event.kind for event in events.read(recording)]
    assert seen.count("run.step") == seen.count("run.report") == STEPS
    assert {"run.data", "run.capture", "data.wait"} <= set(seen)


def test_a_finished_run_has_nothing_left_to_do(stream: Stream, tmp_path: Path) -> None:
    state, _ = train(make(stream, tmp_path, policy()))
    again, executed = train(make(stream, tmp_path, policy()))
    assert executed == []
    assert np.array_equal(again["weights"], state["weights"])


def test_batches_and_state_go_on_where_they_were(stream: Stream, tmp_path: Path) -> None:
    """Goal: R1 without a kill. Method: stop a run four times at other steps, by policy and by `break`."""
    whole, _ = train(make(stream, tmp_path / "whole", policy()))
    for stop in (3, 7, 9):
        train(make(stream, tmp_path / "parts", Policy(save_every=4, stop_at=stop, digest_every=1)))
    run, state = make(stream, tmp_path / "parts", policy()), start()
    for step, batch in run.steps(state):
        state["weights"] += update(run, state, batch)[1]
        if step == 10:
            break
    state, executed = train(make(stream, tmp_path / "parts", policy()))
    assert executed[0] == 9
    assert np.array_equal(state["weights"], whole["weights"])
    assert first_difference(tmp_path / "whole", tmp_path / "parts") == ""


def test_a_skipped_step_changes_nothing_and_stays_skipped(stream: Stream, tmp_path: Path) -> None:
    """Goal: R2. Method: a NaN at step 6 is skipped; a later life that goes over step 6 again finds no NaN and skips it all the same."""
    skip = policy(non_finite="skip")
    with pytest.raises(Fault):
        train(make(stream, tmp_path, skip), bad={6: math.nan}, at=lambda step: _fail_at(step, 7))
    state, executed = train(make(stream, tmp_path, skip))
    assert executed == list(range(4, STEPS))
    assert [e.facts["again"] for e in journal.read(tmp_path) if e.kind == "restore"] == [0, 3]
    assert state["taken"] == STEPS - 1
    assert verdicts(tmp_path) == [(6, "skip")]
    clean, _ = train(make(stream, tmp_path.with_name("clean"), skip), bad={6: math.nan})
    assert np.array_equal(state["weights"], clean["weights"])


def _fail_at(step: int, fatal: int) -> None:
    if step == fatal:
        raise Fault(f"at {step}")


@pytest.mark.parametrize("early", [True, False])
def test_going_back_leaves_steps_out(stream: Stream, tmp_path: Path, early: bool) -> None:
    """Goal: rollback and skip of the range. Method: a spike at step 10 takes steps 9 and 10 out; the run equals one that never had them."""
    spike = Spike(k=20, window=8, least=4, then="rollback", back=1)
    state, executed = train(make(stream, tmp_path / "a", policy(spike=spike)), bad={10: 1e6}, early=early)
    assert executed == [*range(11), 8, *range(11, STEPS)]
    assert ps.SkipJournal(tmp_path / "a/skips.jsonl").read().steps == ((9, 11),)

    ps.SkipJournal(tmp_path / "b/skips.jsonl").append("known before", steps=[(9, 11)])
    known, executed = train(make(stream, tmp_path / "b", policy(spike=spike)), early=early)
    assert executed == [*range(9), *range(11, STEPS)]
    assert np.array_equal(state["weights"], known["weights"])
    assert first_difference(tmp_path / "a", tmp_path / "b") == ""


def test_a_rollback_holds_after_a_kill_between_decision_and_checkpoint(
    stream: Stream, tmp_path: Path
) -> None:
    """Goal: R2. Method: the run fails right after it has gone back, before it saves: the next life must not take the undone past."""
    spike = policy(spike=Spike(k=20, window=8, least=4, then="rollback", back=3))
    with pytest.raises(Fault):
        train(
            make(stream, tmp_path / "a", spike),
            bad={9: 1e6},
            at=lambda step: _fail_at(step, 10),
        )
    state, executed = train(make(stream, tmp_path / "a", spike))
    assert executed == [4, 5, *range(10, STEPS)]
    ps.SkipJournal(tmp_path / "b/skips.jsonl").append("known before", steps=[(6, 10)])
    known, _ = train(make(stream, tmp_path / "b", spike))
    assert np.array_equal(state["weights"], known["weights"])
    behind = [
        checkpoint.step
        for checkpoint in ps.Checkpoints(tmp_path / "a/checkpoints").list()
        if checkpoint.damage
    ]
    assert behind == [8]


def test_steps_that_a_person_leaves_out_later_are_undone(stream: Stream, tmp_path: Path) -> None:
    """Goal: skips.jsonl is all that a person has to write. Method: after the run, leave out step 5 and start it again."""
    train(make(stream, tmp_path / "a", policy()))
    ps.SkipJournal(tmp_path / "a/skips.jsonl").append("it was spam", steps=[(5, 6)])
    state, executed = train(make(stream, tmp_path / "a", policy()))
    assert executed == [4, *range(6, STEPS)]
    ps.SkipJournal(tmp_path / "b/skips.jsonl").append("it was spam", steps=[(5, 6)])
    known, _ = train(make(stream, tmp_path / "b", policy()))
    assert np.array_equal(state["weights"], known["weights"])


def test_a_new_run_keeps_the_last_few_and_an_old_one_everything(
    stream: Stream, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Goal: disks do not fill up, and nothing that is counted on disappears. Method: a new run, one with a rollback that reaches far, and
    one that was begun by a release that kept everything."""

    def steps(directory: Path) -> list[int]:
        return [
            checkpoint.step for checkpoint in ps.Checkpoints(directory / "checkpoints", read_only=True).list()
        ]

    short = Policy(save_every=2, stop_at=STEPS)
    train(make(stream, tmp_path / "new", short))
    assert steps(tmp_path / "new") == [12, 14, 16]
    far = Policy(save_every=2, stop_at=STEPS, spike=Spike(k=1e9, then="rollback", back=7))
    train(make(stream, tmp_path / "far", far))
    assert steps(tmp_path / "far") == [6, 8, 10, 12, 14, 16]
    train(make(stream, tmp_path / "old", Policy(save_every=2, stop_at=6, keep=ps.Keep(every=1))))
    about = tmp_path / "old" / "run.json"
    about.write_text(about.read_text().replace('"keeps_few": true', '"keeps_few": false'))
    assert "keeps_few" in about.read_text()
    caplog.clear()
    for stop in (10, STEPS):
        train(make(stream, tmp_path / "old", Policy(save_every=2, stop_at=stop)))
    assert steps(tmp_path / "old") == list(range(0, STEPS + 1, 2))
    assert kinds(tmp_path / "old").count("retention") == 1
    assert [
        record.message for record in caplog.records if "all checkpoints were kept" in record.message
    ] != []
    train(make(stream, tmp_path / "old", Policy(save_every=2, stop_at=18, keep=ps.Keep(last=1))))
    assert steps(tmp_path / "old") == [18]


def test_a_run_begins_where_another_of_its_ranks_records_steps_already(
    stream: Stream, tmp_path: Path
) -> None:
    """Goal: a start does not depend on which rank is ahead. Method: the directory as a rank finds it that is behind, then a whole run."""
    (tmp_path / "steps").mkdir()
    train(make(stream, tmp_path, Policy(save_every=4, stop_at=STEPS)))
    assert ps.Checkpoints(tmp_path / "checkpoints", read_only=True).latest().step == STEPS


def test_nothing_to_go_back_to_is_an_error(stream: Stream, tmp_path: Path) -> None:
    keep = Policy(save_every=4, stop_at=STEPS, keep=ps.Keep(last=1))
    train(make(stream, tmp_path, keep))
    ps.SkipJournal(tmp_path / "skips.jsonl").append("too late", steps=[(5, 6)])
    with pytest.raises(errors.RollbackImpossible) as caught:
        train(make(stream, tmp_path, keep))
    assert (caught.value.step, caught.value.known) == (5, [16])


def test_a_replay_with_the_same_bits_skips(stream: Stream, tmp_path: Path) -> None:
    """Goal: replay tells data from hardware. Method: a NaN that is always there."""
    state, executed = train(make(stream, tmp_path, policy(non_finite="replay")), bad={6: math.nan})
    assert executed == [*range(7), 4, 5, 6, *range(7, STEPS)]
    assert verdicts(tmp_path) == [(6, "replay"), (6, "skip")]
    assert state["taken"] == STEPS - 1
    assert [e.facts["equal"] for e in journal.read(tmp_path) if e.kind == "replayed"] == [True]


@pytest.mark.parametrize("where", [5, 6])
def test_a_replay_with_other_bits_names_corruption(stream: Stream, tmp_path: Path, where: int) -> None:
    """Goal: silent corruption is named. Method: step 6 has a NaN the first time; at `where` the second execution differs."""
    bad = {6: math.nan}
    visits: list[int] = []

    def at(step: int) -> None:
        visits.append(step)
        if visits.count(step) == 2 and step == where:
            bad[step] = 1.2345

    with pytest.raises(errors.SilentCorruption) as caught:
        train(make(stream, tmp_path, policy(non_finite="replay")), bad=bad, at=at)
    assert (caught.value.step, caught.value.ranks) == (where, [0])
    with pytest.raises(errors.RunStopped, match="earlier life"):
        train(make(stream, tmp_path, policy(non_finite="replay")))


def test_a_replay_goes_on_after_a_kill(stream: Stream, tmp_path: Path) -> None:
    replay = policy(non_finite="replay")
    visits = itertools.count()
    run = make(stream, tmp_path, replay)
    with pytest.raises(Fault):
        train(run, bad={6: math.nan}, at=lambda step: _fail_at(next(visits), 8))
    _, executed = train(make(stream, tmp_path, replay), bad={6: math.nan})
    assert executed == list(range(4, STEPS))
    assert verdicts(tmp_path) == [(6, "replay"), (6, "skip")]


def test_a_stop_stands_until_the_rules_or_the_skips_change(stream: Stream, tmp_path: Path) -> None:
    with pytest.raises(errors.RunStopped, match="the loss is nan"):
        train(make(stream, tmp_path, policy()), bad={6: math.nan})
    with pytest.raises(errors.RunStopped, match="earlier life"):
        train(make(stream, tmp_path, policy()))
    ps.SkipJournal(tmp_path / "skips.jsonl").append("spam", steps=[(6, 7)])
    _, executed = train(make(stream, tmp_path, policy()), bad={6: math.nan})
    assert executed == [4, 5, *range(7, STEPS)]


def test_interventions_have_a_limit(stream: Stream, tmp_path: Path) -> None:
    limited = policy(non_finite="skip", interventions_max=2)
    with pytest.raises(errors.RunStopped, match="all 2 interventions are spent"):
        train(make(stream, tmp_path, limited), bad=dict.fromkeys((3, 5, 9), math.inf))
    assert verdicts(tmp_path) == [(3, "skip"), (5, "skip"), (9, "stop")]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_notice_saves_and_maybe_leaves(stream: Stream, tmp_path: Path, number: signal.Signals) -> None:
    """Goal: save now, leave by. Method: a real signal in step 5; SIGTERM ends the process with its own exit code."""
    before = signal.getsignal(number)
    run = make(stream, tmp_path, policy())
    send = lambda step: os.kill(os.getpid(), number) if step == 5 else None  # noqa: E731
    if number == signal.SIGTERM:
        with pytest.raises(Leave) as caught:
            train(run, at=send)
        assert (caught.value.code, caught.value.step) == (EXIT_LEFT, 6)
        ends = [e.facts for e in journal.read(tmp_path) if e.kind == "end"]
        assert ends == [{"how": "left", "committed": True}]
    else:
        train(run, at=send)
    assert 6 in [checkpoint.step for checkpoint in ps.Checkpoints(tmp_path / "checkpoints").list()]
    assert [e.facts["reason"] for e in journal.read(tmp_path) if e.kind == "notice"] == [number.name]
    assert signal.getsignal(number) == before


def test_two_loops_over_checkpoints_that_stay_open(stream: Stream, tmp_path: Path) -> None:
    """Goal: `checkpoints=` may be the caller's own. Method: two loops of one process over the same object, which are one life."""
    with ps.Checkpoints(tmp_path / "elsewhere") as checkpoints:
        for stop in (5, 9):
            stopping = Policy(save_every=4, stop_at=stop)
            train(make(stream, tmp_path / "run", stopping, checkpoints=checkpoints))
        assert [checkpoint.step for checkpoint in checkpoints.list()] == [0, 4, 5, 8, 9]
    assert {step.incarnation for step in records.read(tmp_path / "run").values()} == {0}
    assert list(records.read(tmp_path / "run")) == list(range(9))


def test_the_clock_saves_too(stream: Stream, tmp_path: Path) -> None:
    """Goal: save_every_s. Method: so short that every step is late."""
    train(make(stream, tmp_path, Policy(save_every=None, save_every_s=1e-9, stop_at=4)))
    assert [e.step for e in journal.read(tmp_path) if e.kind == "commit"] == [0, 1, 2, 3, 4]


def test_an_error_of_the_program_is_told_by_a_context(stream: Stream, tmp_path: Path) -> None:
    run, state = make(stream, tmp_path, policy()), start()

    def program() -> None:
        with run.steps(state) as steps:
            for step, _ in steps:
                run.note("half-way", place=step)
                raise Fault("mine")

    with pytest.raises(Fault):
        program()
    entries = journal.read(tmp_path)
    assert [e.facts for e in entries if e.kind == "note"] == [{"text": "half-way", "place": 0}]
    assert entries[-1].facts == {"how": "failed", "error": "Fault", "reason": "mine"}
    with pytest.raises(errors.UsageError, match="no step is under way"):
        run.report(loss=1.0)


def test_a_stream_that_ends_ends_the_run(stream: Stream, tmp_path: Path) -> None:
    finite = ps.Run(
        tmp_path, recipe=stream.finite(), registry=stream.registry, policy=Policy(save_every=1000)
    )
    steps = [step for step, _ in finite.steps(start())]
    last = ps.Checkpoints(tmp_path / "checkpoints").latest()
    assert last is not None
    assert last.step == len(steps) > 5
    assert list(ps.Run(tmp_path, recipe=stream.finite(), registry=stream.registry).steps(start())) == []


def test_generators_of_a_step_are_the_same_in_every_life(stream: Stream, tmp_path: Path) -> None:
    """Goal: no history in generators. Method: two lives over the same steps, one of which draws more from everything."""

    def drawn(directory: Path, extra: int) -> list[tuple[float, ...]]:
        run = make(stream, directory, Policy(stop_at=6))
        draws = []
        for _ in run.steps(start()):
            private = [
                run.generator(domain).random() for domain in ("init", "data", "dropout", "user", "own")
            ]
            other = run.generator("user", kind="python").random()
            draws.append((random.random(), float(np.random.random()), other, *private))
            for _ in range(extra):
                random.random(), np.random.random()
        return draws

    one, other = drawn(tmp_path / "a", 0), drawn(tmp_path / "b", 5)
    assert one == other
    assert len({draw[0] for draw in one}) == 6
    assert len({draw[3] for draw in one}) == 1


def test_misuse_is_told(stream: Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make(stream, tmp_path, policy())
    with pytest.raises(errors.UsageError, match="no step is under way"):
        run.accept(1.0)
    state = start()
    for _ in run.steps(state):
        run.accept(1.0)
        with pytest.raises(errors.UsageError, match="already"):
            run.accept(1.0)
        with pytest.raises(errors.UsageError, match="under way"):
            run.steps(state)
        break
    other = ps.Run(tmp_path, recipe=stream.recipe(), registry=stream.registry, seed=4)
    with pytest.raises(errors.UsageError, match="begun with seed 3, not 4"):
        next(other.steps(state))
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(errors.UsageError, match="plain tree"):
        make(stream, tmp_path, policy()).steps(state)
    monkeypatch.setenv("RANK", "7")
    with pytest.raises(errors.UsageError, match="got rank 7 of 4"):
        make(stream, tmp_path, policy())


def test_records_say_what_was_trained_on(stream: Stream, tmp_path: Path) -> None:
    train(make(stream, tmp_path, policy()))
    batches = stream.batches(STEPS)
    steps = records.read(tmp_path)
    assert [steps[step].batch for step in range(STEPS)] == [batch.digest for batch in batches]
    assert all(whole.ranks[0].parameters for whole in steps.values())
