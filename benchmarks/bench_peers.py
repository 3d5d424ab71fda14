"""How fast shuffled batches of 8 rows of 2,048 tokens come from Penstock and from its peers, over the same rows.

Each contender reads its own form of the rows, in a process of its own, from a warm page cache. They take turns, and the best
round of each counts: the one that other programs disturbed least. Before that, rows of each are held against what was written
(of packed documents only the shape). A peer that is not installed is named and left out.
"""

import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.peers import PEERS, make_rows
from benchmarks.table import Table

ROUNDS = 6
PROGRAM = Path(__file__).with_name("peers.py")
REFERENCE = "numpy memmap, random rows"
OURS = "Penstock"


def run() -> Table:
    """Measure in one run, in alternating rounds; the best of each."""
    table = Table(
        "shuffled rows faster than from any peer's loader, as a share of a random memmap read",
        "M tokens/s",
        smaller_is_better=False,
    )
    print(f"load average before: {os.getloadavg()[0]:.2f} on {os.cpu_count()} cores", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        rates = best_rates(folder, prepare(folder))
    for name, value in rates.items():
        table.add(name, value / 1e6)
    ours = rates["Penstock, rows"]
    fastest = max(
        (n for n in rates if n != REFERENCE and not n.startswith(OURS)), key=rates.__getitem__, default=""
    )
    if fastest:
        table.claim += f"; {ours / rates[fastest]:.2f} x the fastest peer here, {fastest}"
    print(f"load average after: {os.getloadavg()[0]:.2f}", file=sys.stderr)
    return table


def prepare(folder: str) -> list[str]:
    """Write the rows in every form; the names of those that can be read here."""
    make_rows(folder)
    names = []
    for name, peer in PEERS.items():
        if peer.package and importlib.util.find_spec(peer.package) is None:
            print(f"absent: {name} ({peer.package} is not installed)", file=sys.stderr)
            continue
        subprocess.run(command("write", name, folder), env=environment(), check=True, capture_output=True)
        names.append(name)
    return names


def best_rates(folder: str, names: list[str]) -> dict[str, float]:
    """Tokens per second of each contender's best round."""
    children = {
        name: subprocess.Popen(
            command("serve", name, folder),
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for name in names
    }
    try:
        for name, child in children.items():
            assert answer(child) == "ready", f"{name} did not give the rows that were written"
        rates = dict.fromkeys(names, 0.0)
        for _ in range(ROUNDS):
            for name, child in children.items():
                assert child.stdin is not None
                child.stdin.write("go\n")
                child.stdin.flush()
                rates[name] = max(rates[name], float(answer(child)))
    finally:
        for child in children.values():
            child.kill()
            child.wait()
    return rates


def answer(child: "subprocess.Popen[str]") -> str:
    """The next line of a child."""
    assert child.stdout is not None
    return child.stdout.readline().strip()


def command(purpose: str, name: str, folder: str, *more: str) -> list[str]:
    """The program of one contender."""
    return [sys.executable, "-W", "ignore", str(PROGRAM), purpose, name, folder, *more]


def environment() -> dict[str, str]:
    """Of the children: the tree's own packages can be imported, and nothing of the network is looked for."""
    root = str(PROGRAM.parent.parent)
    return {**os.environ, "PYTHONPATH": root, "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
