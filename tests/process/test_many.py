"""P2 and P5 of 256 ranks: started, restarted and stopped like two, and what they cost is bounded."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

from tests.process.jobs import PATIENCE_S, Running, is_alive, role, wait_until

RANKS = 256
#: Two pipes, a second copy of each with the keeper, two logs and a place for times a rank, and a few for the agent itself.
FILES_MAX = 7 * RANKS + 64
MEMORY_MAX_KB = 48 << 10


def running_in(running: Running, life: int) -> list[int]:
    """The processes of all ranks, once they are in that life."""

    def workers() -> list[int]:
        gang = running.state().gangs[0]
        return [worker["pid"] for worker in gang.workers] if gang.incarnation == life else []

    wait_until(lambda: len(workers()) == RANKS, f"{RANKS} ranks are in life {life}", timeout_s=60)
    return workers()


def cost(pids: list[int]) -> tuple[int, int]:
    """Open files, and memory in kilobytes that nobody else shares or a share of what others do."""
    files = sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in pids)
    rollups = [Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines() for pid in pids]
    return files, sum(int(line.split()[1]) for lines in rollups for line in lines if line.startswith("Pss:"))


def test_many_ranks_live_again_and_end_and_their_supervision_stays_small(
    run_roles: Callable[..., Running],
) -> None:
    """Goal: no limit is hit and nothing leaks. Method: kill one of 256, wait for 256 others, stop; look at files and memory in between."""
    running = run_roles(role("rank", "", ranks=RANKS, command=["sleep", "1000"]))
    first = running_in(running, 0)
    state = running.state()
    supervision = [state.keeper, state.agent, state.coordinator]
    before = cost(supervision)

    os.kill(first[99], signal.SIGKILL)

    second = running_in(running, 1)
    assert not any(map(is_alive, first))
    assert all(map(is_alive, second))
    assert running.state().agent == state.agent
    after = cost(supervision)
    assert after[0] <= min(FILES_MAX, before[0] + 8)
    assert after[1] < MEMORY_MAX_KB
    assert running.launcher is not None
    running.launcher.send_signal(signal.SIGTERM)
    running.launcher.communicate(timeout=PATIENCE_S * 3)
    assert not any(map(is_alive, [*second, *supervision]))
    assert running.job.phase() == "stopped"
