"""`python -m benchmarks [NAME …]`: run all benchmarks, or those named. `--json` for one document per line."""

import argparse
import importlib
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
    chosen = parser.parse_args()
    unknown = set(chosen.names) - set(known)
    if unknown:
        parser.error(f"no benchmark called {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    for name in chosen.names or known:
        table: Table = importlib.import_module(f"benchmarks.bench_{name}").run()
        if chosen.json:
            print(json.dumps({"benchmark": name, **table.to_json()}))
        else:
            print(table.text(name))
    return 0


if __name__ == "__main__":
    sys.exit(main())
