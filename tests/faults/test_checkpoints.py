"""Whatever happens to a run, it goes on from the newest verified checkpoint and ends bit-equal (S1, S2, S5, S7).

Real processes, killed with SIGKILL at every named moment of a save; real files, damaged on the disk; a real file system that is
full; a real S3 server behind a proxy that fails.
"""

import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

import penstock as ps
from penstock.state.ranks.clock import Clock, Wait
from tests.conftest import ROOT, need
from tests.faults.flaky import proxy
from tests.faults.gangs import STEPS, ends, start, stop, uninterrupted

MOMENTS = (
    "state.capture",
    "state.captured",
    "state.hashed",
    "store.write",
    "state.written",
    "state.parted",
    "state.assembled",
    "state.described",
    "state.committed",
)


def is_equal(place: Path | str, ranks: int = 1) -> None:
    """A further incarnation goes on and ends where an uninterrupted run does."""
    outcomes = ends(start(place, ranks))
    assert [outcome.get("content") for outcome in outcomes] == uninterrupted(ranks), outcomes


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_kill_at_any_moment_of_a_save_loses_nothing_that_was_committed(tmp_path: Path, moment: str) -> None:
    (killed,) = ends(start(tmp_path, points={0: f"{moment}=kill@3"}))
    assert killed["status"] == -signal.SIGKILL
    before = ps.Checkpoints(tmp_path, read_only=True).latest()
    assert before is not None
    # A capture begins while the save before it may still be under way.
    assert before.step in {"state.committed": (6,), "state.capture": (2, 4)}.get(moment, (4,))
    (resumed,) = ends(start(tmp_path))
    assert resumed == {"from": before.step, "content": uninterrupted(1)[0]}


@pytest.mark.parametrize("moment", ["state.captured", "store.write", "state.written", "state.parted"])
def test_a_rank_that_is_killed_leaves_no_half_checkpoint(tmp_path: Path, moment: str) -> None:
    gang = start(tmp_path, 3, points={2: f"{moment}=kill@2"})
    # The others are ended as the agent of a gang ends them, since one has died.
    assert ends(gang[2:])[0]["status"] == -signal.SIGKILL
    stop(gang[:2])
    for checkpoint in ps.Checkpoints(tmp_path, read_only=True).list():
        names = [file.name for file in checkpoint.manifest.files]
        assert all((tmp_path / name).exists() for name in names)
    is_equal(tmp_path, 3)


def damage_flip(path: Path) -> None:
    """One bit."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def damage_torn(path: Path) -> None:
    """A page that was never written."""
    data = bytearray(path.read_bytes())
    middle = len(data) // 2 // 4096 * 4096
    data[middle : middle + 4096] = bytes(4096)
    path.write_bytes(data)


def damage_cut(path: Path) -> None:
    """The second half is gone."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def damage_missing(path: Path) -> None:
    """The file is gone."""
    path.unlink()


def damage_stale(path: Path) -> None:
    """The file of another step in its place."""
    other = next(
        candidate for candidate in path.parents[1].rglob("*.safetensors") if candidate.parent != path.parent
    )
    path.write_bytes(other.read_bytes())


@pytest.mark.parametrize("damage", [damage_flip, damage_torn, damage_cut, damage_missing, damage_stale])
def test_damage_that_one_rank_finds_moves_all_to_the_newest_good_one(tmp_path: Path, damage: object) -> None:
    assert all("content" in outcome for outcome in ends(start(tmp_path, 2, steps=6)))
    looking = ps.Checkpoints(tmp_path, read_only=True)
    # Only rank 1 reads the second file.
    names = [f.name for f in looking.at(6).manifest.files if "/6-0/1-" in f.name]
    assert callable(damage)
    damage(tmp_path / names[0])
    outcomes = ends(start(tmp_path, 2))
    assert [outcome["from"] for outcome in outcomes] == [4, 4]
    assert [outcome["content"] for outcome in outcomes] == uninterrupted(2)
    assert [checkpoint.step for checkpoint in looking.list() if checkpoint.damage] in ([6], [])


def test_two_incarnations_at_once_and_the_older_one_stops(tmp_path: Path) -> None:
    zombie = start(tmp_path, points={0: "state.assembled=hold:3@2"})
    wait = Wait(60, Clock())
    while ps.Checkpoints(tmp_path, read_only=True).latest() is None:
        assert wait.again()
    successor = ends(start(tmp_path))
    assert successor[0] == {"from": 2, "content": uninterrupted(1)[0]}
    assert ends(zombie)[0]["error"] == "Fenced"
    incarnations = [checkpoint.incarnation for checkpoint in ps.Checkpoints(tmp_path, read_only=True).list()]
    assert incarnations == sorted(incarnations)
    assert incarnations[-1] == 1


def test_a_slow_disk_holds_saves_up_and_loses_none(tmp_path: Path) -> None:
    (outcome,) = ends(start(tmp_path, points={0: "store.write=hold:0.2"}))
    assert outcome == {"from": 0, "content": uninterrupted(1)[0]}
    assert [checkpoint.step for checkpoint in ps.Checkpoints(tmp_path, read_only=True).list()] == [4, 6, 8]


def test_a_full_disk_is_said_and_what_was_saved_stays(tmp_path: Path) -> None:
    """A file system of 12 MiB in a mount namespace of its own: room for two checkpoints of 4 MiB, not for three."""
    unshare = need("unshare", remedy="it is part of util-linux")
    kept = tmp_path / "kept"
    kept.mkdir()
    script = (
        f"mount -t tmpfs -o size=12m none {tmp_path}/disk && "
        f"sed 's/last=3/last=9/' tests/faults/trainer.py > {tmp_path}/greedy.py && "
        f'PYTHONPATH=. "$0" {tmp_path}/greedy.py {tmp_path}/disk 0 1 a {STEPS} && '
        f"cp -r {tmp_path}/disk/. {kept}"
    )
    (tmp_path / "disk").mkdir()
    done = subprocess.run(
        [unshare, "--mount", "--map-root-user", "sh", "-c", script, sys.executable],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "No space left on device" in done.stdout, (done.stdout, done.stderr)
    checkpoint = ps.Checkpoints(kept, read_only=True).latest()
    assert checkpoint is not None
    assert checkpoint.step == 4
    is_equal(kept)


def test_an_object_store_that_fails_now_and_then_is_asked_again(s3_bucket: str) -> None:
    place = f"{s3_bucket}/{uuid.uuid4().hex}"
    with proxy(os.environ["AWS_ENDPOINT_URL"], lambda count: count % 5 == 0) as endpoint:
        outcomes = ends(start(place, 2, environment={"AWS_ENDPOINT_URL": endpoint}))
    assert [outcome.get("content") for outcome in outcomes] == uninterrupted(2), outcomes
    latest = ps.Checkpoints(place, read_only=True).latest()
    assert latest is not None
    assert latest.step == STEPS


def test_an_object_store_that_stays_down_loses_only_what_was_not_committed(s3_bucket: str) -> None:
    place = f"{s3_bucket}/{uuid.uuid4().hex}"
    assert "content" in ends(start(place, steps=4))[0]
    assert ps.Checkpoints(place, read_only=True).latest() is not None
    # Everything fails after some requests: the state was loaded by then, and what is saved after that is lost.
    with proxy(os.environ["AWS_ENDPOINT_URL"], lambda count: count > 25) as endpoint:
        gang = start(place, environment={"AWS_ENDPOINT_URL": endpoint})
        wait = Wait(6, Clock())
        while gang[0].poll() is None and wait.again():
            pass
        stop(gang)
    latest = ps.Checkpoints(place, read_only=True).latest()
    assert latest is not None
    assert latest.step in (4, 6)
    is_equal(place)
