"""Failures over many hosts in order: by the coordinator's time, with what nobody can tell said to be so."""

import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.questions.incident_of_hosts import incident_lines
from penstock.process.job.catalogue import Job
from penstock.process.job.incidents import Incident
from penstock.process.questions.answers import Part
from penstock.process.questions.job_incidents import durations, failure_of, in_order, job_incidents

FAILED = st.fixed_dictionaries(
    {
        "rank": st.integers(0, 40),
        "host": st.sampled_from(["gpu01", "gpu02"]),
        "at_ms": st.integers(0, 50),
        "within_ms": st.integers(0, 20),
        "of_connection": st.booleans(),
        "ended": st.just("exited with code 1"),
    }
)
LOST = st.fixed_dictionaries(
    {
        "host": st.just("gpu03"),
        "host_rank": st.just(2),
        "what": st.just("was not heard for 3 s, and its lease expired"),
        "heard_ms": st.integers(0, 50),
        "unheard_ms": st.integers(50, 60),
        "at_ms": st.integers(60, 90),
        "within_ms": st.integers(0, 20),
    }
)
MOMENT = st.none() | st.integers(0, 200)
TIMES = st.fixed_dictionaries(
    dict.fromkeys(("noticed_ms", "ended_ms", "ordered_ms", "started_ms", "first_step_ms"), MOMENT)
)


def _document(**about: Any) -> dict[str, Any]:
    return {"first_cause": "rank 1 failed", "role": "rank", "incarnation": 0, "at": 1.0, "hosts": 2, **about}


def _lines(document: dict[str, Any], parts: list[Part] | None = None) -> list[str]:
    return list(incident_lines("job-1", Incident(0, Path("0.json"), document), parts or []))


@given(st.lists(FAILED, max_size=12), st.lists(LOST, max_size=2), TIMES)
def test_causes_come_first_by_time_and_the_parts_add_up(
    failures: list[dict[str, Any]], lost: list[dict[str, Any]], times: dict[str, Any]
) -> None:
    """Goal: one story, ordered as summaries order failures. Method: any failures and lost hosts; each is in the order once, and no part of the time is
    counted twice."""
    failure = failure_of(_document(failures=failures, lost_hosts=lost, times=times))
    order = in_order(failure)

    assert len(order) == len(failures) + len(lost)
    assert [(one.is_effect, one.at_ms) for one in order] == sorted(
        (one.is_effect, one.at_ms) for one in order
    )
    for one in order:
        assert one.is_about_when(one)
        assert all(one.is_about_when(other) == other.is_about_when(one) for other in order)
    parts = durations(failure)
    assert all(part.seconds >= 0 for part in parts)
    if order:
        moments = [moment for moment in times.values() if moment is not None]
        moments += [host[name] for host in lost for name in ("unheard_ms", "at_ms")]
        most = max(moments, default=0) - min(one.at_ms for one in order)
        assert sum(part.seconds for part in parts) <= max(most, 0) / 1000 + 1e-9


def test_what_is_closer_than_its_uncertainty_has_no_order() -> None:
    failed = [
        {"rank": 3, "host": "gpu01", "at_ms": 1000, "within_ms": 2, "ended": "was killed by SIGSEGV"},
        {"rank": 9, "host": "gpu02", "at_ms": 1003, "within_ms": 2, "ended": "exited with code 1"},
        {"rank": 1, "host": "gpu01", "at_ms": 1050, "within_ms": 2, "ended": "exited with code 1"},
    ]
    shown = "\n".join(_lines(_document(failures=failed)))

    assert "+0.000 s ±2 ms  rank 3 on gpu01 was killed by SIGSEGV" in shown
    assert "at about the same time  rank 9 on gpu02 exited with code 1" in shown
    assert "+0.050 s ±2 ms  rank 1 on gpu01 exited with code 1" in shown


def test_detection_and_lease_of_a_lost_host_are_told_and_so_is_who_took_over() -> None:
    lost = {
        "host": "gpu02",
        "host_rank": 1,
        "what": "was not heard",
        "heard_ms": 0,
        "unheard_ms": 2500,
        "at_ms": 30_000,
    }
    stderr = [{"role": "rank", "rank": 8, "incarnation": 0, "text": "step 1\rstep 2\nCUDA error\n"}]
    times = {"ended_ms": 30_100, "ordered_ms": 30_200, "started_ms": 31_000, "first_step_ms": 33_000}
    took_over = [{"host_rank": 1, "from": "gpu02", "to": "gpu05", "back": False}]
    lines = _lines(_document(lost_hosts=[{**lost, "stderr": stderr}], times=times, took_over=took_over))

    assert "  gpu05 took over host rank 1 from gpu02" in lines
    parts = [line.split()[:-1] for line in lines if " s  until" in line]
    assert [" ".join(words).split(" s ")[0].rsplit(maxsplit=1) for words in parts] == [
        ["detection", "2.500"],
        ["lease", "27.500"],
        ["end", "0.100"],
        ["decision", "0.100"],
        ["start", "0.800"],
        ["first step", "2.000"],
    ]
    at = lines.index("last lines of rank 8 on gpu02, which is lost:")
    assert lines[at + 1 : at + 3] == ["  step 2", "  CUDA error"]


def test_ranks_that_said_the_same_are_one_group_and_those_that_are_shown_are_not_shown_again() -> None:
    words = [{"host": "gpu01", "role": "rank", "rank": 3, "text": "first\n"}]
    parts = [
        Part(hosts="0-1", ranks="0-2,4-7", head={"ended": "x"}, body="Connection closed by peer"),
        Part(hosts="0", ranks="3", head={"ended": "x"}, body="first"),
        Part(hosts="1", head={}),
    ]
    shown = _lines(_document(words=words), parts)

    assert [line for line in shown if line.startswith("last lines")] == [
        "last lines of rank 3 on gpu01:",
        "last lines of rank 0-2,4-7:",
    ]


def test_files_that_are_torn_or_of_another_kind_are_passed_over(tmp_path: Path) -> None:
    folder = tmp_path / "incidents" / "of-all-hosts"
    folder.mkdir(parents=True)
    (folder / "rank.1.json").write_text(json.dumps(_document(at=20.0, incarnation=1)))
    (folder / "rank.0.json").write_text(json.dumps(_document(at=10.0, failures="many")))
    (folder / "rank.2.json").write_text('{"at": 30')
    (folder / "rank.3.json").write_text("[]")

    found = job_incidents(Job(tmp_path))

    assert [(one.number, one.document["incarnation"]) for one in found] == [(0, 0), (1, 1)]
    assert in_order(failure_of(found[0].document)) == []
    assert _lines(found[0].document)
