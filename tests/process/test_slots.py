"""Many jobs on one machine: slots never overlap, who does not fit waits, and whoever ends in whatever way makes room."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.cli.main import main
from penstock.process.job.launch import agent_path
from tests.process.jobs import PATIENCE_S, Running, is_alive, wait_until
from tests.process.slotted import LOOK, describe, leased_by, let_go, machine, python, role, saw

Begin = Callable[..., Running]
RANK = [sys.executable, "-c", LOOK]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Starts jobs on a machine with two GPUs."""
    with machine(tmp_path, PENSTOCK_GPUS="2") as start:
        yield start


def slot_table(tmp_path: Path) -> dict[str, list[dict[str, object]]]:
    """What `penstock slots` would show."""
    environment = {**os.environ, "PENSTOCK_SLOTS": str(tmp_path / "slots"), "PENSTOCK_GPUS": "2"}
    done = subprocess.run([agent_path(), "slots"], env=environment, capture_output=True, check=True)
    document: dict[str, list[dict[str, object]]] = json.loads(done.stdout)
    return document


def kill_rank(running: Running) -> None:
    os.kill(running.state().workers[0][1]["pid"], signal.SIGKILL)


def kill_agent(running: Running) -> None:
    os.kill(running.state().agent, signal.SIGKILL)


def kill_keeper(running: Running) -> None:
    os.kill(running.state().keeper, signal.SIGKILL)


def kill_launcher(running: Running) -> None:
    assert running.launcher is not None
    os.kill(running.launcher.pid, signal.SIGKILL)


def kill_keeper_and_agent(running: Running) -> None:
    """In the same instant: neither can act."""
    state = running.state()
    for signum in (signal.SIGSTOP, signal.SIGKILL):
        os.kill(state.keeper, signum)
        os.kill(state.agent, signum)


def stop(running: Running) -> None:
    os.kill(running.state().agent, signal.SIGTERM)


@pytest.mark.parametrize(
    "leave",
    [let_go, stop, kill_rank, kill_agent, kill_keeper, kill_launcher, kill_keeper_and_agent],
)
def test_the_second_waits_and_starts_when_the_first_is_gone_in_any_way(
    begin: Begin, leave: Callable[[Running], None]
) -> None:
    """Goal: a queue when full. Method: two jobs want both GPUs; the first ends well, is stopped, or anything of it is killed."""
    first = begin(role(*RANK, ranks=2, slots={"gpus": 1}), name="first")
    ones = [saw(first, f"rank-{rank}") for rank in (0, 1)]
    second = begin(role(*RANK, ranks=2, slots={"gpus": 1}), name="second")
    state = second.wait_phase("queued")
    assert state.reason == f"waits for 2 GPUs; 2 of 2 are held by {first.job.id}"
    assert not list(second.marks.iterdir())

    leave(first)

    others = [saw(second, f"rank-{rank}") for rank in (0, 1)]
    assert {one["CUDA_VISIBLE_DEVICES"] for one in ones} == {"0", "1"}
    assert {other["CUDA_VISIBLE_DEVICES"] for other in others} == {"0", "1"}
    # Whoever sees a GPU now is the only one who lives and sees it.
    assert not any(is_alive(one["pid"]) for one in ones)
    let_go(second)
    assert second.wait_phase("succeeded").exit_code == 0


@pytest.mark.parametrize("how", ["exec", "zygote"])
def test_jobs_beside_each_other_share_no_gpu_core_or_port(begin: Begin, tmp_path: Path, how: str) -> None:
    """Goal: slots never overlap. Method: what the ranks of two running jobs see."""
    cores = len(os.sched_getaffinity(0))
    need = {"gpus": 1, "cpus": max(cores // 2, 1), "ports": 2, "memory_bytes": 64 << 20}
    running = [begin(role(**python(LOOK, how=how), slots=need), name=name) for name in ("one", "two")][
        : 2 if cores > 1 else 1
    ]
    seen = [saw(job) for job in running]

    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "PENSTOCK_PORTS", "MASTER_PORT"):
        values = [value for view in seen for value in view[name].split(",")]
        assert len(values) == len(set(values)), name
    ports = [port for view in seen for port in [*view["PENSTOCK_PORTS"].split(","), view["MASTER_PORT"]]]
    assert len(ports) == len(set(ports)) == 3 * len(seen)
    processors = [cpu for view in seen for cpu in view["cpus"]]
    assert len(processors) == len(set(processors)) == need["cpus"] * len(seen)
    assert {view["OMP_NUM_THREADS"] for view in seen} == {str(need["cpus"])}
    held = {
        (slot["job"], slot["rank"], slot["pid"]) for slot in slot_table(tmp_path)["held"] if slot["slot"] == 0
    }
    assert held == {(job.job.id, 0, view["pid"]) for job, view in zip(running, seen, strict=True)}


@pytest.mark.parametrize("how", ["exec", "zygote"])
def test_a_rank_holds_its_own_locks_and_no_others(begin: Begin, tmp_path: Path, how: str) -> None:
    """Goal: a lock lasts as long as who uses it, whatever happens to the agent. Method: open files of ranks and of who serves them."""
    running = begin(role(**python(LOOK, how=how), ranks=2, slots={"gpus": 1}))
    pids = [saw(running, f"rank-{rank}")["pid"] for rank in (0, 1)]
    state = running.state()
    assert {worker["how"] for _, worker in state.workers} == {how}
    entries = slot_table(tmp_path)["held"]
    meeting = {slot["name"] for slot in entries if slot["slot"] is None}
    slots = {slot["pid"]: slot["name"] for slot in entries if slot["slot"] is not None}

    assert len(meeting) == 1
    for pid in pids:
        assert leased_by(pid) == meeting | {slots[pid]}
    for pid in filter(None, (state.keeper, state.coordinator, state.zygote)):
        assert leased_by(pid) == set()


def test_a_stop_touches_its_own_job_only_and_a_queued_job_leaves_at_once(
    begin: Begin, tmp_path: Path
) -> None:
    """Goal: P6 and the queue. Method: stop a queued job, then a third gets what it waited for."""
    first = begin(role(*RANK, slots={"gpus": 2}), name="first")
    pid = saw(first)["pid"]
    second = begin(role(*RANK, slots={"gpus": 2}), name="second")
    second.wait_phase("queued")
    third = begin(role(*RANK, slots={"gpus": 1}), name="third")
    third.wait_phase("queued")
    assert [ticket["job"] for ticket in slot_table(tmp_path)["waiting"]] == [second.job.id, third.job.id]

    stop(second)

    assert second.wait_phase("stopped").exit_code == 128 + signal.SIGTERM
    assert is_alive(pid)
    assert first.job.phase() == "running"
    let_go(first)
    assert saw(third)["CUDA_VISIBLE_DEVICES"] == "0"


def test_a_killed_waiter_leaves_the_queue(begin: Begin, tmp_path: Path) -> None:
    """Goal: nobody waits behind the dead. Method: keeper and agent of a waiter are killed at once."""
    first = begin(role(*RANK, slots={"gpus": 1}), name="first")
    saw(first)
    second = begin(role(*RANK, slots={"gpus": 2}), name="second")
    second.wait_phase("queued")
    third = begin(role(*RANK, slots={"gpus": 1}), name="third")
    assert third.wait_phase("queued").reason == f"waits for 1 GPU; {second.job.id} waits before it"

    kill_keeper_and_agent(second)

    assert saw(third)["CUDA_VISIBLE_DEVICES"] == "1"
    assert [ticket["job"] for ticket in slot_table(tmp_path)["waiting"]] == []


def test_an_agent_that_dies_while_its_job_waits_is_replaced_and_the_job_waits_on(begin: Begin) -> None:
    """Goal: a life that was ordered and not begun is not taken for one that ended. Method: kill the agent of a queued job."""
    first = begin(role(*RANK, slots={"gpus": 2}), name="first")
    saw(first)
    second = begin(role(*RANK, slots={"gpus": 2}, budget={"crash": 3}), name="second")
    agent = second.wait_phase("queued").agent

    os.kill(agent, signal.SIGKILL)

    wait_until(lambda: second.state().agent != agent, "another agent is there")
    let_go(first)
    assert saw(second)["CUDA_VISIBLE_DEVICES"] == "0,1"
    let_go(second)
    assert second.wait_phase("succeeded").incarnation == 0


def test_a_killed_coordinator_costs_nobody_the_place_in_the_queue(begin: Begin, tmp_path: Path) -> None:
    """Goal: P4. Method: kill the coordinator of a queued job; the ticket stays the same."""
    first = begin(role(*RANK, slots={"gpus": 2}), name="first")
    saw(first)
    second = begin(role(*RANK, slots={"gpus": 2}), name="second")
    coordinator = second.wait_phase("queued").coordinator
    tickets = slot_table(tmp_path)["waiting"]

    os.kill(coordinator, signal.SIGKILL)

    wait_until(lambda: second.state().coordinator not in (0, coordinator), "another coordinator is there")
    assert second.job.phase() == "queued"
    assert slot_table(tmp_path)["waiting"] == tickets
    let_go(first)
    saw(second)


def test_a_worker_that_comes_back_alone_has_its_own_slot(begin: Begin) -> None:
    """Goal: slots of a role whose workers live alone. Method: kill one of two; the other does not notice."""
    running = begin(role(*RANK, ranks=2, restart="one", slots={"gpus": 1}, budget={"crash": 1}))
    seen = [saw(running, f"rank-{rank}") for rank in (0, 1)]
    assert {view["CUDA_VISIBLE_DEVICES"] for view in seen} == {"0", "1"}

    os.kill(seen[0]["pid"], signal.SIGKILL)

    assert saw(running, "rank-0", life=1)["CUDA_VISIBLE_DEVICES"] == seen[0]["CUDA_VISIBLE_DEVICES"]
    assert is_alive(seen[1]["pid"])


def test_no_two_ranks_ever_use_a_gpu_at_once_whoever_is_killed(begin: Begin, tmp_path: Path) -> None:
    """Goal: slots never overlap in time. Method: each rank locks a file that stands for its GPU, and says so if somebody has it."""
    code = (
        "import fcntl, os, sys\n"
        f"gpu = open(os.path.join({str(tmp_path)!r}, 'gpu-' + os.environ['CUDA_VISIBLE_DEVICES']), 'w')\n"
        "try: fcntl.flock(gpu, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "except OSError: sys.exit(99)\n"
    ) + LOOK
    crowd = [begin(role(sys.executable, "-c", code, slots={"gpus": 1}), name=f"job{n}") for n in range(6)]
    ways = [let_go, kill_agent, kill_rank, kill_keeper, kill_keeper_and_agent, stop]

    served: list[Running] = []
    while len(served) < len(crowd):
        wait_until(lambda: any(has_started(job) for job in crowd if job not in served), "somebody is served")
        job = next(job for job in crowd if job not in served and has_started(job))
        served.append(job)
        ways[len(served) - 1](job)

    for job in crowd:
        wait_until(
            lambda job=job: job.job.phase() in ("succeeded", "failed", "stopped", "lost"), "it is over"
        )
        assert job.state().exit_code != 99


def has_started(running: Running) -> bool:
    return (running.marks / "rank-0.0.seen").exists()


def test_slots_are_kept_from_life_to_life_and_the_port_is_new(begin: Begin) -> None:
    """Goal: a restart does not queue. Method: kill a rank while another job waits for its GPUs."""
    first = begin(role(*RANK, slots={"gpus": 2}, budget={"crash": 1}), name="first")
    before = saw(first)
    second = begin(role(*RANK, slots={"gpus": 2}), name="second")
    second.wait_phase("queued")

    kill_rank(first)

    after = saw(first, life=1)
    assert after["CUDA_VISIBLE_DEVICES"] == before["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert after["MASTER_PORT"] != before["MASTER_PORT"]
    assert second.job.phase() == "queued"


def test_a_spare_takes_over_from_the_slot_where_a_rank_failed(begin: Begin) -> None:
    """Goal: ranks and spares are held, and a slot is devices. Method: one rank with a spare is killed; it comes back elsewhere."""
    running = begin(role(*RANK, spares=1, slots={"gpus": 1}, budget={"crash": 1}))
    assert saw(running)["CUDA_VISIBLE_DEVICES"] == "0"

    kill_rank(running)

    assert saw(running, life=1)["CUDA_VISIBLE_DEVICES"] == "1"


def test_what_the_machine_never_has_is_an_error_at_once(begin: Begin) -> None:
    """Goal: nobody waits for ever. Method: three GPUs of two."""
    running = begin(role(*RANK, ranks=3, slots={"gpus": 1}))
    assert running.launcher is not None
    _, words = running.launcher.communicate(timeout=PATIENCE_S)
    assert words.decode() == "error: rank: 3 GPUs are wanted, and this machine has 2\n"
    assert running.launcher.returncode == 2
    assert running.job.phase() == "failed"


def test_roles_that_start_together_are_served_together(begin: Begin) -> None:
    """Goal: two jobs cannot each hold half of what both need. Method: two roles with a GPU each, twice."""
    pair = [role(*RANK, name="train", slots={"gpus": 1}), role(*RANK, name="eval", slots={"gpus": 1})]
    first = begin(*pair, name="first")
    seen = {saw(first, f"{name}-0")["CUDA_VISIBLE_DEVICES"] for name in ("train", "eval")}
    second = begin(*pair, name="second")

    assert second.wait_phase("queued").reason == f"waits for 2 GPUs; 2 of 2 are held by {first.job.id}"
    assert seen == {"0", "1"}
    let_go(first)
    assert {saw(second, f"{name}-0")["CUDA_VISIBLE_DEVICES"] for name in ("train", "eval")} == {"0", "1"}


def test_a_task_gives_back_what_it_held_for_who_comes_after(begin: Begin) -> None:
    """Goal: roles one after the other need no more than the largest. Method: both want both GPUs."""
    task = role("true", name="prepare", kind="task", slots={"gpus": 2})
    running = begin(task, role(*RANK, name="train", after=["prepare"], slots={"gpus": 2}))
    assert saw(running, "train-0")["CUDA_VISIBLE_DEVICES"] == "0,1"


def test_a_port_that_was_asked_for_by_number_is_nobody_elses(begin: Begin) -> None:
    """Goal: two jobs never get the same port. Method: both ask for the same one."""
    first = begin(role(*RANK, master_port=29_999), name="first")
    assert saw(first)["MASTER_PORT"] == "29999"
    second = begin(role(*RANK, master_port=29_999), name="second")
    state = second.wait_phase("failed")
    assert state.reason == f"port 29999; it is held by {first.job.id}"
    assert first.job.phase() == "running"


def test_a_job_inside_a_rank_lives_on_what_the_rank_has(begin: Begin, tmp_path: Path) -> None:
    """Goal: no job waits for itself. Method: a rank that holds all processors starts a job that wants one of them."""
    inner = describe(tmp_path / "inner", role(*RANK, slots={"cpus": 1}))
    cores = len(os.sched_getaffinity(0))
    outer = begin(role(str(agent_path()), "launch", str(inner), slots={"cpus": cores}))
    assert len(saw(outer)["cpus"]) == 1
    let_go(outer)
    assert outer.wait_phase("succeeded").exit_code == 0


def test_the_command_shows_what_there_is_who_holds_it_and_who_waits(
    begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PENSTOCK_SLOTS", str(tmp_path / "slots"))
    monkeypatch.setenv("PENSTOCK_GPUS", "2")
    first = begin(role(*RANK, spares=1, slots={"gpus": 1, "memory_bytes": 1 << 30}), name="first")
    pid = saw(first)["pid"]
    second = begin(role(*RANK, slots={"gpus": 1}), name="second")
    second.wait_phase("queued")

    assert main(["slots", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert main(["slots"]) == 0
    text = " ".join(capsys.readouterr().out.split())

    rows = [(slot["job"], slot["rank"], slot["pid"]) for slot in shown["held"] if slot["slot"] == 0]
    assert rows == [(first.job.id, 0, pid)]
    assert [(ticket["job"], ticket["for"]) for ticket in shown["waiting"]] == [(second.job.id, "1 GPU")]
    assert "GPUs 2 2 0" in text
    assert f"{first.job.id} rank-0 {pid} 0 1.07 GB" in text
    assert f"{first.job.id} rank-spare" in text
    assert f"{second.job.id} 1 GPU" in text


def test_a_directory_of_locks_that_is_not_ours_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    monkeypatch.setenv("PENSTOCK_SLOTS", str(tmp_path / "open"))
    assert main(["slots"]) == 2
    assert "not a directory that only user" in capsys.readouterr().err
