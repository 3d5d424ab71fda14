"""Alerts: each default one is raised by its cause in a real run, and none in a clean one; hysteresis; rules of a file."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.report.watch.alert_book import read_alerts
from penstock.report.watch.alert_rules import DEFAULTS, AlertRule, AlertRules
from penstock.report.watch.alert_state import AlertStates
from penstock.report.watch.rank_rows import RankState
from penstock.report.watch.run_figures import Figures
from penstock.report.watch.run_watch import Snapshot
from penstock.report.watch.watcher import Watcher
from tests.conftest import ROOT
from tests.process.jobs import wait_until
from tests.report.alert_program import CASES
from tests.torch.stream import make_stream

#: The default alerts with short times, because these runs last seconds.
SHORT = """
[alerts.stall]
for_s = 3
usual_steps = 20
[alerts.mfu_drop]
below = 0.25
for_s = 1.5
after_s = 0
[alerts.goodput]
below = 0.3
for_s = 1
after_s = 1.5
[alerts.memory_growth]
above = 600
for_s = 1.5
after_s = 2
window_s = 30
"""


@pytest.fixture(scope="module")
def raised(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Alerts by case: real runs with planted causes, side by side, watched while they train."""
    folder = tmp_path_factory.mktemp("runs")
    stream = make_stream(tmp_path_factory.mktemp("stream"))
    outs = {case: folder / case for case in CASES}
    programs = []
    for case, out in outs.items():
        out.mkdir()
        (out / "alerts.toml").write_text(SHORT)
        command = [sys.executable, "-m", "tests.report.alert_program", str(stream.folder), str(out), case]
        # Without a job and a place among ranks: the watcher is this process.
        variables = {"PATH": os.environ["PATH"], "HOME": str(folder), "PENSTOCK_WATCHED": "1"}
        variables |= {"PYTHONPATH": f"{ROOT / 'python'}:{ROOT}", "PENSTOCK_JOB_DIRECTORY": str(folder)}
        programs.append(subprocess.Popen(command, cwd=ROOT, env=variables))
    watcher = Watcher(runs=lambda: list(outs.values()))
    try:
        wait_until(
            lambda: all(out.with_suffix(".ready").exists() for out in outs.values()),
            "all are ready",
            timeout_s=120,
        )
        (folder / "go").touch()

        def have_ended() -> bool:
            watcher.refresh()
            return all(program.poll() is not None for program in programs)

        wait_until(have_ended, "the runs have ended", timeout_s=120)
    finally:
        for program in programs:
            program.kill()
        watcher.refresh()
        watcher.close()
    assert [program.wait() for program in programs] == [0] * len(programs)
    return {
        case: {entry.alert for entry in read_alerts(out) if entry.state == "firing"}
        for case, out in outs.items()
    }


@pytest.mark.parametrize("case", CASES)
def test_each_default_alert_is_raised_by_its_cause_and_none_in_a_clean_run(
    raised: dict[str, set[str]], case: str
) -> None:
    """Goal: alerts that can be trusted. Method: a real run with a planted cause, watched while it runs; the alert raised is the
    planted one, and the clean run raises none."""
    assert raised[case] == (set() if case == "clean" else {case})
    assert set(CASES[1:]) == set(DEFAULTS)


def seen(step: int, **values: float) -> Snapshot:
    """A run of one rank."""
    rank = RankState(0, 0, step=step, ended_ns=1, scalars=values, scalar_steps=dict.fromkeys(values, step))
    return Snapshot("run", Path("run"), [rank], Figures(), {0: 0.0}, 0.1, None, None, "")


def told(rule: AlertRule, values: list[tuple[float, float]]) -> list[tuple[float, str]]:
    """When the alert is raised and when it is over, of values at moments."""
    states = AlertStates(AlertRules((rule,)))
    return [
        (now, event.state)
        for now, value in values
        for event in states.refresh(seen(int(now), x=value), now, ranks={0}, is_first=True)
    ]


def test_an_alert_lasts_until_its_value_is_clearly_good_for_a_while() -> None:
    """Goal: hysteresis. Method: a value that goes beyond the limit, hangs about it, and comes back."""
    rule = AlertRule(name="x", kind="threshold", signal="scalar.x", above=10, for_s=3, clear_for_s=2)
    values = [
        (1, 11),
        (2, 5),
        (3, 11),
        (4, 11),
        (5, 11),
        (6, 11),
        (7, 9.5),
        (8, 11),
        (9, 8),
        (10, 9.9),
        (11, 8),
        (12, 8),
        (13, 8),
    ]
    assert told(rule, values) == [(6, "firing"), (13, "cleared")]


def test_what_is_not_a_number_is_beyond_every_limit() -> None:
    rule = AlertRule(name="x", kind="threshold", signal="scalar.x", below=1, for_s=0, clear_for_s=0)
    assert told(rule, [(1, 2), (2, float("nan")), (3, 2)]) == [(2, "firing"), (3, "cleared")]


def test_a_ratio_is_that_to_the_median_of_the_run() -> None:
    rule = AlertRule(name="x", kind="ratio", signal="scalar.x", below=0.5, for_s=0, clear_for_s=0)
    values = [(float(now), 8.0) for now in range(20)] + [(20.0, 3.9), (21.0, 8.0)]
    assert told(rule, values) == [(20, "firing"), (21, "cleared")]


def test_a_slope_is_per_hour_and_over_its_window() -> None:
    """Goal: growth is seen and a level is not, however high. Method: a level, then 1 a second, which is 3600 an hour."""
    rule = AlertRule(
        name="x", kind="slope", signal="scalar.x", above=1800, for_s=0, window_s=10, clear_for_s=0
    )
    level = [(float(now), 1e6) for now in range(20)]
    growing = [(float(now), 1e6 + now - 20) for now in range(20, 40)]
    flat = [(float(now), 1e6 + 19) for now in range(40, 60)]
    events = told(rule, level + growing + flat)
    assert [state for _, state in events] == ["firing", "cleared"]
    assert 20 < events[0][0] < 40 < events[1][0]


def test_absence_is_of_a_number_that_is_no_longer_given() -> None:
    """Goal: a program that stops logging is noticed. Method: the step that gave the number last stays the same."""
    rule = AlertRule(name="x", kind="absence", signal="scalar.x", for_s=3, clear_for_s=0)
    states = AlertStates(AlertRules((rule,)))
    steps = [1, 2, 3, 3, 3, 3, 3, 4]
    events = [
        (now, event.state)
        for now, step in enumerate(steps, start=1)
        for event in states.refresh(seen(step, x=1.0), float(now), ranks={0}, is_first=True)
    ]
    assert events == [(6, "firing"), (8, "cleared")]


def test_an_alert_that_an_earlier_watcher_raised_is_not_raised_again() -> None:
    """Goal: a watcher that was killed is back without a second alert. Method: states restored from what was written down."""
    rule = AlertRule(name="x", kind="threshold", signal="scalar.x", above=10, for_s=0, clear_for_s=0)
    states = AlertStates(AlertRules((rule,)))
    states.restore({"x": True, "gone": True})
    assert states.firing() == ["x"]
    assert states.refresh(seen(1, x=11.0), 1.0, ranks={0}, is_first=True) == []
    (event,) = states.refresh(seen(2, x=1.0), 2.0, ranks={0}, is_first=True)
    assert event.state == "cleared"


def test_what_stops_all_ranks_is_one_alert_that_names_the_worst() -> None:
    """Goal: nobody is called 64 times. Method: 64 ranks of which all are late, one of them later."""
    ranks = [RankState(rank, 0, step=5, ended_ns=1) for rank in range(64)]
    ages = {rank: 100.0 + (rank == 17) for rank in range(64)}
    snapshot = Snapshot("run", Path("run"), ranks, Figures(), ages, 0.1, None, None, "")
    states = AlertStates(AlertRules((DEFAULTS["stall"],)))
    (event,) = states.refresh(snapshot, 1.0, ranks=set(range(64)), is_first=True)
    assert (event.state, event.rank, event.value) == ("firing", 17, 101.0)
