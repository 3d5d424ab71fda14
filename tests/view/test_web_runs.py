"""Runs over HTTP: the same numbers as the report, bounded, safe whatever a program wrote, and cheap when nothing changed."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.view.run_exhibit import FAILS_AT, HOSTILE, NOT_FINITE, SAVE_EVERY, STEPS
from tests.view.serving import client_of, site_at

SLOW = "run:runs/slow"


@pytest.fixture(scope="module")
def client(runs_folder: Path) -> TestClient:
    return client_of(site_at(runs_folder))


def ask(client: TestClient, route: str, **values: object) -> Any:
    answer = client.get(f"/api/{route}", params=values)
    assert answer.status_code == 200, answer.text
    return answer.json()


def reported(folder: Path, run: str) -> Any:
    """What ``penstock report --json`` says."""
    command = [sys.executable, "-m", "penstock.cli.main", "report", run, "--json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, timeout=120, check=True)
    return json.loads(done.stdout)


def test_the_page_has_the_numbers_of_the_report(client: TestClient, runs_folder: Path) -> None:
    """Goal: one number. Method: every number of the answer that the report has, compared with the command's."""
    for name in ("runs/slow", "runs/bare"):
        run, report = ask(client, "run", address=f"run:{name}"), reported(runs_folder, name)

        assert run["diagnosis"]["line"] == report["diagnosis"]["line"]
        assert run["diagnosis"]["verdict"] == report["diagnosis"]["verdict"]
        assert [cause["line"] for cause in run["diagnosis"]["causes"]] == [
            cause["line"] for cause in report["diagnosis"]["causes"]
        ]
        assert run["speed"].items() <= report["speed"].items()
        assert run["mfu"]["value"] == report["mfu"]["value"]
        assert run["memory"].items() <= report["memory"].items()
        ledger = report["ledger"]
        assert run["goodput"] == ledger["goodput"]
        assert run["ledger"]["accounts"] == ledger["accounts"]
        assert run["ledger"]["parts"] == ledger["train"]
        assert run["ledger"]["wall_ns"] == ledger["wall_ns"]
        assert [one["device_ns"] for one in run["marks"]["incidents"]] == [
            one["device_ns"] for one in ledger["incidents"]
        ]
        assert [one["took_ns"] for one in run["stalls"]] == [one["took_ns"] for one in report["stalls"]]


def test_lives_add_up_to_the_ledger(client: TestClient) -> None:
    """Goal: O1 on the page. Method: accounts of lives are summed, and compared with those of all."""
    ledger = ask(client, "run", address=SLOW)["ledger"]

    assert [life["life"] for life in ledger["lives"]] == [0, 1]
    for name, spent in ledger["accounts"].items():
        assert sum(life["accounts"][name] for life in ledger["lives"]) == spent
    for life in ledger["lives"]:
        assert sum(life["accounts"].values()) == life["wall_ns"]
        assert sum(life["parts"].values()) == life["accounts"]["train"]


def test_marks_stand_at_their_steps(client: TestClient) -> None:
    marks = ask(client, "run", address=SLOW)["marks"]

    first, second = marks["lives"]
    assert (first["step"], second["step"], second["last_step"]) == (0, 100, STEPS - 1)
    # The step that failed was not finished, and its beginning is kept when the table is closed.
    assert first["last_step"] == FAILS_AT
    assert [life["end"] for life in marks["lives"]] == ["failed", "done"]
    assert [one["step"] for one in marks["incidents"]] == [first["last_step"]]
    saved = {one["step"] for one in marks["checkpoints"]}
    assert saved >= set(range(SAVE_EVERY, STEPS + 1, SAVE_EVERY))
    assert all(one["stall_ns"] > 0 for one in marks["checkpoints"])


def test_curves_have_every_step_and_what_the_program_gave(client: TestClient) -> None:
    document = ask(client, "run/curves", address=SLOW)
    curves = {curve["name"]: curve["lines"][0] for curve in document["curves"]}

    assert document["steps"] == list(range(STEPS))
    assert document["is_exact"]
    assert next(iter(curves)) == "loss"
    assert {"tokens_per_s", "step_time", "goodput", "memory", "lr", HOSTILE} <= set(curves)
    assert None not in curves["loss"]["values"]
    assert curves[HOSTILE]["not_finite"] == len(NOT_FINITE)
    assert [curves[HOSTILE]["values"][step] for step in NOT_FINITE] == [None] * 3
    part = ask(client, "run/curves", address=SLOW, first=50, end=60)
    assert part["steps"] == list(range(50, 60))
    assert part["curves"][0]["lines"][0]["values"] == curves["loss"]["values"][50:60]


def test_a_run_without_rows_shows_what_its_records_have(client: TestClient) -> None:
    run = ask(client, "run", address="run:runs/bare")
    curves = {one["name"] for one in ask(client, "run/curves", address="run:runs/bare")["curves"]}

    assert run["diagnosis"]["verdict"] == "abstains"
    assert run["speed"]["tokens_per_s"] == "unmeasured"
    assert run["memory"]["rss"] == "unmeasured"
    assert curves == {"loss", "step_time", "goodput"}


@pytest.mark.parametrize(
    ("route", "values", "says"),
    [
        ("run", {"address": "run:empty"}, "there is no run in"),
        ("run", {"address": "run:nowhere"}, "there is no 'nowhere' below the folders"),
        ("run", {"address": "run:../.."}, "below the folders"),
        ("run", {"address": "web@1"}, "is not a run"),
        ("run", {}, "missing query parameter 'address'"),
        ("run/state", {"address": "run:empty"}, "there is no run in"),
        ("run/heat", {"address": SLOW, "column": "<b>"}, "there is no column '<b>'"),
        ("run/curves", {"address": SLOW, "first": 9, "end": 3}, "from a smaller to a larger number"),
        ("run/curves", {"address": SLOW, "first": "-1"}, "must be a whole number"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused(
    client: TestClient, route: str, values: dict[str, object], says: str
) -> None:
    answer = client.get(f"/api/{route}", params=values)

    assert answer.status_code == 422
    assert says in answer.json()["error"]["message"]


def test_every_column_is_a_map_of_rank_by_step(client: TestClient) -> None:
    columns = ask(client, "run", address=SLOW)["columns"]

    assert {"step_time", "host.user", "loss", HOSTILE} <= {column["name"] for column in columns}
    for column in columns:
        heat = ask(client, "run/heat", address=SLOW, column=column["name"])
        assert [len(row["values"]) for row in heat["ranks"]] == [STEPS]
        assert heat["unit"] == column["unit"]
    user = ask(client, "run/heat", address=SLOW, column="host.user")["ranks"][0]["values"]
    assert min(user[4::5]) > 5 * sorted(user)[STEPS // 2]


def test_the_state_changes_when_the_run_writes_and_not_before(
    client: TestClient, runs_folder: Path, tmp_path: Path
) -> None:
    """Goal: a refresh that costs nothing while nothing happens. Method: asked twice, then after a line in the journal."""
    shutil.copytree(runs_folder / "runs/bare", tmp_path / "bare")
    shutil.copytree(runs_folder / "registry", tmp_path / "registry")
    own = client_of(site_at(tmp_path))
    first = ask(own, "run/state", address="run:bare")

    assert ask(own, "run/state", address="run:bare") == first
    assert ask(own, "run", address="run:bare")["signature"] == first["signature"]
    assert first["is_running"] is False
    journal = next((tmp_path / "bare/journal").iterdir())
    with journal.open("ab") as file:
        file.write(b'{"at":1.0,"kind":"note","incarnation":0,"facts":{"text":"\\u001b[31m<b>"}}\n')
    second = ask(own, "run/state", address="run:bare")
    assert second["signature"] != first["signature"]
    assert ask(own, "run", address="run:bare")["signature"] == second["signature"]


def test_the_list_of_events_has_those_of_runs_and_one_opens(client: TestClient) -> None:
    """Goal: *Events* looks into runs. Method: the list, and the recording of each life of a run by its name."""
    runs = {run["run"]: run["recordings"] for run in ask(client, "events")["runs"]}

    assert set(runs) == {"runs/slow", "runs/bare", "runs/counted"}
    assert sorted(file["name"] for file in runs["runs/slow"]) == ["000000-0000.pev", "000001-0000.pev"]
    recording = ask(client, "events/000001-0000.pev", run="runs/slow")
    assert recording["event_count"] > STEPS - 100
    assert ask(client, "events/000001-0000.pev/0", run="runs/slow")["kind"] in recording["timeline"]["names"]
    assert client.get("/api/events/000001-0000.pev").status_code == 404
    assert client.get("/api/events/000001-0000.pev", params={"run": "../../etc"}).status_code == 404


def test_recordings_behind_a_link_out_of_the_folders_are_not_shown(runs_folder: Path, tmp_path: Path) -> None:
    """Goal: no path leads out of the server's folders. Method: a run whose events are a link to those of another folder."""
    inside = tmp_path / "site"
    shutil.copytree(runs_folder / "runs/bare", inside / "bare")
    shutil.rmtree(inside / "bare/events")
    os.symlink(runs_folder / "runs/slow/events", inside / "bare/events")
    client = client_of(site_at(inside))

    assert ask(client, "events")["runs"] == []
    assert client.get("/api/events/000001-0000.pev", params={"run": "bare"}).status_code == 404
    refusal = client.get("/api/run", params={"address": "run:bare"})
    assert refusal.status_code == 422
    assert "below the folders of this server" in refusal.json()["error"]["message"]
