"""The diagnosis: every kind of cause is named where it is planted, with its place and its cost, and not where it is not (O4, O7)."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from penstock.observe.steps import UNMEASURED
from penstock.report.diagnosis.cause import Cause
from penstock.report.diagnosis.observation import middle_of, middle_of_others
from penstock.report.run_report import Evidence, RunReport, report_of
from tests.report.simulator import MS, Loop, stacks

#: Costs are known to a tenth.
NEAR = 0.1


def first(evidence: Evidence) -> Cause:
    """The cause that is named."""
    report = report_of(evidence)
    cause = report.diagnosis.first
    assert cause is not None, report.diagnosis.line
    assert report.diagnosis.line == cause.line(report.diagnosis.wall)
    return cause


def kinds(report: RunReport) -> set[str]:
    """Of all causes that cost enough to be named."""
    return {cause.kind for cause in report.diagnosis.causes if cause.cost * 20 >= report.diagnosis.wall}


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(("ranks", "has_device"), [(1, False), (1, True), (4, False)])
def test_a_clean_loop_has_no_cause(seed: int, ranks: int, has_device: bool) -> None:
    """The control of every kind."""
    report = report_of(Loop(seed=seed, ranks=ranks, has_device=has_device).evidence())
    assert report.diagnosis.verdict == "none"
    assert report.diagnosis.line.startswith("nothing avoidable costs 5 % of 1")
    assert kinds(report) == set()
    if has_device:
        assert "the device computes for 9" in report.diagnosis.line
    if ranks > 1:
        assert "slow inside of backward would not show" in report.diagnosis.line


@pytest.mark.parametrize(
    ("part", "kind", "words"),
    [
        ("data", "data", "a step spends 30.4 ms waiting for data"),
        ("transfer", "transfer", "a step spends 30.3 ms moving batches to the device"),
        ("eval", "evaluation", "a step spends 30 ms in evaluation"),
        ("gc", "gc", "a step spends 30 ms collecting garbage"),
        ("user", "own_code", "a step spends 30 ms in your own code"),
    ],
)
@pytest.mark.parametrize("has_device", [False, True])
def test_a_part_of_every_step_is_named(part: str, kind: str, words: str, has_device: bool) -> None:
    loop = Loop(has_device=has_device).plant(part, 30)
    cause = first(loop.evidence())
    assert cause.kind == kind
    assert cause.cost == pytest.approx(loop.total(), rel=NEAR)
    assert cause.sentence == words


@pytest.mark.parametrize("part", ["data", "user", "transfer", "gc", "eval"])
def test_the_period_of_a_part_is_named(part: str) -> None:
    loop = Loop().plant(part, 500, every=5)
    cause = first(loop.evidence())
    assert cause.sentence.startswith("every 5th step spends 500 ms ")
    assert cause.facts["period"] == 5
    assert cause.cost == pytest.approx(loop.total(), rel=NEAR)


def test_own_code_has_the_line_that_stacks_show() -> None:
    loop = Loop().plant("user", 500, every=5)
    loop.stacks = [
        *stacks(range(4, 200, 5), "/a/train.py:41 main"),
        *stacks(range(0, 200, 5), "/a/train.py:99 main"),
    ]
    cause = first(loop.evidence())
    assert cause.kind == "own_code"
    assert cause.place == "at train.py:41 `main`"
    assert cause.evidence == "40 of 40 stacks"


def test_a_period_is_named_beside_code_that_every_step_has() -> None:
    """Goal: what comes at a period and is most of it has its own cost. Method: the loop of a busy machine, whose every step has own code too."""
    loop = Loop().plant("user", 40)
    evenly = loop.total()
    cause = first(loop.plant("user", 250, every=5).evidence())
    assert cause.sentence.startswith("every 5th step spends 250 ms ")
    assert cause.cost == pytest.approx(loop.total() - evenly, rel=NEAR)
    even = first(Loop().plant("user", 80).plant("user", 250, every=5).evidence())
    assert even.sentence.startswith("a step spends 130 ms ")


@pytest.mark.parametrize("ranks", [1, 4])
def test_steps_that_are_slow_are_named_in_a_run_that_is_mostly_its_start(ranks: int) -> None:
    """Goal: a first try of ten steps is diagnosed as well. Method: a start of ten minutes before steps with a cause, with a small one, and without."""

    def late(loop: Loop) -> RunReport:
        evidence = loop.evidence()
        lives = [replace(one.lives[0], born=-600_000 * MS) for one in evidence.timelines]
        timelines = [replace(one, lives=(life,)) for one, life in zip(evidence.timelines, lives, strict=True)]
        return report_of(replace(evidence, timelines=tuple(timelines)))

    loop = Loop(ranks=ranks).plant("user", 60, rank=None if ranks == 1 else 2)
    report = late(loop)
    cause = report.diagnosis.first
    assert cause is not None
    assert cause.kind == ("own_code" if ranks == 1 else "slow_rank")
    assert report.diagnosis.line.startswith("47 % of 25 s: ")
    assert report.diagnosis.start == pytest.approx(600_200 * MS, rel=1e-3)
    assert report.faults == ("costs are shares of the 25 s after the start, which took 600 s",)
    for clean in (Loop(ranks=ranks), Loop(ranks=ranks).plant("user", 10)):
        nothing = late(clean)
        assert nothing.diagnosis.verdict == "none"
        assert "s, 600 s of which are the start: steps are " in nothing.diagnosis.line
        assert nothing.faults == ()


def test_slow_steps_do_not_speak_for_all() -> None:
    """A slow step is looked at fifty times a second, the others once."""
    loop = Loop().plant("user", 30)
    slow = stacks(range(100, 105), "/a/train.py:99 evaluate")
    often = [replace(sample, is_slow=True) for _ in range(40) for sample in slow]
    loop.stacks = [*stacks(range(100), "/a/train.py:41 main"), *slow, *often]
    cause = first(loop.evidence())
    assert cause.place == "at train.py:41 `main`"
    assert cause.evidence == "100 of 105 stacks"


@pytest.mark.parametrize("package", ["torch/utils/data/dataloader.py", "torchdata/nodes/base.py"])
def test_own_code_that_waits_for_a_loader_is_data(package: str) -> None:
    loop = Loop().plant("user", 30)
    frames = (
        "/usr/lib/python3.11/queue.py:180 get",
        f"/v/site-packages/{package}:9 next",
        "/a/train.py:41 main",
    )
    loop.stacks = stacks(range(100), *frames)
    cause = first(loop.evidence())
    assert cause.kind == "data"
    assert cause.sentence == "a step spends 30 ms waiting for data"
    assert cause.place == "at train.py:41 `main`"
    assert "workers" in cause.next_step


def test_a_folder_of_the_program_that_is_called_datasets_is_its_own_code() -> None:
    loop = Loop().plant("user", 30)
    loop.stacks = stacks(range(100), "/a/datasets/train.py:41 main")
    assert first(loop.evidence()).kind == "own_code"


def test_a_line_of_a_library_is_traced_to_the_program() -> None:
    loop = Loop().plant("user", 500, every=5)
    frames = (
        "/usr/lib/python3.11/threading.py:10 wait",
        "/v/site-packages/torch/x.py:3 f",
        "/a/train.py:41 main",
    )
    loop.stacks = stacks(range(4, 200, 5), *frames)
    assert first(loop.evidence()).place == "at train.py:41 `main`"
    loop.stacks = [replace(sample, source=("", "", "event.wait()")) for sample in loop.stacks]
    assert first(loop.evidence()).place == "at train.py:41 `event.wait()`"


def test_the_limiting_stage_of_the_feed_is_named() -> None:
    loop = Loop().plant("data", 30)
    loop.others = {
        "feed.plan": np.full(200, 1 * MS, np.int64),
        "feed.read": np.full(200, 80 * MS, np.int64),
        "feed.digest": np.full(200, 2 * MS, np.int64),
    }
    cause = first(loop.evidence())
    assert cause.place == "limited by feed stage `read`"
    assert "`read`" in cause.next_step
    loop.others["feed.map"] = np.full(200, 90 * MS, np.int64)
    assert first(loop.evidence()).place == "limited by feed stage `map`, maps of your own"


@pytest.mark.parametrize("part", ["forward", "optimizer", "rest", "judge"])
def test_steps_that_are_long_in_compute_are_a_stall_with_a_period(part: str) -> None:
    loop = Loop().plant(part, 300, every=10)
    cause = first(loop.evidence())
    assert cause.kind == "stall"
    assert cause.sentence == f"every 10th step takes 300 ms longer in {part}"
    assert cause.cost == pytest.approx(loop.total(), rel=NEAR)


def test_long_steps_without_a_period_have_none() -> None:
    loop = Loop()
    column = np.zeros(200, np.int64)
    column[[7, 19, 20, 68, 103, 150, 151, 190]] = 400 * MS
    loop.planted.append((None, "forward", column))
    cause = first(loop.evidence())
    assert cause.facts["period"] is None
    assert cause.sentence == "8 of 200 steps take 400 ms longer in forward"


def test_a_burst_of_long_steps_is_no_period() -> None:
    """Goal: a machine that is busy for a while does not make every step long."""
    loop = Loop()
    column = np.zeros(200, np.int64)
    column[80:110] = 400 * MS
    loop.planted.append((None, "forward", column))
    cause = first(loop.evidence())
    assert cause.facts["period"] is None
    assert cause.sentence == "30 of 200 steps take 400 ms longer in forward"


@pytest.mark.parametrize("part", ["data", "user", "forward", "transfer"])
def test_a_slow_rank_is_named_with_its_part(part: str) -> None:
    loop = Loop(ranks=4).plant(part, 30, rank=2)
    cause = first(loop.evidence())
    assert cause.kind == "slow_rank"
    assert (cause.facts["rank"], cause.facts["part"]) == (2, part)
    assert cause.sentence.startswith("rank 2 takes 30 ms longer a step than the others ")
    assert cause.cost == pytest.approx(loop.total(), rel=NEAR)
    assert cause.facts["others_wait_ns"] == pytest.approx(loop.total(), rel=NEAR)


def test_a_rank_that_is_slow_inside_of_backward_is_not_guessed() -> None:
    """Goal: all ranks leave a collective together, so nobody is blamed. Method: one rank of four stalls inside of backward."""
    loop = Loop(ranks=4).plant("backward", 300, every=10, rank=1)
    cause = first(loop.evidence())
    assert cause.kind == "stall"
    assert cause.place == "in backward, rank not known"


def test_what_all_ranks_do_is_no_slow_rank() -> None:
    cause = first(Loop(ranks=4).plant("data", 30).evidence())
    assert cause.kind == "data"


def test_checkpoints_have_the_interval_that_costs_one_percent() -> None:
    loop = Loop().plant("checkpoint", 66, every=2)
    cause = first(loop.evidence())
    assert cause.kind == "checkpoints"
    assert cause.sentence == "a checkpoint every 2 steps holds up training for 66 ms"
    assert cause.cost == pytest.approx(loop.total(), rel=NEAR)
    interval = cause.facts["one_percent_steps"]
    assert isinstance(interval, int)
    # 66 ms are one percent of 99 steps of 66.4 ms and the save itself.
    assert 96 <= interval <= 101
    control = report_of(Loop().plant("checkpoint", 66, every=interval).evidence())
    assert control.diagnosis.verdict == "none"


def test_padding_is_named() -> None:
    loop = Loop()
    loop.others = {"tokens": np.full(200, 3000, np.int64), "padding": np.full(200, 1000, np.int64)}
    cause = first(loop.evidence())
    assert cause.kind == "padding"
    assert cause.cost == pytest.approx(200 * 15 * MS, rel=NEAR)
    loop.others["padding"] = np.full(200, 100, np.int64)
    assert report_of(loop.evidence()).diagnosis.verdict == "none"


@pytest.mark.parametrize("every", [8, 60])
def test_allocator_retries_are_named(every: int) -> None:
    """Method: a counter that grows and is looked at once a second, as it is recorded; nobody has looked in the first second."""
    loop = Loop().plant("rest", 400, every=every)
    retries = np.zeros(200, np.int64)
    retries[every - 1 :: every] = 1
    (timeline,) = loop.evidence().timelines
    steps = timeline.lives[0].steps
    seconds = (steps.ends - steps.begins[0]) // (1000 * MS)
    looks = np.searchsorted(seconds, seconds, side="left")
    counter = 5 + np.concatenate([[0], np.cumsum(retries)])[looks]
    loop.others = {"allocator_retries": np.where(seconds == 0, UNMEASURED, counter)}
    report = report_of(loop.evidence())
    allocator = next(cause for cause in report.diagnosis.causes if cause.kind == "allocator")
    # What nobody has looked at after the last retries is not known.
    unseen = int(retries.sum()) - (int(counter[-1]) - int(counter[seconds > 0][0]))
    assert allocator.facts["retries"] == retries.sum() - unseen
    assert allocator.cost == pytest.approx(loop.total() * (retries.sum() - unseen) / retries.sum(), rel=NEAR)
    assert report.memory["allocator_retries"] == retries.sum() - unseen
    if every == 8:
        assert report.diagnosis.first is allocator
    # The control: what was counted before the first step, and never again.
    loop.others = {"allocator_retries": np.full(200, 5, np.int64)}
    assert "allocator" not in kinds(report_of(loop.evidence()))
    assert report_of(loop.evidence()).memory["allocator_retries"] == 0


def test_a_host_that_launches_too_slowly_is_named() -> None:
    loop = Loop(has_device=True)
    loop.others = {"device.idle": np.full(200, 25 * MS, np.int64)}
    cause = first(loop.evidence())
    assert cause.kind == "host_bound"
    assert cause.cost == pytest.approx(200 * 25 * MS, rel=NEAR)


def test_what_the_host_does_while_the_device_computes_costs_nothing() -> None:
    """Goal: no false cause on a device that is never idle. Method: a host that waits for data beside it."""
    loop = Loop(has_device=True).plant("data", 30)
    loop.others = {"device.idle": np.zeros(200, np.int64)}
    assert report_of(loop.evidence()).diagnosis.verdict == "none"


def test_own_code_is_no_cause_where_the_model_is_part_of_it() -> None:
    """Goal: without hooks the body of the loop is one part, and its usual length is no cost; steps that are longer are."""

    def unhooked(loop: Loop) -> Evidence:
        evidence = loop.evidence()
        (timeline,) = evidence.timelines
        (life,) = timeline.lives
        parts = dict(life.steps.parts)
        body = ("forward", "backward", "optimizer", "transfer")
        parts["user"] = parts["user"] + sum((parts[part] for part in body), np.zeros(loop.steps, np.int64))
        for part in body:
            parts[part] = np.full(loop.steps, UNMEASURED, np.int64)
        steps = replace(life.steps, parts=parts)
        return replace(evidence, timelines=(replace(timeline, lives=(replace(life, steps=steps),)),))

    assert report_of(unhooked(Loop())).diagnosis.verdict == "none"
    loop = Loop().plant("user", 500, every=5)
    cause = first(unhooked(loop))
    assert cause.kind == "own_code"
    assert cause.sentence == "every 5th step spends 500 ms in your own code"
    assert cause.cost == pytest.approx(loop.total(), rel=NEAR)


def restarted(cost_ns: int, **span: Any) -> dict[str, Any]:
    """A timeline with a death in the middle."""
    step = 100 * MS
    early = [[number, number * step, (number + 1) * step] for number in range(50)]
    start = 50 * step + cost_ns
    late = [[50 + number, start + number * step, start + (number + 1) * step] for number in range(50)]
    data = [["data", at, at + MS] for _, at, _ in (*early, *late)]
    return {
        "form": 1,
        "rank": 0,
        "lives": [
            {"resumed": [[0, 0]], "steps": early, "died": 50 * step, "phases": data[:50]},
            {"born": 50 * step, "resumed": [[start, 50]], "steps": late, "phases": data[50:], **span},
        ],
    }


def test_restarts_and_compiling_are_named() -> None:
    from penstock.report.accounts.timeline_form import timelines_of

    def report(document: dict[str, Any]) -> RunReport:
        return report_of(Evidence("timeline", tuple(timelines_of(document))))

    dear = report(restarted(2000 * MS))
    cause = dear.diagnosis.first
    assert cause is not None
    assert (cause.kind, cause.cost) == ("restarts", 2000 * MS)
    assert report(restarted(100 * MS)).diagnosis.verdict == "none"
    compiled = restarted(100 * MS)
    compiled["lives"][1]["phases"] = [["compile", 5100 * MS, 5900 * MS]]
    cause = report(compiled).diagnosis.first
    assert cause is not None
    assert (cause.kind, cause.cost) == ("compiling", 800 * MS)


def test_it_abstains_where_rows_are_missing() -> None:
    """Goal: O7. Method: no rows, rows without parts, and many lost rows."""
    evidence = Loop().plant("data", 30).evidence()
    assert report_of(replace(evidence, lost_rows=100)).diagnosis.line == (
        "no diagnosis: 100 of 300 rows of steps were lost"
    )
    assert report_of(replace(evidence, lost_rows=5)).diagnosis.verdict == "named"
    nothing = report_of(replace(evidence, timelines=(), faults=("steps/a.pst at byte 0: torn",)))
    assert (
        nothing.diagnosis.line == "no diagnosis: no rows of steps were recorded (steps/a.pst at byte 0: torn)"
    )
    (timeline,) = evidence.timelines
    bare = replace(timeline.lives[0].steps, parts={})
    lives = (replace(timeline.lives[0], steps=bare),)
    unknown = report_of(replace(evidence, timelines=(replace(timeline, lives=lives),)))
    assert unknown.diagnosis.verdict == "abstains"


def test_the_same_input_gives_the_same_bytes() -> None:
    """O4."""
    loop = Loop(ranks=4).plant("data", 30, rank=2).plant("gc", 60, every=7)
    one, other = loop.evidence(), loop.evidence()
    shuffled = replace(other, timelines=tuple(reversed(other.timelines)))
    assert json.dumps(report_of(one).to_json()) == json.dumps(report_of(shuffled).to_json())


def test_some_steps_and_one_rank_can_be_looked_at() -> None:
    loop = Loop(ranks=2).plant("data", 30, rank=1)
    assert first(loop.evidence()).kind == "slow_rank"
    alone = report_of(loop.evidence(), rank=1)
    assert alone.diagnosis.first is not None
    assert alone.diagnosis.first.kind == "data"
    some = report_of(loop.evidence(), range(10, 20))
    assert some.speed["steps"] == 10
    assert some.diagnosis.wall < 2 * 10 * 100 * MS
    assert report_of(loop.evidence(), range(1000, 2000)).diagnosis.verdict == "abstains"


def test_own_code_is_shown_by_stacks_that_were_taken_in_it() -> None:
    """Stacks of an evaluation, which has an account of its own, say nothing about the rest of the loop."""
    loop = Loop().plant("user", 30)
    inside = [replace(sample, part="user") for sample in stacks(range(0, 200, 4), "/a/train.py:41 main")]
    beside = [replace(sample, part="eval") for sample in stacks(range(1, 200, 2), "/a/train.py:99 evaluate")]
    loop.stacks = sorted([*inside, *beside], key=lambda sample: sample.at)
    cause = first(loop.evidence())
    assert cause.place == "at train.py:41 `main`"
    assert cause.evidence == "50 of 50 stacks"


@pytest.mark.parametrize("ranks", range(2, 10))
def test_the_middle_of_the_others_is_found_without_looking_at_each_rank_alone(ranks: int) -> None:
    """Goal: 64 ranks cost one look. Method: against leaving each rank out in turn, with many equal values."""
    values = np.random.default_rng(ranks).integers(0, 5, (ranks, 300))
    alone = [np.sort(np.delete(values, rank, axis=0), axis=0)[(ranks - 2) // 2] for rank in range(ranks)]

    assert np.array_equal(middle_of_others(values), np.stack(alone))
    assert np.array_equal(middle_of(values), np.sort(values, axis=0)[(ranks - 1) // 2])
