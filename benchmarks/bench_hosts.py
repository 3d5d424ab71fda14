"""Many hosts as one job, on this machine: real keepers, agents and coordinators that join, idle, answer and lose each other.

Every row is a figure over what is asked of it, so 1 and less is what was asked; the words behind it have the figure itself. The agent is
the one in the package: `make` builds it for development, a wheel has it from `cargo build --release`, which is smaller and quicker.
`--full` adds 1,000 and 2,000 hosts and the simulated 100,000 and 1,000,000; `--faults` runs the long part of the fault matrix instead, and
`--worlds` imagined worlds by the thousand: leaders that are lost, and random faults.
"""

import json
import os
import statistics
import subprocess
from pathlib import Path
from typing import Any

from benchmarks.host_faults import run_faults
from benchmarks.host_swarm import apart, hosts_possible, limits
from benchmarks.table import Table
from penstock.process.job.launch import agent_path

ROOT = Path(__file__).parent.parent
SCENES = "benchmarks.host_scenes"
#: What is asked, in seconds, KB and shares of a core.
JOINED_S = 1.0
PSS_KB = 1500.0
IDLE_SHARE = 0.10
PS_S = {64: 0.15, 250: 0.15, 1000: 0.15, 2000: 0.4}
TERM_S = 4.0
DEATH_RATIO = 1.5
RANKS_RATIO = 1.15
EXECUTABLE_BYTES = 4.5e6
#: Worlds of so many hosts, with a fan-out, in which the leader is lost; and small worlds with random faults.
LEADERS = ((1000, 10_000, 25), (20, 100_000, 64))
WORLDS = 4000
#: Hosts, virtual seconds and deaths; what they may take in seconds and bytes.
SIMULATED = ((100_000, 60, 300, 30.0, 1e9), (1_000_000, 60, 3000, 600.0, 8e9))
SIMULATION = [
    "cargo",
    "run",
    "--release",
    "--locked",
    "-p",
    "penstock-process",
    "--example",
    "hosts_simulation",
    "--",
]


def run(*, full: bool = False, faults: bool = False, worlds: bool = False) -> Table:
    """Measure in one run."""
    if faults:
        return run_faults()
    if worlds:
        return _worlds()
    table = Table("figures over what is asked of them; at most 1", "of what is asked")
    table.add("what is asked", 1.0, f"load {os.getloadavg()[0]:.1f}; {_limits()}")
    for hosts in (64, 250, 1000, 2000) if full else (64, 250):
        _idle(table, hosts)
    _loss(table)
    _death(table)
    _ranks(table)
    _executable(table)
    if full:
        for simulated in SIMULATED:
            _simulated(table, *simulated)
    return table


def _limits() -> str:
    return ", ".join(f"{name} {value}" for name, value in limits().items())


def _idle(table: Table, wanted: int) -> None:
    hosts, why = hosts_possible(wanted)
    if hosts < wanted:
        table.add(f"{wanted} hosts", float("nan"), f"not run: this machine allows {hosts} ({why})")
        return
    seen = apart(SCENES, ["idle", str(hosts)])
    name = f"{hosts} hosts"
    table.add(
        f"{name}: joined after the last start",
        seen["joined_s"] / JOINED_S,
        f"{seen['joined_s']:.2f} s (starting took {seen['started_s']:.1f} s; all heard after {seen['heard_s']:.2f} s,"
        f" all ranks run after {seen['running_s']:.2f} s)",
    )
    parts = ", ".join(f"{part} {kb:.0f}" for part, kb in seen["pss_kb"].items())
    resident = ", ".join(f"{part} {kb / 1000:.1f} MB" for part, kb in seen["rss_kb"].items())
    pss_kb = sum(seen["pss_kb"].values())
    table.add(
        f"{name}: memory of each",
        pss_kb / PSS_KB,
        f"PSS {pss_kb:.0f} KB ({parts}), leader's coordinator {seen['leader_pss_kb']:.0f}; RSS {resident}",
    )
    shares = ", ".join(f"{part} {share:.1%}" for part, share in seen["idle_shares"].items())
    table.add(
        f"{name}: idle",
        seen["idle_share"] / IDLE_SHARE,
        f"{seen['idle_share']:.1%} of a core for all ({shares}); load {seen['load']:.1f}",
    )
    table.add(
        f"{name}: penstock ps",
        seen["ps_s"] / PS_S[wanted],
        f"{seen['ps_s']:.3f} s, of which the question to all {seen['question_s']:.3f} s",
    )


def _loss(table: Table) -> None:
    for hosts in (4, 64):
        took = apart(SCENES, ["loss", str(hosts)])["took_s"]
        worst = max(took)
        table.add(
            f"leader of {hosts} hosts lost → another leads", worst / TERM_S, f"{_seconds(took)}, lease 30 s"
        )


def _death(table: Table) -> None:
    one, four = (apart(SCENES, ["death", str(hosts)])["took_s"] for hosts in (1, 4))
    ratio = statistics.median(four) / statistics.median(one)
    table.add(
        "a rank killed → 8 ranks back, 4 hosts over one",
        ratio / DEATH_RATIO,
        f"{ratio:.2f} x: {_seconds(four)} over {_seconds(one)}",
    )


def _ranks(table: Table) -> None:
    one, eight = (apart(SCENES, ["ranks", str(hosts)])["took_s"] for hosts in (1, 8))
    ratio = statistics.median(eight) / statistics.median(one)
    table.add(
        "64 executed ranks begin, 8 hosts over one",
        ratio / RANKS_RATIO,
        f"{ratio:.2f} x: {_seconds(eight)} over {_seconds(one)}; without the command's own Python",
    )


def _executable(table: Table) -> None:
    """Of the newest release build, which is what wheels have; else of the one that is installed."""
    release = ROOT / "target" / "release" / "penstock-agent"
    path = release if release.exists() else agent_path()
    size = path.stat().st_size
    kind = (
        "release"
        if path == release
        else "of development, not stripped: `cargo build --release -p penstock-process`"
    )
    table.add("executable", size / EXECUTABLE_BYTES, f"{size / 1e6:.2f} MB, {kind}")


def _simulated(
    table: Table, hosts: int, seconds: int, deaths: int, limit_s: float, limit_bytes: float
) -> None:
    name = f"{hosts} simulated hosts, {seconds} s, {deaths} deaths"
    if not (ROOT / "crates/penstock-process/examples/hosts_simulation.rs").exists():
        table.add(name, float("nan"), "not run: the example hosts_simulation is not in this checkout")
        return
    words = ["--hosts", str(hosts), "--seconds", str(seconds), "--deaths", str(deaths)]
    done = subprocess.run([*SIMULATION, *words], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        table.add(name, float("nan"), f"failed: {done.stderr.strip().splitlines()[-1:]}")
        return
    seen: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    took_s, used_bytes = float(seen["wall_s"]), float(seen["peak_mb"]) * (1 << 20)
    table.add(
        name,
        max(took_s / limit_s, used_bytes / limit_bytes),
        f"{took_s:.1f} s of {limit_s:.0f}, {used_bytes / 1e6:.0f} MB of {limit_bytes / 1e6:.0f}",
    )


def _worlds() -> Table:
    """Imagined worlds in which no rank may end, run twice or be without orders in the end; a failing seed is named."""
    table = Table("seeds in which something was wrong; at most none", "seeds")
    for count, hosts, fanout in LEADERS:
        words = ["--leaders", str(count), "--hosts", str(hosts), "--fanout", str(fanout)]
        done = subprocess.run([*SIMULATION, *words], cwd=ROOT, capture_output=True, text=True, check=False)
        name = f"{count} leaders of {hosts} imagined hosts lost: worlds in which a rank ended"
        if done.returncode != 0:
            table.add(name, float("nan"), f"failed: {done.stderr.strip().splitlines()[-1:]}")
            continue
        seen: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        table.add(
            name,
            float(len(seen["seeds_with_ended_ranks"])),
            f"seeds {seen['seeds_with_ended_ranks']}; a lease had {seen['least_rest_ms'] / 1000:.1f} s left at least,"
            f" all had one of another leader after {seen['longest_ms'] / 1000:.1f} s; {seen['cpu_s']:.0f} s of processor time",
        )
    environment = {**os.environ, "PENSTOCK_SEEDS": str(WORLDS), "PENSTOCK_ALL": "1"}
    words = [
        "cargo",
        "test",
        "--locked",
        "-p",
        "penstock-process",
        "--test",
        "hosts",
        "--",
        "whatever_happens",
    ]
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    failed = [line for line in (done.stdout + done.stderr).splitlines() if " failed; " in line]
    built = "test result:" in done.stdout
    table.add(
        f"{WORLDS} worlds each with random faults: ordinary, of two hosts, elastic",
        float(len(failed)) if built else float("nan"),
        "; ".join(failed[:4]),
    )
    return table


def _seconds(took: list[float]) -> str:
    return "/".join(f"{one:.2f}" for one in sorted(took)) + " s"
