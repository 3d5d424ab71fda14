"""Incarnations and agreement: one life of the run at a time, and all of its ranks on the same checkpoint."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from penstock.errors import (
    CheckpointDamaged,
    CommitsUnseen,
    Fenced,
    PenstockError,
    RanksMissing,
    ResumeFailed,
    StoreFailed,
    UsageError,
)
from penstock.state.log.commit import quarantine
from penstock.state.log.history import Committed
from penstock.state.log.incarnation import Member, fence
from penstock.state.log.log import Log
from penstock.state.log.prune import prune
from penstock.state.log.retention import Keep
from penstock.state.ranks.agreement import Agreed, agree
from penstock.state.ranks.clock import PAUSE_MAX_S, PAUSE_MIN_S, Clock, Wait
from penstock.store import Store
from tests.state.processes import end, go, ready, said, start
from tests.state.savers import begin, files_of, load, must_save, save


class Time:
    """A clock that a test moves: pausing takes no time, and is remembered."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.pauses: list[float] = []
        self.on_pause: Callable[[], object] = lambda: None

    def pause(self, seconds: float) -> None:
        self.now_s += seconds
        self.pauses.append(seconds)
        self.on_pause()

    @property
    def clock(self) -> Clock:
        return Clock(now=lambda: self.now_s, ticks=lambda: self.now_s, pause=self.pause)


def in_threads(ranks: int, work: Callable[[int], Any]) -> list[Any]:
    """What each rank returned or raised; all of them run at once, in one process."""
    answers: dict[int, Any] = {}

    def run(rank: int) -> None:
        try:
            answers[rank] = work(rank)
        except PenstockError as problem:
            answers[rank] = problem

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return [answers[rank] for rank in range(ranks)]


def damage(store: Store, name: str) -> None:
    data = store.get(name)
    store.delete(name)
    store.put_if_absent(name, data[:7] + bytes([data[7] ^ 1]) + data[8:])


def test_pauses_grow_and_end_at_the_deadline() -> None:
    time = Time()
    wait = Wait(20.0, time.clock)
    looks = 0
    while wait.again():
        looks += 1
    assert time.pauses[0] == PAUSE_MIN_S
    assert max(time.pauses) == PAUSE_MAX_S
    assert time.pauses[:-1] == sorted(time.pauses[:-1])
    assert sum(time.pauses) == pytest.approx(20.0)
    assert looks < 40


def test_incarnations_are_counted_and_recognised(store: Store) -> None:
    log = Log(store)
    assert fence(log, Member(0, 2, "a")).incarnation == 0
    assert fence(Log(store), Member(0, 2, "a")).incarnation == 0
    assert fence(Log(store), Member(1, 2, "a")).incarnation == 0
    assert fence(Log(store), Member(0, 3, "b", incarnation=5)).incarnation == 5
    assert fence(Log(store), Member(2, 3, "", incarnation=5)) == Member(2, 3, "b", 5)
    assert begin(log).incarnation == 6
    assert [entry.ranks for _, entry in log.read().fences()] == [2, 3, 1]


@pytest.mark.parametrize(
    "member",
    [
        Member(0, 1, "late", incarnation=5),
        Member(0, 1, "late", incarnation=3),
        Member(1, 2, "late", incarnation=5),
        Member(1, 2, "", incarnation=4),
        Member(0, 1, "first"),
        Member(1, 2, "second", incarnation=7),
    ],
)
def test_an_incarnation_below_or_beside_another_is_fenced(memory: Store, member: Member) -> None:
    log = Log(memory)
    fence(log, Member(0, 1, "first"))
    fence(log, Member(0, 2, "second", incarnation=7))
    fence(log, Member(0, 1, "third", incarnation=9))
    with pytest.raises(Fenced) as caught:
        fence(Log(memory), member)
    assert caught.value.newer == 9
    assert log.read().length == 3


def test_ranks_wait_for_rank_0_and_name_it_when_it_does_not_come(memory: Store) -> None:
    time = Time()
    with pytest.raises(RanksMissing, match="nothing was heard of rank 0") as caught:
        fence(Log(memory), Member(1, 4, "a"), deadline_s=30, clock=time.clock)
    assert caught.value.missing == [0]
    time.on_pause = lambda: fence(Log(memory), Member(0, 4, "a"))
    assert fence(Log(memory), Member(1, 4, "a"), deadline_s=30, clock=time.clock).incarnation == 0


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Member(4, 4, "a"),
        lambda: Member(-1, 4, "a"),
        lambda: Member(0, 1, ""),
        lambda: Member(1, 2, ""),
        lambda: Member(0, 1, "a", incarnation=-1),
    ],
)
def test_members_that_make_no_sense_are_refused(wrong: Callable[[], Member]) -> None:
    with pytest.raises(UsageError):
        wrong()


def test_a_token_of_a_start_with_other_ranks_is_refused(memory: Store) -> None:
    fence(Log(memory), Member(0, 4, "a"))
    with pytest.raises(UsageError, match="counts 2 ranks, but incarnation 0 has 4"):
        fence(Log(memory), Member(1, 2, "a"))


def test_a_replaced_incarnation_commits_nothing(store: Store) -> None:
    """Goal: S2. Method: the old one saves, its successor begins, the old one saves a later step."""
    log = Log(store)
    old = begin(log)
    must_save(log, old, 1)
    new = begin(Log(store))
    with pytest.raises(Fenced, match="incarnation 0 was replaced by 1"):
        save(log, old, 9)
    must_save(Log(store), new, 2)
    assert [committed.step for committed in Log(store).read().checkpoints()] == [1, 2]


def test_a_state_loaded_before_others_committed_is_not_saved_over_them(store: Store) -> None:
    """Goal: what was committed between load and fence is not lost. Method: load, let the old incarnation commit, fence, save."""
    log = Log(store)
    old = begin(log)
    must_save(log, old, 1)
    seen = Log(store).read().length
    must_save(log, old, 2)
    new = begin(log)
    with pytest.raises(CommitsUnseen, match="step 2") as caught:
        save(log, new, 2, seen=seen)
    assert caught.value.steps == [2]
    seen = log.read().length
    must_save(log, new, 3, seen=seen)
    must_save(log, new, 4, seen=seen)


def test_all_ranks_resume_from_the_newest_one(store: Store) -> None:
    log = Log(store)
    old = begin(log, ranks=3)
    for step in (10, 20):
        must_save(log, old, step)
    new = begin(log, ranks=3)
    loaded: list[tuple[int, int]] = []

    def work(rank: int) -> Agreed:
        own = Member(rank, 3, new.token, new.incarnation)
        return agree(Log(store), own, lambda committed: loaded.append((rank, committed.step)), deadline_s=30)

    answers = in_threads(3, work)
    assert [
        answer.checkpoint.step for answer in answers if isinstance(answer, Agreed) and answer.checkpoint
    ] == [20] * 3
    assert sorted(loaded) == [(0, 20), (1, 20), (2, 20)]


def test_all_ranks_agree_that_there_is_nothing(store: Store) -> None:
    new = begin(Log(store), ranks=2)

    def work(rank: int) -> Agreed:
        return agree(Log(store), Member(rank, 2, new.token, 0), pytest.fail, deadline_s=30)

    assert in_threads(2, work) == [Agreed(None, 0, 1)] * 2


@pytest.mark.parametrize("where", [0, 2])
def test_damage_that_one_rank_sees_moves_all_ranks(store: Store, where: int) -> None:
    """Goal: S5. Method: a bit is flipped in the file that only one rank reads, in the two newest checkpoints."""
    log = Log(store)
    old = begin(log, ranks=3)
    for step in (10, 20, 30):
        must_save(log, old, step)
    for step in (20, 30):
        damage(store, f"data/0/{step}-0/{where}.safetensors")
    new = begin(log, ranks=3)

    def work(rank: int) -> Agreed:
        own = Member(rank, 3, new.token, new.incarnation)
        return agree(Log(store), own, lambda committed: load(store, committed, rank), deadline_s=30)

    for answer in in_threads(3, work):
        assert isinstance(answer, Agreed)
        assert answer.checkpoint is not None
        assert (answer.checkpoint.step, answer.choice) == (10, 2)
    bad = log.read().quarantined()
    assert [committed.step for committed in bad] == [20, 30]
    assert all("not the bytes that were saved" in committed.damage for committed in bad)


def test_an_incarnation_can_agree_again(memory: Store) -> None:
    """Goal: going back in the middle of a run. Method: a second agreement begins after the first, with another choice."""
    log = Log(memory)
    member = begin(log)
    for step in (10, 20, 30):
        must_save(log, member, step)
    first = agree(log, member, lambda committed: None)
    second = agree(
        log,
        member,
        lambda committed: None,
        first=first.choice + 1,
        choose=lambda history: history.at_step(10),
    )
    assert first.checkpoint is not None
    assert second.checkpoint is not None
    assert (first.checkpoint.step, second.checkpoint.step) == (30, 10)
    assert (first.choice, second.choice) == (0, 1)


def test_trouble_of_the_store_is_no_damage(memory: Store) -> None:
    log = Log(memory)
    member = begin(log)
    must_save(log, member, 10)

    def fail(_: Committed) -> None:
        raise StoreFailed(verb="read", url="s3://a/b", reason="timed out")

    with pytest.raises(StoreFailed):
        agree(log, member, fail)
    assert [committed.step for committed in log.read().good()] == [10]


def test_trouble_of_one_rank_ends_the_others_at_once(memory: Store) -> None:
    new = begin(Log(memory), ranks=2)
    must_save(Log(memory), new, 10)

    def fail(_: Committed) -> None:
        raise StoreFailed(verb="read", url="s3://a/b", reason="timed out")

    with pytest.raises(StoreFailed):
        agree(Log(memory), Member(1, 2, new.token, 0), fail)
    with pytest.raises(ResumeFailed, match=r"rank 1 could not load: .* timed out"):
        agree(Log(memory), new, lambda committed: None, deadline_s=30, clock=Time().clock)


@pytest.mark.parametrize("rank", [0, 1, 3])
def test_ranks_that_do_not_report_are_named(memory: Store, rank: int) -> None:
    new = begin(Log(memory), ranks=4)
    for other in (0, 3):
        if other != rank:
            memory.put_if_absent(f"resume/0/0/{other}.json", b'{"rank": 0, "good": true}')
    with pytest.raises(RanksMissing) as caught:
        agree(Log(memory), Member(rank, 4, new.token, 0), pytest.fail, deadline_s=30, clock=Time().clock)
    assert caught.value.missing == sorted({0, 1, 2, 3} - {0, 3, rank})


def test_rank_0_is_named_when_only_the_verdict_is_missing(memory: Store) -> None:
    new = begin(Log(memory), ranks=2)
    memory.put_if_absent("resume/0/0/0.json", b'{"rank": 0, "good": true}')
    with pytest.raises(RanksMissing) as caught:
        agree(Log(memory), Member(1, 2, new.token, 0), pytest.fail, deadline_s=30, clock=Time().clock)
    assert caught.value.missing == [0]


def test_waiting_ranks_notice_their_successor(memory: Store) -> None:
    """Goal: a rank does not return, or wait to its deadline, when it was replaced; also when what its incarnation put down was
    deleted."""
    new = begin(Log(memory), ranks=2)
    time = Time()

    def replace_it() -> None:
        log = Log(memory)
        begin(log)
        prune(log, Keep())

    time.on_pause = replace_it
    with pytest.raises(Fenced, match="incarnation 0 was replaced by 1"):
        agree(Log(memory), Member(1, 2, new.token, 0), pytest.fail, deadline_s=1e6, clock=time.clock)
    with pytest.raises(Fenced):
        agree(Log(memory), Member(0, 2, new.token, 0), pytest.fail)


def test_ranks_agree_even_if_somebody_quarantines_meanwhile(memory: Store) -> None:
    """Goal: the reports decide, not what the log says at the moment each rank looks. Method: all ranks have loaded, rank 0 has
    returned, then a check from outside quarantines the checkpoint, and only then rank 1 looks."""
    log = Log(memory)
    old = begin(log, ranks=2)
    must_save(log, old, 10)
    number = must_save(log, old, 20).number
    new = begin(log, ranks=2)
    memory.put_if_absent(f"resume/{new.incarnation}/0/1.json", b'{"rank": 1, "good": true}')
    assert agree(log, new, lambda committed: None).checkpoint is not None
    quarantine(log, number, "found by somebody else", rank=-1, at=0.0)
    answer = agree(Log(memory), Member(1, 2, new.token, new.incarnation), lambda committed: None)
    assert answer.checkpoint is not None
    assert answer.checkpoint.step == 20


def test_a_document_that_is_damaged_is_named(memory: Store) -> None:
    member = begin(Log(memory))
    memory.put_if_absent("resume/0/0.json", b"{")
    with pytest.raises(CheckpointDamaged, match=r"resume/0/0\.json"):
        agree(Log(memory), member, pytest.fail)


@pytest.mark.parametrize("store", ["directory", "s3"], indirect=True)
def test_four_processes_of_which_one_sees_damage_resume_together(store: Store) -> None:
    log = Log(store)
    old = begin(log, ranks=4)
    for step in (10, 20):
        must_save(log, old, step)
    damage(store, "data/0/20-0/2.safetensors")
    ranks = [start("resume", store, rank, 4, "second", 60) for rank in range(4)]
    ready(*ranks)
    assert end(*ranks) == [{"incarnation": 1, "step": 10, "choice": 1}] * 4
    assert [(committed.step, committed.good) for committed in log.read().checkpoints()] == [
        (10, True),
        (20, False),
    ]


def test_processes_name_a_rank_that_never_comes(local: Store) -> None:
    ranks = [start("resume", local, rank, 3, "first", 1.0) for rank in (0, 1)]
    ready(*ranks)
    for rank, answer in enumerate(end(*ranks)):
        assert answer["error"] == "RanksMissing"
        # However slow the other one is, nobody is missing to itself, and the last rank is missing to all.
        assert 2 in answer["missing"]
        assert rank not in answer["missing"]


@pytest.mark.parametrize("store", ["directory", "s3"], indirect=True)
def test_of_two_incarnations_at_once_one_commits(store: Store) -> None:
    """Goal: S2 between processes. Method: two incarnations start at the same moment, and each saves after both have resumed
    or been refused."""
    both = [start("resume", store, 0, 1, token, 30, 100 + at) for at, token in enumerate(["left", "right"])]
    ready(*both)
    resumed = [said(process) for process in both]
    for process, answer in zip(both, resumed, strict=True):
        if "error" not in answer:
            go(process)
    for process in both:
        process.wait(60)
    outcomes = []
    for process, answer in zip(both, resumed, strict=True):
        outcomes.append(answer if "error" in answer else said(process))
        process.communicate(timeout=60)
    refused = [outcome for outcome in outcomes if outcome.get("error") == "Fenced"]
    assert len(refused) == 1
    history = Log(store).read()
    assert history.incarnation == 1
    assert [committed.commit.incarnation for committed in history.checkpoints()] == [1]


def test_a_zombie_that_commits_a_later_step_after_its_successor_resumed_is_refused(local: Store) -> None:
    """Goal: S2. Method: a process resumes and stays; another incarnation resumes from the same checkpoint and goes on; then the
    first one tries to commit a step that is further."""
    log = Log(local)
    must_save(log, begin(log), 10)
    zombie = start("resume", local, 0, 1, "zombie", 30, 500)
    ready(zombie)
    assert said(zombie) == {"incarnation": 1, "step": 10, "choice": 0}
    successor = start("resume", local, 0, 1, "successor", 30, 20)
    ready(successor)
    assert said(successor)["step"] == 10
    go(zombie)
    (refused,) = end(zombie)
    assert refused["error"] == "Fenced"
    go(successor)
    end(successor)
    history = log.read()
    assert [committed.step for committed in history.checkpoints()] == [10, 20]
    assert all(
        name.startswith(("data/0/", "data/2/"))
        for committed in history.good()
        for name in files_of(local, committed)
    )
