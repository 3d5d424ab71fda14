"""How long a version of 1,000 shards takes to open, against reading its manifest's bytes."""

import tempfile
from pathlib import Path

from benchmarks.table import Table, best_of
from penstock import Registry

SHARDS = 1000


def run() -> Table:
    """Measure in one run."""
    table = Table(f"a registered version of {SHARDS:,} shards opens in under 50 ms", "ms")
    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder) / "raw"
        raw.mkdir()
        for number in range(SHARDS):
            (raw / f"{number:04d}.jsonl").write_text(
                "".join(f'{{"id": {number * 10 + n}}}\n' for n in range(10))
            )
        place = Path(folder) / "registry"
        version = Registry(place).register("web", raw)
        manifest = place / "objects" / version.digest.removeprefix("b3:")
        table.add("read the manifest's bytes", best_of(manifest.read_bytes) * 1e3)
        table.add("open the version", best_of(lambda: Registry(place).resolve("web@1")) * 1e3)
        table.add(
            "open it and read its last row", best_of(lambda: Registry(place).resolve("web@1")[-1]) * 1e3
        )
    return table
