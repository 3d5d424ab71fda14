"""What is remembered about hosts, and who is excluded because of it."""

import json
import multiprocessing
import os
import random
import threading
import time
from pathlib import Path
from typing import Unpack

import pytest

from penstock.errors import HistoryUnusable, HostExcluded, HostsExcluded
from penstock.process.exclusion.entry import EntryGuard, EntryLook
from penstock.process.exclusion.history import FileHistory, StoredHistory, note_seen, open_history, pasts
from penstock.process.exclusion.identity import HostIdentity, is_same_machine, own_identity
from penstock.process.exclusion.records import (
    LINE_BYTES_MAX,
    Record,
    RecordParts,
    line_of,
    new_record,
    records_of,
)
from penstock.process.exclusion.rule import WINDOW_S, Pasts, lost_at_most
from penstock.store import open_store

DAY_S = 86_400.0
#: In 2023: a line of the future is left alone.
NOW = 1_700_000_000.0


def machine(number: int, name: str = "", *, gpus: int = 0, clone: bool = False) -> HostIdentity:
    """A machine; a clone has the machine id of all clones."""
    return HostIdentity(
        name=name or f"gpu{number:02}",
        machine="image" if clone else f"m{number}",
        cards=(f"card{number}",),
        gpus=tuple(f"GPU-{number}-{place}" for place in range(gpus)),
    )


def line(kind: str, identity: HostIdentity, ago_s: float = 0.0, **more: Unpack[RecordParts]) -> Record:
    return new_record(kind, identity.name, f"it {kind}", identity=identity, at=NOW - ago_s, **more)


def judged(*records: Record) -> Pasts:
    return Pasts(records, now=NOW)


def test_two_failures_in_seven_days_exclude_and_the_exclusion_decays() -> None:
    host = machine(7)
    assert not judged(line("lost", host)).excluded()
    two = [line("lost", host, 6 * DAY_S), line("lost", host, DAY_S)]
    (past,) = judged(*two).excluded()
    assert past.exclusion is not None
    assert past.exclusion.until == pytest.approx(NOW + DAY_S)
    assert not Pasts(two, now=NOW + 1.5 * DAY_S).excluded()
    assert not judged(line("lost", host, WINDOW_S + 1), line("xid", host)).excluded()


def test_what_two_saw_is_one_event() -> None:
    host = machine(7)
    assert not judged(line("lost", host, 60), line("lost", host, 20)).excluded()
    same = [line("xid", host, ago_s, key="xid boot 1.5") for ago_s in (6 * DAY_S, 3 * DAY_S, 60)]
    assert not judged(*same).excluded()
    assert judged(*same, line("xid", host, 30, key="xid boot 9.5")).excluded()


def test_an_outlier_counts_in_three_lives() -> None:
    host = machine(7)
    slow = [line("outlier", host, 60 * number, job="a", life=number % 3) for number in range(3)]
    assert not judged(*slow, *slow).excluded()
    assert judged(*slow, line("lost", host)).excluded()
    assert not judged(*slow[:2], line("lost", host)).excluded()


def test_a_person_decides_until_another_decision() -> None:
    host = machine(7)
    out = line("excluded", host, 300 * DAY_S)
    assert judged(out).excluded()
    assert not judged(out, line("included", host, DAY_S)).excluded()
    assert not judged(line("excluded", host, DAY_S, until=NOW - 1)).excluded()
    failed = [line("lost", host, 3 * DAY_S), line("ecc", host, 2 * DAY_S)]
    assert judged(*failed).excluded()
    assert not judged(*failed, line("included", host, DAY_S)).excluded()


def test_a_machine_is_known_by_what_it_is_and_not_by_its_name() -> None:
    host = machine(7, gpus=2)
    known = judged(line("lost", host, 3 * DAY_S), line("ecc", host))

    def is_out(identity: HostIdentity) -> bool:
        past = known.of(identity, names=[identity.name])
        return past is not None and past.exclusion is not None

    assert is_out(machine(7, "renamed", gpus=2))
    assert not is_out(machine(8, "gpu07", gpus=2)), "a new machine with an old name"
    moved = HostIdentity(name="gpu99", machine="m99", cards=("card99",), gpus=("GPU-7-1", "GPU-99-0"))
    assert is_out(moved), "an excluded GPU in another machine"


def test_a_name_alone_is_believed_until_the_machine_is_seen() -> None:
    by_name = new_record("excluded", "gpu07", "by hand", at=NOW - DAY_S)
    past = judged(by_name).of(machine(7), names=["gpu07"])
    assert past is not None
    assert past.exclusion is not None
    seen = [new_record("seen", "gpu07", "", identity=machine(7), at=NOW - 2 * DAY_S), by_name]
    assert judged(*seen).of(machine(7, "other"), names=["other"]).exclusion is not None  # type: ignore[union-attr]
    assert judged(*seen).of(machine(8, "gpu07"), names=["gpu07"]) is None


def test_clones_of_one_image_are_different_machines() -> None:
    one, two = machine(1, clone=True), machine(2, clone=True)
    assert not is_same_machine(one, two)
    bare = [HostIdentity(name=name, machine="image") for name in ("gpu01", "gpu02")]
    assert not is_same_machine(*bare)
    assert is_same_machine(bare[0], HostIdentity(name="gpu01", machine="image"))
    gpus = [HostIdentity(name="", machine="image", gpus=(f"GPU-{number}",)) for number in range(2)]
    assert not is_same_machine(*gpus)
    known = judged(line("lost", one, DAY_S), line("ecc", one))
    assert [past.name for past in known.excluded()] == ["gpu01"]
    assert known.of(two, names=["gpu02"]) is None


def test_a_host_says_what_it_can_and_a_pod_does_not_say_what_its_image_says(tmp_path: Path) -> None:
    assert own_identity({}, root=tmp_path).machine == ""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/machine-id").write_text("uninitialized\n")
    assert own_identity({}, root=tmp_path).machine == ""
    (tmp_path / "etc/machine-id").write_text("3d1219c7c4c5404aaa1f6d2a48adfda4\n")
    here = own_identity({}, root=tmp_path)
    assert len(here.machine) == 16
    assert "3d12" not in here.machine
    pod = own_identity({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, root=tmp_path)
    assert (pod.machine, pod.name) == ("", "")
    told = {
        "KUBERNETES_SERVICE_HOST": "10.0.0.1",
        "PENSTOCK_MACHINE_ID": "c" * 31 + "d",
        "NODE_NAME": "node-3",
    }
    assert own_identity(told, root=tmp_path).name == "node-3"
    assert own_identity(told, root=tmp_path).machine not in ("", here.machine)
    folder = tmp_path / "proc/driver/nvidia/gpus/0000:1b:00.0"
    folder.mkdir(parents=True)
    (folder / "information").write_text(
        "Model: NVIDIA H200\nGPU UUID: \t GPU-513536b6-7d19-9063-b049-1e69664bb298\n"
    )
    assert own_identity({}, root=tmp_path).gpus == ("GPU-513536b6-7d19-9063-b049-1e69664bb298",)


@pytest.mark.parametrize("seed", range(30))
def test_torn_and_foreign_lines_cost_only_themselves(seed: int, tmp_path: Path) -> None:
    chosen = random.Random(seed)
    records = [line("lost", machine(number), number) for number in range(12)]
    data = b"".join(map(line_of, records))
    cut = chosen.randrange(len(data))
    torn = {data[:cut].count(b"\n")}
    broken = data[:cut] + bytes(chosen.randrange(256) for _ in range(chosen.randrange(1, 40))).replace(
        b"\n", b" "
    )
    end = data.index(b"\n", cut)
    path = tmp_path / "hosts.jsonl"
    path.write_bytes(
        broken
        + data[end:]
        + b'{"other": "program"}\n[1]\n\0\0\0\n'
        + data[: random.Random(seed).randrange(80)]
    )
    FileHistory(path).append([line("ecc", machine(99))])
    read = FileHistory(path).records()
    assert read == [
        *(record for place, record in enumerate(records) if place not in torn),
        line("ecc", machine(99)),
    ]


def test_lines_from_the_future_and_of_newer_versions_are_left_alone() -> None:
    data = line_of(line("lost", machine(1), -10 * DAY_S)) + b'{"v":9,"at":1,"kind":"lost","host":"a"}\n'
    assert records_of(data, now=NOW).foreign == 2


def test_a_line_is_short_whatever_stands_in_it() -> None:
    gpus = HostIdentity(gpus=tuple(f"GPU-{number:036}" for number in range(400)))
    long = new_record("lost", "x" * 4000, "why " * 4000, identity=gpus)
    assert len(line_of(long)) <= LINE_BYTES_MAX


def _append(place: str, writer: int, count: int) -> None:
    history = open_history(Path(place), place if "://" in place else None)
    for number in range(count):
        history.append([new_record("lost", f"w{writer}-{number}", "x" * 300)])


@pytest.mark.parametrize("kind", ["file", "store"])
def test_jobs_that_write_at_once_lose_nothing(kind: str, tmp_path: Path) -> None:
    place = str(tmp_path) if kind == "file" else f"file://{tmp_path}/history"
    kinds = {"file": multiprocessing.get_context("spawn").Process, "store": threading.Thread}
    writers = [kinds[kind](target=_append, args=(place, writer, 10)) for writer in range(3)]  # type: ignore[operator]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    names = sorted(
        record.host for record in open_history(Path(place), place if "://" in place else None).records()
    )
    assert names == sorted(f"w{writer}-{number}" for writer in range(3) for number in range(10))


def test_a_month_that_is_over_becomes_one_object_and_no_line_is_lost(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}/history")
    history = StoredHistory(store)
    old = [line("lost", machine(number), 80 * DAY_S) for number in range(5)]
    for number, record in enumerate(old):
        store.put_if_absent(f"hosts/2020-02/{number:08d}.json", line_of(record))
    history.append([line("ecc", machine(9))])
    assert len(history.records()) == 6
    names = [entry.name for entry in store.entries("hosts")]
    assert [name for name in names if "2020-02" in name] == ["hosts/2020-02.jsonl"]
    store.put_if_absent("hosts/2020-02/00000009.json", line_of(line("xid", machine(8), 80 * DAY_S)))
    assert len(history.records()) == len(history.records()) == 7


def test_a_home_that_cannot_be_written_is_said_and_keeps_nobody_out(tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_text("")
    history = open_history(place / "below", None)
    with pytest.raises(HistoryUnusable):
        history.append([line("lost", machine(1))])
    said: list[str] = []
    guard = EntryGuard(history, said.append)
    guard.note({"gpu01": EntryLook(machine(1))})
    guard.let_in("gpu01", EntryLook(machine(1)))
    assert any("cannot be used" in words for words in said)


def _history_of(tmp_path: Path, *hosts: HostIdentity) -> FileHistory:
    history = FileHistory(tmp_path / "hosts.jsonl")
    for host in hosts:
        for ago_s, kind in ((3 * DAY_S, "lost"), (0.0, "ecc")):
            history.append([new_record(kind, host.name, f"it {kind}", identity=host, at=time.time() - ago_s)])
    return history


def test_a_job_may_lose_a_tenth_of_its_hosts_and_one_in_any_case(tmp_path: Path) -> None:
    assert [lost_at_most(hosts) for hosts in (1, 4, 19, 20, 100)] == [1, 1, 1, 2, 10]
    guard = EntryGuard(_history_of(tmp_path, machine(1), machine(2)), print)
    looks = {f"gpu{number:02}": EntryLook(machine(number)) for number in range(1, 9)}
    with pytest.raises(HostsExcluded, match="2 of 8 hosts are excluded, and a job may lose 1") as refused:
        guard.left_out(looks, hosts=8)
    assert "gpu01" in str(refused.value)
    many = {f"gpu{number:02}": EntryLook(machine(number)) for number in range(1, 21)}
    left_out = guard.left_out(many, hosts=20)
    assert sorted(left_out) == ["gpu01", "gpu02"]
    assert "penstock hosts include gpu01" in left_out["gpu01"]


def test_an_excluded_host_that_joins_is_told_why_and_what_helps(tmp_path: Path) -> None:
    guard = EntryGuard(_history_of(tmp_path, machine(1)), print)
    with pytest.raises(HostExcluded, match="it lost; it ecc") as refused:
        guard.let_in("new-name", EntryLook(machine(1, "new-name")))
    assert "penstock hosts include" in str(refused.value.hint)
    guard.let_in("gpu01", EntryLook(machine(5, "gpu01")))


def test_who_has_which_name_is_written_down_once(tmp_path: Path) -> None:
    history = FileHistory(tmp_path / "hosts.jsonl")
    for _ in range(3):
        note_seen(history, pasts(history), [("gpu01", machine(1))])
    assert len(history.records()) == 1
    assert json.loads((tmp_path / "hosts.jsonl").read_text())["kind"] == "seen"
    assert os.stat(tmp_path / "hosts.jsonl").st_size < LINE_BYTES_MAX
