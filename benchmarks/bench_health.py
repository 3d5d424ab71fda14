"""`penstock hosts check` over hosts that are all this machine: how long it takes, and that more hosts do not take longer.

Each host has a launcher, keeper, agent and coordinator of its own, so the start of many hosts on few cores is most of the time; the examiner's own
time is what `--json` calls seconds. No product is measured, because every host would load torch.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.table import Table

GOAL_S = 20.0
FEW, MANY = 3, 8
LIMIT_S = 180.0


def run() -> Table:
    """Measure in one run."""
    table = Table("a check of hosts over the 20 s that it may take; at most 1", "of what is asked")
    few_s, few_all_s = _check(FEW)
    many_s, many_all_s = _check(MANY)
    table.add(f"{FEW} hosts", few_all_s / GOAL_S, f"{few_all_s:.1f} s, of which the examiner {few_s:.1f} s")
    table.add(
        f"{MANY} hosts", many_all_s / GOAL_S, f"{many_all_s:.1f} s, of which the examiner {many_s:.1f} s"
    )
    return table


def _check(hosts: int) -> tuple[float, float]:
    """Seconds of the examiner, and from the first command to its report."""
    with tempfile.TemporaryDirectory() as folder, socket.socket() as handle:
        handle.bind(("127.0.0.1", 0))
        port = handle.getsockname()[1]
        handle.close()
        variables = {
            **os.environ,
            "PENSTOCK_HOME": f"{folder}/home",
            "PENSTOCK_LOCAL": f"{folder}/local",
        }
        words = ["hosts", "check", "--nnodes", str(hosts), "--rdzv-endpoint", f"127.0.0.1:{port}", "--no-key"]
        words += ["--device", "none", "--json", "--host-history", "none"]
        begun = time.perf_counter()
        outputs = [Path(folder) / f"output-{number}" for number in range(hosts)]
        running = []
        for number, output in enumerate(outputs):
            command = [sys.executable, "-m", "penstock.cli.main", *words, "--node-rank", str(number)]
            with output.open("wb") as file:
                running.append(
                    subprocess.Popen(command, env=variables, stdout=file, stderr=subprocess.DEVNULL)
                )
        for process in running:
            process.wait(LIMIT_S)
        took_s = time.perf_counter() - begun
        report = json.loads(outputs[0].read_text().splitlines()[-1])
        assert len(report["hosts"]) == hosts
        assert report["meetings"], "hosts met in pairs"
        return float(report["seconds"]), took_s
