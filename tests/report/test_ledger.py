"""The ledger: O1 (accounts are disjoint and sum exactly), O4 (pure), O7 (unknown is never 0), against a painter of nanoseconds."""

import json
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import TimelineInvalid
from penstock.report.accounts.account_names import ACCOUNTS, PARTS, SPAN_ACCOUNTS, STEP_PARTS
from penstock.report.accounts.ledger import Ledger, ledger_from, ledger_of
from penstock.report.accounts.timeline import (
    UNMEASURED,
    LifeTimeline,
    Marks,
    RankTimeline,
    Spans,
    StepColumns,
)
from tests.report.painter import last, paint

SPAN_NAMES = (*SPAN_ACCOUNTS, *STEP_PARTS)


def life_by_chance(chance: random.Random, start: int) -> dict[str, Any]:
    """One that may have happened: any moment may be missing, any step torn, any span anywhere."""
    clock = start
    life: dict[str, Any] = {}

    def later() -> int:
        nonlocal clock
        clock += chance.randint(0, 4)
        return clock

    for name in ("requested", "born", "joined"):
        if chance.random() < 0.5:
            life[name] = later()
    marks, steps = [], []
    number = chance.randint(0, 6)
    if chance.random() < 0.8:
        marks.append([later(), number])
    for _ in range(chance.randint(0, 6)):
        what = chance.randint(0, 9)
        if what == 0:
            number = max(0, number - chance.randint(0, 4))
            marks.append([later(), number])
        elif what == 1:
            number = chance.randint(0, 6)
        began = later()
        steps.append([number, began, None if chance.random() < 0.15 else later()])
        number += 1
    for name in ("ended", "died"):
        if chance.random() < 0.5:
            life[name] = later()
    if not (life or marks or steps):
        life["born"] = later()
    phases: list[list[Any]] = []
    nest(chance, start, clock + chance.randint(0, 6), phases, 0)
    return {**life, "resumed": marks, "steps": steps, "phases": phases}


def nest(chance: random.Random, begin: int, end: int, phases: list[list[Any]], depth: int) -> None:
    """Spans that lie apart or inside of one another."""
    at = begin
    for _ in range(chance.randint(0, 3 if depth == 0 else 1)):
        first = chance.randint(at, end)
        to = chance.randint(first, end)
        phases.append([chance.choice(SPAN_NAMES), first, to])
        if depth < 2:
            nest(chance, first, to, phases, depth + 1)
        at = to


def timeline_by_chance(seed: int) -> dict[str, Any]:
    """Up to four lives, one after the other. From a seed, because hypothesis draws slowly what is drawn one by one."""
    chance = random.Random(seed)
    document: dict[str, Any] = {"form": 1, "rank": chance.randint(0, 3), "lives": []}
    start = chance.randint(0, 50)
    for _ in range(chance.randint(1, 4)):
        document["lives"].append(life_by_chance(chance, start))
        start = last(document["lives"][-1]) + chance.randint(0, 5)
    return document


TIMELINES = st.integers(0, 1 << 32).map(timeline_by_chance)


def check_sums(ledger: Ledger) -> None:
    """O1."""
    for rank in ledger.ranks:
        for life in rank.lives:
            assert sum(life.accounts.values()) == life.wall
            assert sum(life.parts.values()) == life.accounts["train"]
            assert list(life.accounts) == list(ACCOUNTS)
            assert list(life.parts) == list(PARTS)
            assert min(*life.accounts.values(), *life.parts.values()) >= 0
    assert sum(ledger.accounts.values()) == ledger.wall


@settings(max_examples=200)
@given(TIMELINES)
def test_random_timelines_equal_the_painter(document: dict[str, Any]) -> None:
    """Goal: O1. Method: any life that may have happened, painted nanosecond by nanosecond."""
    ledger = ledger_of(document)

    check_sums(ledger)
    for life, painted in zip(ledger.ranks[0].lives, paint(document), strict=True):
        expected = {**dict.fromkeys(ACCOUNTS, 0), **painted}
        assert life.accounts == {name: expected[name] for name in ACCOUNTS}
        assert life.parts == {name: painted[f"train.{name}"] for name in PARTS}


@settings(max_examples=40)
@given(st.lists(TIMELINES, min_size=1, max_size=3, unique_by=lambda one: one["rank"]), st.randoms())
def test_the_order_of_lives_and_ranks_does_not_matter(
    documents: list[dict[str, Any]], chance: random.Random
) -> None:
    """Goal: O4, and that nothing depends on the order of a file."""
    first = json.dumps(ledger_of(documents).to_json())
    shuffled = [{**one, "lives": chance.sample(one["lives"], len(one["lives"]))} for one in documents]
    chance.shuffle(shuffled)

    # Lives without length at the same moment cannot be told apart by time.
    is_clear = all(
        len({json.dumps(edges(life)) for life in one["lives"]}) == len(one["lives"]) for one in documents
    )
    if is_clear:
        assert json.dumps(ledger_of(shuffled).to_json()) == first
    assert json.dumps(ledger_of(json.loads(json.dumps(documents))).to_json()) == first


def edges(life: dict[str, Any]) -> list[int]:
    from tests.report.painter import first

    return [first(life), last(life)]


@settings(max_examples=100)
@given(TIMELINES)
def test_the_time_of_a_rank_is_in_one_incident_at_most(document: dict[str, Any]) -> None:
    """Goal: costs of incidents do not overlap. Method: no account of all incidents is more than the account of the rank."""
    ledger = ledger_of(document)

    for name in ACCOUNTS:
        assert sum(incident.accounts.get(name, 0) for incident in ledger.incidents) <= ledger.accounts[name]
    assert sum(incident.accounts.get("lost", 0) for incident in ledger.incidents) == ledger.accounts["lost"]
    if len(document["lives"]) > 1:
        assert {incident.life for incident in ledger.incidents} >= set(range(len(document["lives"]) - 1))


STORY: dict[str, Any] = {
    "form": 1,
    "rank": 0,
    "origin": "2026-11-16T09:00:00Z",
    "lives": [
        {
            "requested": 0,
            "born": 10,
            "joined": 30,
            "resumed": [[35, 0]],
            "steps": [[0, 36, 46], [1, 46, 56], [2, 57, 67], [3, 67, None]],
            "phases": [["data", 46, 48], ["checkpoint", 50, 54], ["gc", 51, 52], ["drain", 75, 80]],
            "died": 75,
        },
        {
            "requested": 100,
            "born": 103,
            "joined": 110,
            "resumed": [[118, 2]],
            "steps": [[2, 118, 128], [3, 128, 138]],
            "ended": 140,
            "died": 141,
        },
    ],
}


def test_a_story_by_hand() -> None:
    """Goal: every account is what its words say. Method: one death, small numbers, a sum by hand."""
    ledger = ledger_of(STORY)
    first, second = ledger.ranks[0].lives

    assert {name: spent for name, spent in first.accounts.items() if spent} == {
        "queue": 10,
        "start": 20,
        "restore": 5,
        "train": 21,
        "lost": 11,
        "torn": 8,
        "drain": 5,
        "down": 20,
    }
    parts = {name: spent for name, spent in first.parts.items() if spent}
    assert parts == {"data": 2, "checkpoint": 3, "gc": 1, "rest": 15}
    assert {name: spent for name, spent in second.accounts.items() if spent} == {
        "queue": 3,
        "start": 7,
        "restore": 8,
        "train": 20,
        "finish": 3,
    }
    (death,) = ledger.incidents
    assert death.accounts == {
        "torn": 8,
        "drain": 5,
        "down": 20,
        "queue": 3,
        "start": 7,
        "restore": 8,
        "lost": 11,
    }
    assert death.cost == 62
    assert death.lost_steps == 1
    assert ledger.goodput()["runtime"] == 41 / 141
    assert ledger.goodput()["scheduling"] == (141 - 13) / 141
    assert ledger.goodput()["program"] == "unmeasured"
    repair = ledger.repair()
    assert repair["deaths"] == repair["observed"] == 1


def test_a_death_that_nobody_saw_is_not_divided() -> None:
    """Goal: O7. Method: the story without the moment of death."""
    document = json.loads(json.dumps(STORY))
    del document["lives"][0]["died"], document["lives"][0]["phases"]
    ledger = ledger_of(document)

    check_sums(ledger)
    assert ledger.ranks[0].lives[0].accounts["unmeasured"] == 100 - 67
    assert ledger.ranks[0].lives[0].accounts["down"] == 0
    assert ledger.repair() == {"deaths": 1, "observed": 0, "mean_ns": "not observed"}
    assert ledger.incidents[0].cause == "not observed"


def test_goodput_agrees_with_a_vector_of_others() -> None:
    """Goal: runtime goodput is what ml-goodput 0.2.3 computes for its own example: 1,000 steps of 2 s, 30 s before them, a death that costs
    100 steps and 60 s: 86.124 %."""
    second = 10**9
    steps = [[number, (30 + 2 * number) * second, (32 + 2 * number) * second] for number in range(500)]
    again = [
        [400 + number, (1090 + 2 * number) * second, (1092 + 2 * number) * second] for number in range(500)
    ]
    document = {
        "form": 1,
        "rank": 0,
        "lives": [
            {
                "born": 0,
                "joined": 10 * second,
                "resumed": [[30 * second, 0]],
                "steps": steps,
                "died": 1030 * second,
            },
            {
                "born": 1050 * second,
                "joined": 1060 * second,
                "resumed": [[1090 * second, 400]],
                "steps": again,
                "ended": 2090 * second,
            },
        ],
    }
    ledger = ledger_of(document)
    assert f"{100 * float(ledger.goodput()['runtime']):.3f}" == "86.124"
    assert ledger.incidents[0].cost == (200 + 60) * second


def columns_life(number: int, first: int, parts: dict[str, list[int]], **more: Any) -> LifeTimeline:
    """Three steps of 10 ns with parts from rows."""
    begins = np.arange(3, dtype=np.int64) * 10 + first
    steps = StepColumns(
        np.arange(3, dtype=np.int64),
        begins,
        begins + 10,
        {name: np.array(values, np.int64) for name, values in parts.items()},
    )
    marks = Marks(np.array([first], np.int64), np.array([0], np.int64))
    return LifeTimeline(number=number, resumed=marks, steps=steps, **more)


def test_parts_of_rows_are_summed_and_unknown_ones_said() -> None:
    """Goal: O1 and O7 with rows. Method: a whole row, one with a part that was not measured, and one that contradicts its length."""
    life = columns_life(0, 0, {"data": [3, UNMEASURED, 30], "forward": [5, 5, 5]})
    ledger = ledger_from([RankTimeline(0, (life,))])

    check_sums(ledger)
    parts = {name: spent for name, spent in ledger.parts.items() if spent}
    assert parts == {"data": 3, "forward": 10, "rest": 2, "unmeasured": 5 + 10}
    assert ledger.ranks[0].steps("broken") == 1


def test_a_span_over_rows_takes_its_time_and_leaves_the_rest_undivided() -> None:
    spans = Spans(("suspended",), np.array([12], np.int64), np.array([17], np.int64))
    life = columns_life(0, 0, {"data": [3, 3, 3], "forward": [7, 7, 7]}, spans=spans)
    ledger = ledger_from([RankTimeline(0, (life,))])

    check_sums(ledger)
    assert ledger.accounts["suspended"] == 5
    assert {name: spent for name, spent in ledger.parts.items() if spent} == {
        "data": 6,
        "forward": 14,
        "unmeasured": 5,
    }


def test_lives_without_a_common_clock_have_no_gap() -> None:
    """Goal: O1 per clock. Method: a second boot whose clock began anew."""
    lives = (
        columns_life(0, 1_000, {}, clock="a", gap_estimate=77),
        columns_life(1, 0, {}, clock="b"),
    )
    ledger = ledger_from([RankTimeline(0, lives)])

    check_sums(ledger)
    assert ledger.wall == 60
    assert ledger.ranks[0].clock_changes == [{"life": 0, "gap_estimate_ns": 77}]
    assert ledger.incidents[0].gap_estimate == 77


def test_lives_that_overlap_are_said() -> None:
    lives = (columns_life(0, 0, {}), columns_life(1, 25, {}))
    ledger = ledger_from([RankTimeline(0, lives)])
    check_sums(ledger)
    assert ledger.ranks[0].overlaps == [{"life": 0, "overlap_ns": 5}]


def life_with(**more: Any) -> dict[str, Any]:
    return {"form": 1, "rank": 0, "lives": [{"born": 5, **more}]}


@pytest.mark.parametrize(
    ("document", "field"),
    [
        (None, "timeline"),
        ([], "timeline"),
        ("x", "timeline"),
        ({"form": 2, "lives": []}, "form"),
        ({"form": True, "lives": []}, "form"),
        ({"form": 1}, "lives"),
        ({"form": 1, "lives": []}, "lives"),
        ({"form": 1, "lives": {}}, "lives"),
        ({"form": 1, "lives": [{}]}, "lives[0]"),
        ({"form": 1, "lives": [3]}, "lives[0]"),
        ({"form": 1, "lives": [{"born": 1}], "more": 1}, "timeline"),
        ({"form": 1, "lives": [{"born": 1, "<b>": 1}]}, "lives[0]"),
        ({"form": 1, "lives": [{"born": 1}], "origin": 3}, "origin"),
        ({"form": 1, "lives": [{"born": 1}], "rank": -1}, "rank"),
        ([{"form": 1, "lives": [{"born": 1}]}] * 2, "[1].rank"),
        (life_with(joined=2**53), "lives[0].joined"),
        (life_with(joined=-1), "lives[0].joined"),
        (life_with(joined=1.5), "lives[0].joined"),
        (life_with(joined=float("nan")), "lives[0].joined"),
        (life_with(joined="6"), "lives[0].joined"),
        (life_with(joined=True), "lives[0].joined"),
        (life_with(joined=10**5000), "lives[0].joined"),
        (life_with(joined=4), "lives[0].joined"),
        (life_with(steps=3), "lives[0].steps"),
        (life_with(steps=[[0, 6]]), "lives[0].steps[0]"),
        (life_with(steps=[[0, 6, 7, 8]]), "lives[0].steps[0]"),
        (life_with(steps=[[None, 6, 7]]), "lives[0].steps[0].step"),
        (life_with(steps=[[0, None, 7]]), "lives[0].steps[0].began"),
        (life_with(steps=[[0, 6, 7], [1, 7, 2**53]]), "lives[0].steps[1].ended"),
        (life_with(steps=[[0, 8, 7]]), "lives[0].steps[0]"),
        (life_with(steps=[[0, 6, 9], [1, 8, 10]]), "lives[0].steps[1]"),
        (life_with(steps=[[0, 8, 9], [1, 6, 7]]), "lives[0].steps[1]"),
        (life_with(steps=[[0, 3, 9]]), "lives[0]"),
        (life_with(resumed=[[6]]), "lives[0].resumed[0]"),
        (life_with(resumed=[[9, 0], [8, 0]]), "lives[0].resumed[1]"),
        (life_with(resumed=[[8, 0]], steps=[[0, 6, 9]]), "lives[0].resumed[0]"),
        (life_with(steps=[[0, 6, 9]], ended=8), "lives[0].ended"),
        (life_with(steps=[[0, 6, 9]], died=8), "lives[0].died"),
        (life_with(ended=10, died=8), "lives[0].died"),
        (life_with(died=4), "lives[0].died"),
        (life_with(phases=[["nap", 5, 6]]), "lives[0].phases[0]"),
        (life_with(phases=[["train", 5, 6]]), "lives[0].phases[0]"),
        (life_with(phases=[["data", 5]]), "lives[0].phases[0]"),
        (life_with(phases=[["data", 7, 6]]), "lives[0].phases[0]"),
        (life_with(phases=[["data", 5, 7], ["gc", 6, 8]]), "lives[0].phases[1]"),
        (life_with(phases=[["data", 5, 600 - place] for place in range(70)]), "lives[0].phases[64]"),
        ({"form": 1, "lives": [{"born": 5, "died": 9}, {"born": 8}]}, "lives[1]"),
    ],
)
def test_a_malformed_timeline_is_refused_with_its_field(document: Any, field: str) -> None:
    with pytest.raises(TimelineInvalid) as problem:
        ledger_of(document)
    assert problem.value.field.removeprefix(".") == field
    assert len(str(problem.value)) < 700


def rows_by_chance(chance: random.Random, number: int, begin: int) -> LifeTimeline:
    """A life whose rows have parts: whole, with values that were not measured, below zero, or longer than their step."""
    count = chance.randint(1, 8)
    numbers, begins, ends = [], [], []
    parts: dict[str, list[int]] = {"data": [], "forward": [], "gc": []}
    at, step = begin, chance.randint(0, 5)
    for _ in range(count):
        at += chance.randint(0, 3)
        numbers.append(step)
        begins.append(at)
        at += chance.randint(0, 9)
        ends.append(at)
        step += 1 if chance.random() < 0.8 else -2 if step > 2 else 0
        for column in parts.values():
            column.append(chance.choice([0, 1, 2, 3, UNMEASURED, -1 if chance.random() < 0.1 else 0]))
    steps = StepColumns(
        np.array(numbers, np.int64),
        np.array(begins, np.int64),
        np.array(ends, np.int64),
        {name: np.array(values, np.int64) for name, values in parts.items()},
    )
    return LifeTimeline(number=number, born=begin, steps=steps, died=at + 1)


@settings(max_examples=150)
@given(st.integers(0, 1 << 32))
def test_parts_of_random_rows_equal_a_loop_over_them(seed: int) -> None:
    """Goal: O1 and O7 with rows. Method: the same rules, row by row, without arrays."""
    chance = random.Random(seed)
    first = rows_by_chance(chance, 0, 100)
    second = rows_by_chance(chance, 1, first.last + 5)
    ledger = ledger_from([RankTimeline(0, (first, second))])

    check_sums(ledger)
    everything = [(life, place) for life in (first, second) for place in range(len(life.steps.numbers))]
    for life, accounts in zip((first, second), ledger.ranks[0].lives, strict=True):
        expected = dict.fromkeys(PARTS, 0)
        before = int(life.steps.begins[0])
        for place, step in enumerate(life.steps.numbers.tolist()):
            later = everything[everything.index((life, place)) + 1 :]
            is_undone = any(other.steps.numbers[row] <= step for other, row in later)
            begin, end = int(life.steps.begins[place]), int(life.steps.ends[place])
            values = {name: int(column[place]) for name, column in life.steps.parts.items()}
            known = {name: value for name, value in values.items() if value != UNMEASURED}
            left = end - begin - sum(known.values())
            if is_undone:
                pass
            elif left < 0 or min(known.values(), default=0) < 0:
                expected["unmeasured"] += end - before
            else:
                for name, value in known.items():
                    expected[name] += value
                expected["unmeasured" if len(known) < len(values) else "rest"] += left
                expected["rest"] += begin - before
            before = end
        assert accounts.parts == expected
