"""``python -m benchmarks.gpu.host_check OUT.json``: the GPU part of `penstock hosts check`, five times: how long it takes, and how far its figures differ.

The goal is 10 s on an H200 and figures within 5 %. The process of each run is a new one, as in a check.
"""

import json
import statistics
import sys
import time
from pathlib import Path

import msgspec

from penstock.process.health.facts.compute_probe import compute
from penstock.process.health.facts.gpu_facts import look_at_gpus

RUNS = 5
LIMIT_S = 30.0
GOAL_S, GOAL_SPREAD = 10.0, 0.05


def main(words: list[str]) -> int:
    """Measure, write, and say whether the goals are met."""
    look = look_at_gpus()
    if not look.gpus:
        sys.stderr.write(f"no GPU answers: {look.problem or 'there is none'}\n")
        return 2
    seconds, runs = [], []
    for _ in range(RUNS):
        begun = time.perf_counter()
        runs.append(compute(device="gpu", limit_s=LIMIT_S))
        seconds.append(time.perf_counter() - begun)
    problems = [run.problem or run.unmeasured for run in runs if run.problem or run.unmeasured]
    rows: list[dict[str, object]] = []
    spreads: list[float] = []
    for place, gpu in enumerate(runs[0].devices):
        products = _figures([run.devices[place].product for run in runs if len(run.devices) > place])
        copies = _figures([run.devices[place].copy for run in runs if len(run.devices) > place])
        rows.append({"device": gpu.device, "name": gpu.name, "product": products, "copy": copies})
        spreads += [products["spread"], copies["spread"]]
    spread = max(spreads, default=1.0)
    met = not problems and max(seconds) <= GOAL_S and spread <= GOAL_SPREAD
    document = {
        "gpus": msgspec.to_builtins(look),
        "seconds": seconds,
        "devices": rows,
        "wrong": [device.device for run in runs for device in run.devices if device.wrong],
        "problems": problems,
        "goals_met": met,
    }
    Path(words[0]).write_text(json.dumps(document, indent=1) + "\n")
    sys.stdout.write(
        f"{max(seconds):.1f} s at most, figures within {spread:.1%}: goals {'met' if met else 'NOT met'}\n"
    )
    return 0 if met else 1


def _figures(values: list[float]) -> dict[str, float]:
    middle = statistics.median(values)
    return {"median": middle, "spread": (max(values) - min(values)) / middle if middle else 1.0}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
