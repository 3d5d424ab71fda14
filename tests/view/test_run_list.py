"""Runs side by side over HTTP: the numbers of the report, read for a while at a time, whatever lies in the folder."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from penstock.report.run_fields import FIELDS_MAX, run_fields
from penstock.view.address import RunsAddress
from penstock.view.web.content import run_list
from penstock.view.web.content.run_list import RunLister
from tests.view.run_exhibit import HOSTILE
from tests.view.serving import client_of, site_at


def listed(client: TestClient, address: str = "runs:.") -> Any:
    answer = client.get("/api/runs", params={"address": address})
    assert answer.status_code == 200, answer.text
    return answer.json()


def until_read(client: TestClient, address: str = "runs:.", rounds: int = 200) -> Any:
    """Asked as the page asks, until nothing is pending."""
    for _ in range(rounds):
        document = listed(client, address)
        if document["pending"] == 0:
            return document
    raise AssertionError(f"{document['pending']} runs are still pending")


def test_a_folder_lists_its_runs_with_the_numbers_of_their_pages(runs_folder: Path) -> None:
    client = client_of(site_at(runs_folder))
    document = until_read(client, "runs:runs")

    assert [run["name"] for run in document["runs"]] == ["bare", "counted", "slow"]
    for run in document["runs"]:
        page = client.get("/api/run", params={"address": run["address"]}).json()
        summary = run["summary"]
        assert summary["line"] == page["diagnosis"]["line"]
        for part in ("speed", "mfu", "goodput", "memory", "state"):
            assert summary[part] == page[part]
        assert summary["step"] == page["last_step"]
        curves = client.get("/api/run/curves", params={"address": run["address"]}).json()["curves"]
        assert run["curves"] == [curve["name"] for curve in curves]
        one = client.get("/api/run/curves", params={"address": run["address"], "curve": "loss"}).json()
        assert [curve for curve in curves if curve["name"] == "loss"] == one["curves"]
    # From above, names say where a run lies.
    assert [run["name"] for run in until_read(client)["runs"]] == ["runs/bare", "runs/counted", "runs/slow"]


def test_the_configuration_is_flat_fields(runs_folder: Path, tmp_path: Path) -> None:
    """Goal: grouping. Method: a real run, and one whose journal says what a command line had."""
    fields = run_fields(runs_folder / "runs/slow")
    assert fields["seed"] == "3"
    assert fields["policy.save_every"] == "25"
    assert fields["recipe.sources.0.version"] == "web@1"
    shutil.copytree(runs_folder / "runs/bare", tmp_path / "run")
    journal = next((tmp_path / "run/journal").iterdir())
    entry = json.loads(journal.read_text().splitlines()[0])
    command = [
        "python",
        "-u",
        "train.py",
        "--lr",
        "3e-4",
        "--fast",
        "--name=x=y",
        "-v",
        "--shift",
        "-1",
        "out",
    ]
    entry["facts"] = {"command": command, "policy": {f"p{n}": n for n in range(1000)}}
    journal.write_text(json.dumps(entry) + "\n")
    fields = run_fields(tmp_path / "run")
    options = {name: value for name, value in fields.items() if name.startswith("option.")}
    assert options == {
        "option.lr": "3e-4",
        "option.fast": "true",
        "option.name": "x=y",
        "option.v": "true",
        "option.shift": "-1",
    }
    assert len(fields) == FIELDS_MAX
    assert run_fields(tmp_path) == {}


def test_a_damaged_run_a_folder_that_is_none_and_hostile_names_spoil_nothing(
    runs_folder: Path, tmp_path: Path
) -> None:
    hostile = HOSTILE.replace("/", "")
    for name in ("good", "journal", "about", "empty_steps", hostile):
        shutil.copytree(runs_folder / "runs/bare", tmp_path / name)
    for file in (tmp_path / "journal/journal").iterdir():
        file.write_bytes(b"\x00\xff\n" * 3)
    (tmp_path / "about/run.json").write_text("{")
    for folder in ("records", "steps", "journal"):
        shutil.rmtree(tmp_path / "empty_steps" / folder, ignore_errors=True)
    (tmp_path / "nothing").mkdir()
    os.symlink(runs_folder / "runs/slow", tmp_path / "out")
    document = until_read(client_of(site_at(tmp_path)))

    runs = {run["name"]: run for run in document["runs"]}
    assert len(runs) == 5
    assert runs["good"]["summary"]["step"] == 5
    assert runs["journal"]["problem"]
    assert runs["empty_steps"]["summary"]["step"] is None
    assert runs["empty_steps"]["summary"]["verdict"] == "abstains"
    assert any("onerror" in name for name in runs)
    # The link leads out of the folders of the server.
    assert document["left_out"] == 1


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("runs:nowhere", "there is no 'nowhere' below the folders"),
        ("runs:../..", "below the folders"),
        ("runs:", "its path is empty"),
        ("run:runs/slow", "is not a folder of runs"),
        ("runs:runs/slow/run.json", "below the folders"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused(runs_folder: Path, address: str, says: str) -> None:
    answer = client_of(site_at(runs_folder)).get("/api/runs", params={"address": address})

    assert answer.status_code == 422
    assert says in answer.json()["error"]["message"]


def test_many_runs_are_read_for_a_while_at_a_time_and_each_once(
    runs_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: bounded answers. Method: a clock that the test turns: a run takes 0.4 s of it, an answer reads for one; what
    is read is not read again before it writes, and then only after the pause."""
    for number in range(8):
        shutil.copytree(runs_folder / "runs/bare", tmp_path / f"r{number}")
    now, read = [0.0], []

    def slowly(path: Path) -> object:
        now[0] += 0.4
        read.append(path.name)
        return plain(path)

    plain = run_list.run_screen
    monkeypatch.setattr(run_list, "run_screen", slowly)
    site, lister = site_at(tmp_path), RunLister(clock=lambda: now[0])
    pending = [lister.below(site, RunsAddress("."), tmp_path)["pending"] for _ in range(4)]

    assert pending == [5, 2, 0, 0]
    assert sorted(read) == [f"r{number}" for number in range(8)]
    with next((tmp_path / "r3/journal").iterdir()).open("ab") as file:
        file.write(b'{"at":1.0,"kind":"note","incarnation":0,"facts":{}}\n')
    lister.below(site, RunsAddress("."), tmp_path)
    assert len(read) == 8
    now[0] += 60
    lister.below(site, RunsAddress("."), tmp_path)
    assert read[8:] == ["r3"]
