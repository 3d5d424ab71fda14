"""Many writers at once, and writers that are killed: D6, nothing half visible, nothing lost."""

import json
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from penstock import Registry
from tests.registry.conftest import WriteRows

_REGISTER = """
import sys
import penstock
place, name, *files = sys.argv[1:]
sys.stdin.readline()
version = penstock.Registry(place).register(name, files)
print(version.number, version.digest)
"""


def start(place: str, name: str, *files: Path) -> "subprocess.Popen[str]":
    """A process that is ready to register and waits for a line."""
    command = [sys.executable, "-c", _REGISTER, place, name, *map(str, files)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def go(process: "subprocess.Popen[str]") -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


# A memory store lives in one process, so it has no such writers.
@pytest.mark.parametrize("registry", ["directory", "s3"], indirect=True)
def test_concurrent_registrations_get_different_numbers(registry: Registry, write_rows: WriteRows) -> None:
    """Goal: two writers cannot make the same number. Method: real processes register different bytes at once."""
    raws = [write_rows(f"{n}.jsonl", n, 10 + n) for n in range(4)]
    processes = [start(registry.url, "web", raw) for raw in raws]
    for process in processes:
        go(process)
    answers = [process.communicate(timeout=120)[0].split() for process in processes]
    assert sorted(int(number) for number, _ in answers) == [1, 2, 3, 4]
    assert {v.number: v.digest for v in registry.versions("web")} == {int(n): digest for n, digest in answers}


def test_what_another_registered_since_one_looked_is_found(
    local: Registry, write_rows: WriteRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: the same bytes are one version at every interleaving. Method: another registers them after this one saw no version."""
    raw = write_rows("a.jsonl", 0, 20)
    put = local.place.put_if_absent
    others: list[str] = []

    def put_later(name: str, data: bytes) -> bool:
        if name.startswith("objects/") and not others:
            others.append("begun")
            others.append(Registry(local.url).register("web", raw).address)
        return put(name, data)

    monkeypatch.setattr(local.place, "put_if_absent", put_later)
    assert local.register("web", raw).address == "web@1"
    assert others[-1] == "web@1"
    assert len(local.versions("web")) == 1


def test_concurrent_registrations_of_the_same_bytes_are_one_version(
    local: Registry, write_rows: WriteRows
) -> None:
    raw = write_rows("a.jsonl", 0, 20_000)
    processes = [start(local.url, "web", raw) for _ in range(4)]
    for process in processes:
        go(process)
    answers = {process.communicate(timeout=120)[0] for process in processes}
    assert len(answers) == 1
    assert len(local.versions("web")) == 1


def test_a_registration_killed_at_any_moment_leaves_all_or_nothing(local: Registry, tmp_path: Path) -> None:
    """Goal: D6. Method: kill real registrations after random delays; whatever is visible is whole, and the next
    registration succeeds."""
    raws = []
    for number in range(12):
        raw = tmp_path / "raw" / f"{number:02d}.jsonl"
        raw.parent.mkdir(exist_ok=True)
        raw.write_text(
            "".join(json.dumps({"id": number * 5000 + n, "text": "x" * 200}) + "\n" for n in range(5000))
        )
        raws.append(raw)
    draw = random.Random(11)
    killed = 0
    takes_s = 0.0
    for name in ("scanned", "known"):
        # The second one finds what the first has scanned, as all later ones do.
        undisturbed = start(local.url, name, *raws)
        begun = time.monotonic()
        go(undisturbed)
        undisturbed.communicate(timeout=60)
        takes_s = time.monotonic() - begun
    for round_number in range(12):
        process = start(local.url, f"web{round_number}", *raws)
        go(process)
        timer = threading.Timer(draw.uniform(0.0, takes_s), process.kill)
        timer.start()
        process.communicate(timeout=60)
        timer.cancel()
        killed += process.returncode == -signal.SIGKILL
        for name in local.datasets():
            for version in local.versions(name):
                assert version.rows == 60_000
                assert version[59_999]["id"] == 59_999
    assert killed >= 3
    version = local.register("web", raws)
    assert version.rows == 60_000
    assert version.verify().ok


def test_a_killed_registration_goes_on_where_it_was(
    local: Registry, write_rows: WriteRows, tmp_path: Path
) -> None:
    raws = [write_rows(f"{n}.jsonl", n * 10, 10) for n in range(5)]
    local.register("some", raws[:3])
    before = {entry.name: entry.stamp for entry in local.store.entries("scans")}
    local.register("all", raws)
    after = {entry.name: entry.stamp for entry in local.store.entries("scans")}
    assert len(before) == 3
    assert len(after) == 5
    assert before.items() <= after.items()


def test_a_changed_file_is_scanned_again(local: Registry, write_rows: WriteRows) -> None:
    raw = write_rows("a.jsonl", 0, 10)
    first = local.register("web", raw)
    raw.write_text(raw.read_text().replace("row 3", "ROW 3"))
    second = local.register("web", raw)
    assert (first.number, second.number) == (1, 2)
    assert second[3]["text"].startswith("ROW 3")
