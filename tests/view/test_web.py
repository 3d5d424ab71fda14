"""The web server without a browser: what it answers, what it refuses, and the headers it always sends."""

import gzip
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from penstock import __version__, events
from penstock.errors import UsageError
from penstock.observe import doctor
from penstock.view.web import server
from penstock.view.web.content import recordings
from tests.view.serving import client_of, site_at

BUNDLE_GZIP_BYTES_MAX = 300_000


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory with one small recording, `run.pev`, and a secret beside it that nobody may read."""
    folder = tmp_path / "events"
    (tmp_path / "secret.pev").write_text("secret")
    folder.mkdir()
    with events.recording(folder / "run.pev"):
        for step in range(4):
            with events.span("step", step=step):
                events.record("tick", text="héllo")
        events.span("left.open", why="the process ends first").__enter__()
    return folder


@pytest.fixture
def client(directory: Path) -> TestClient:
    return client_of(site_at(directory.parent))


def test_doctor_answers_with_the_version_and_every_check(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = [doctor.Check("disk", "ok", "9 GB free"), doctor.Check("<b>", "warn", "a", "\udcff is no text")]
    monkeypatch.setattr(doctor, "examine", lambda **_: checks)

    answer = client.get("/api/doctor").json()

    assert answer["version"] == __version__
    assert answer["checks"] == [
        {"name": "disk", "verdict": "ok", "value": "9 GB free", "hint": ""},
        {"name": "<b>", "verdict": "warn", "value": "a", "hint": "\\udcff is no text"},
    ]


def test_looking_often_examines_the_machine_once(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a page that is reloaded, or a stranger's page that asks in a loop, does not load the disk."""
    rounds: list[int] = []

    def examine(*, measure_disk: bool) -> list[doctor.Check]:
        assert not measure_disk
        rounds.append(1)
        return []

    monkeypatch.setattr(doctor, "examine", examine)

    for _ in range(5):
        assert client.get("/api/doctor").status_code == 200

    assert len(rounds) == 1


def test_the_list_holds_recordings_newest_first_and_nothing_else(client: TestClient, directory: Path) -> None:
    (directory / "notes.txt").write_text("x")
    (directory / ".hidden.pev").write_text("x")
    (directory / "folder.pev").mkdir()
    (directory / "old.pev").write_text("x")
    os.utime(directory / "old.pev", (1, 1))

    answer = client.get("/api/events").json()

    assert [row["name"] for row in answer["recordings"]] == ["run.pev", "old.pev"]
    assert answer["recordings"][1] == {"name": "old.pev", "bytes": 1, "modified_ms": 1000}
    assert answer["directory"] == str(directory)


def test_a_missing_directory_is_an_empty_list(tmp_path: Path) -> None:
    client = client_of(site_at(tmp_path, events=tmp_path / "not-there"))

    assert client.get("/api/events").json()["recordings"] == []


def test_the_list_has_an_end_and_counts_what_it_leaves_out(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recordings, "RECORDINGS_MAX", 2)
    for number in range(4):
        (directory / f"{number}.pev").write_text("x")

    answer = recordings.list_recordings(directory)

    assert (len(answer["recordings"]), answer["left_out"]) == (2, 3)


def test_a_recording_is_counted_by_kind_and_sent_as_columns(client: TestClient, directory: Path) -> None:
    answer = client.get("/api/events/run.pev").json()

    rows = {row["kind"]: row for row in answer["kinds"]}
    assert {kind: (row["count"], row["open_count"]) for kind, row in rows.items()} == {
        "step": (4, 0),
        "tick": (4, 0),
        "left.open": (1, 1),
    }
    assert (
        rows["step"]["p50_ns"] <= rows["step"]["p99_ns"] <= rows["step"]["max_ns"] <= rows["step"]["total_ns"]
    )
    assert rows["tick"]["total_ns"] is None
    timeline = answer["timeline"]
    assert [timeline["names"][kind] for kind in timeline["kind"]] == ["tick", "step"] * 4 + ["left.open"]
    assert timeline["open"] == [8]
    assert {len(timeline[name]) for name in ("kind", "thread", "time_ns", "duration_ns")} == {9}
    assert (answer["event_count"], answer["lost"], answer["torn_bytes"], answer["closed"]) == (9, 0, 0, True)
    assert answer["process"]["pid"] == os.getpid()
    assert answer["path"] == str(directory / "run.pev")


def test_a_long_recording_is_cut_for_the_timeline_but_counted_whole(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recordings, "TIMELINE_MAX", 3)
    monkeypatch.setattr(recordings, "KINDS_MAX", 2)

    answer = client.get("/api/events/run.pev").json()

    assert (len(answer["timeline"]["kind"]), answer["event_count"]) == (3, 9)
    assert (len(answer["kinds"]), answer["kinds_left_out"]) == (2, 1)


def test_a_torn_recording_is_shown_up_to_the_tear(client: TestClient, directory: Path) -> None:
    whole = (directory / "run.pev").read_bytes()
    (directory / "torn.pev").write_bytes(whole + b"torn")

    answer = client.get("/api/events/torn.pev").json()

    assert (answer["event_count"], answer["torn_bytes"]) == (9, 4)


def test_one_event_comes_with_its_fields_and_one_past_the_end_does_not(client: TestClient) -> None:
    event = client.get("/api/events/run.pev/1").json()

    assert (event["kind"], event["fields"]) == ("step", {"step": 0})
    assert client.get("/api/events/run.pev/9").status_code == 404


def test_values_that_json_or_a_browser_would_change_travel_as_text() -> None:
    odd = [float("nan"), 2**60, b"\xff\x00", "\udcff", {"a": 1}, ("x", float("inf")), True, None, 1.5]

    plain = recordings.as_plain(odd)

    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert plain == ["nan", str(2**60), "ff00", "\\udcff", "{'a': 1}", ["x", "inf"], True, None, 1.5]
    assert len(recordings.as_text("x" * 1_000_000)) <= recordings.TEXT_MAX + 1


@pytest.mark.parametrize(
    "name",
    [
        "../secret.pev",
        "..%2fsecret.pev",
        "%2e%2e%2fsecret.pev",
        "..%5csecret.pev",
        "%2fetc%2fpasswd",
        "..",
        ".hidden.pev",
        "run.pev%00.pev",
        "run.pev%0a.pev",
        "notes.txt",
        "link.pev",
        "folder.pev",
        "pipe.pev",
        "x" * 300 + ".pev",
    ],
)
def test_no_name_leads_out_of_the_directory(client: TestClient, directory: Path, name: str) -> None:
    """Goal: V1, only regular files directly inside the directory are read; a link or a pipe is none."""
    (directory / "notes.txt").write_text("x")
    (directory / ".hidden.pev").write_bytes((directory / "run.pev").read_bytes())
    (directory / "link.pev").symlink_to(directory.parent / "secret.pev")
    (directory / "folder.pev").mkdir()
    os.mkfifo(directory / "pipe.pev")

    answer = client.get(f"/api/events/{name}")

    assert answer.status_code == 404
    assert "secret" not in answer.text


def test_a_file_that_is_no_recording_is_refused_with_a_reason_and_a_hint(
    client: TestClient, directory: Path
) -> None:
    (directory / "other.pev").write_text("something else")

    answer = client.get("/api/events/other.pev")

    assert answer.status_code == 422
    assert "other.pev" in answer.json()["error"]["message"]
    assert answer.json()["error"]["hint"]


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND"])
@pytest.mark.parametrize("path", ["/", "/api/events", "/api/events/run.pev", "/assets/x.js"])
def test_anything_but_reading_is_refused(client: TestClient, directory: Path, method: str, path: str) -> None:
    """Goal: V1, views never write."""
    before = (directory / "run.pev").read_bytes()

    answer = client.request(method, path, content=b"x")

    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")
    assert (directory / "run.pev").read_bytes() == before


def test_head_answers_like_get_without_a_body(client: TestClient) -> None:
    answer = client.head("/api/events")

    assert (answer.status_code, answer.content) == (200, b"")


@pytest.mark.parametrize(
    ("path", "status", "cache"),
    [
        ("/", 200, "no-cache"),
        ("/assets/index-1a2b.js", 200, "private, max-age=31536000, immutable"),
        ("/assets/gone.js", 404, "no-store"),
        ("/../server.py", 404, "no-store"),
        ("/api/datasets", 200, "no-store"),
        ("/api/events", 200, "no-store"),
        ("/api/events/run.pev", 200, "no-store"),
        ("/api/events/gone.pev", 404, "no-store"),
        ("/api/gone", 404, "no-store"),
        ("/api/doctor", 500, "no-store"),
    ],
)
def test_every_answer_carries_the_safety_headers(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, status: int, cache: str
) -> None:
    """Goal: V1. Method: pages, API, refusals and a planted defect of ours all show the same headers."""
    (tmp_path / "static/assets").mkdir(parents=True)
    (tmp_path / "static/index.html").write_text("<!doctype html><title>x</title>")
    (tmp_path / "static/assets/index-1a2b.js").write_text("1")
    monkeypatch.setattr(server, "STATIC", tmp_path / "static")
    monkeypatch.setattr(doctor, "examine", lambda **_: 1 / 0)
    client = client_of(site_at(directory.parent), broken=True)

    answer = client.get(path)

    assert answer.status_code == status
    assert answer.headers["cache-control"] == cache
    assert answer.headers["x-content-type-options"] == "nosniff"
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert ("sandbox" if path.startswith("/api") else "script-src 'self';") in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert "division by zero" not in answer.text


def test_a_checkout_without_the_bundle_says_how_to_build_it(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "STATIC", tmp_path / "nothing")
    client = client_of(site_at(directory.parent))

    answer = client.get("/")

    assert answer.status_code == 503
    assert "npm run build" in answer.text


def test_a_port_in_use_is_an_error_with_a_hint() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        with pytest.raises(UsageError, match=f"cannot listen on 127.0.0.1 port {port}") as caught:
            server.listen("127.0.0.1", port)

    assert caught.value.hint is not None


def test_the_bundle_is_small_and_asks_nobody_else() -> None:
    """Goal: offline and quick over a slow line. Method: weigh the built files; look for foreign hosts."""
    files = [path for path in server.STATIC.rglob("*") if path.is_file()]
    assert files, "the bundle is not built: npm ci && npm run build   (in web/)"

    assert sum(len(gzip.compress(path.read_bytes())) for path in files) < BUNDLE_GZIP_BYTES_MAX
    names = {"http://www.w3.org/"}  # name of a vocabulary (SVG, XHTML, MathML), never fetched
    for path in files:
        text = path.read_text()
        for name in names:
            text = text.replace(name, "")
        assert "http://" not in text
        assert "https://" not in text


def test_the_pages_never_turn_text_into_markup(root: Path) -> None:
    """Goal: V1. Method: the ways in which text becomes markup or code do not occur in the source."""
    sources = list((root / "web/src").rglob("*.ts*"))
    assert sources

    ways = ("innerhtml", "outerhtml", "adjacenthtml", "document.write", "eval(", "new function", "srcdoc")
    assert [(path.name, way) for path in sources for way in ways if way in path.read_text().lower()] == []


def test_importing_the_package_of_views_imports_no_server() -> None:
    code = "import sys, penstock.view.web; print([m for m in ('starlette', 'uvicorn') if m in sys.modules])"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
