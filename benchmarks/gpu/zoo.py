"""The state zoo on one accelerator: every case that runs there is bit-equal after a resume, refused, or named in ``run.unpinned``.

Gradient scalers scale half precision here, and BatchNorm is synchronised over two ranks that share the device. Several processes run a share of the
cases each. Run: `python -m benchmarks.gpu.zoo OUT.json`.
"""

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.zoo.harness import chosen

#: Processes at once; each holds up to two contexts of the device.
WORKERS = 12
PATIENCE_S = 400


def outcomes(names: list[str]) -> list[dict[str, Any]]:
    """What comes of cases; work is dealt out in turns."""
    environment = {**os.environ, "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    command = [sys.executable, "-m", "benchmarks.zoo.harness", "--device", "cuda"]
    workers = [
        subprocess.Popen([*command, *share], env=environment, stdout=subprocess.PIPE, text=True)
        for share in (names[number::WORKERS] for number in range(WORKERS))
        if share
    ]
    lines = [line for worker in workers for line in worker.communicate(timeout=PATIENCE_S)[0].splitlines()]
    return [json.loads(line) for line in lines if line.startswith("{")]


def main() -> int:
    """Run, write, and say what was not as expected."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    names = options.names or [case.name for case in chosen(device="cuda")]
    results = outcomes(names)
    astray = [result for result in results if result["outcome"] != result["expected"]]
    report = {
        "cases": len(names),
        "answered": len(results),
        "outcomes": Counter(result["outcome"] for result in results),
        "not as expected": astray,
        "names": sorted(f"{result['case']}: {result['outcome']}" for result in results),
    }
    options.out.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps({name: report[name] for name in ("cases", "answered", "outcomes", "not as expected")}))
    return 1 if astray or len(results) < len(names) else 0


if __name__ == "__main__":
    sys.exit(main())
