"""`python -m benchmarks [NAME …]`: run all benchmarks, or those named. `--json` for one document per line."""

import argparse
import importlib
import inspect
import json
import pkgutil
import sys

import benchmarks
from benchmarks.table import Table


def main() -> int:
    """Run and print."""
    names = [m.name for m in pkgutil.iter_modules(benchmarks.__path__) if m.name.startswith("bench_")]
    known = [name.removeprefix("bench_") for name in names]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(known)}")
    parser.add_argument("--json", action="store_true")
    parser.add_argument(
        "--full", action="store_true", help="the large part as well, where there is one (hosts)"
    )
    parser.add_argument(
        "--faults", action="store_true", help="the fault matrix instead, where there is one (hosts)"
    )
    parser.add_argument(
        "--worlds", action="store_true", help="imagined worlds instead, where there are some (hosts)"
    )
    chosen = parser.parse_args()
    unknown = set(chosen.names) - set(known)
    if unknown:
        parser.error(f"no benchmark called {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    for name in chosen.names or known:
        work = importlib.import_module(f"benchmarks.bench_{name}").run
        wanted = {option: True for option in ("full", "faults", "worlds") if getattr(chosen, option)}
        lacking = sorted(set(wanted) - set(inspect.signature(work).parameters))
        if lacking:
            parser.error(f"{name} has no --{lacking[0]}")
        table: Table = work(**wanted)
        if chosen.json:
            print(json.dumps({"benchmark": name, **table.to_json()}))
        else:
            print(table.text(name))
    return 0


if __name__ == "__main__":
    sys.exit(main())
