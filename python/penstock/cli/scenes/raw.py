"""Raw files as they lie around become a version: read at random, the same for ever, damage named."""

import gzip
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from penstock import Registry
from penstock.cli.scenes import insist
from penstock.errors import CorruptShard

_ROWS_PER_FILE = 20_000
_WORDS = [
    "water",
    "pressure",
    "turbine",
    "gradient",
    "batch",
    "step",
    "loss",
    "data",
    "token",
    "model",
    "the",
    "of",
    "and",
    "a",
    "to",
    "in",
]
_REGISTER = "import sys, penstock; penstock.Registry(sys.argv[1]).register('web', sys.argv[2])"
_TIMEOUT_S = 60


def play(place: Path) -> Iterator[str]:
    """Write raw files, register (through a kill), read, flip a bit, verify."""
    raw = place / "raw"
    texts = _write(raw)
    sizes = sum(path.stat().st_size for path in raw.iterdir())
    registry = Registry(place / "registry")

    victim = subprocess.Popen([sys.executable, "-c", _REGISTER, str(place / "registry"), str(raw)])
    try:
        victim.wait(0.25)
    except subprocess.TimeoutExpired:
        victim.kill()
        victim.wait(_TIMEOUT_S)
    visible = registry.datasets()
    insist("a killed registration is visible whole or not at all", holds=visible in ([], ["web"]))

    begun = time.perf_counter()
    version = registry.register("web", raw)
    took_s = time.perf_counter() - begun
    yield f"registered {len(list(raw.iterdir()))} raw files, {version.rows:,} rows, {sizes / 1e6:.0f} MB, in {took_s:.2f} s; files untouched"
    yield f"(an earlier registration was killed half-way and left {'nothing' if not visible else 'a whole version'} behind)"
    insist(
        "the same bytes are the same version", holds=registry.register("web", raw).address == version.address
    )

    chosen = random.Random(1).sample(range(version.rows), 5000)
    begun = time.perf_counter()
    rows = version.take(chosen)
    took_s = time.perf_counter() - begun
    insist(
        "every row is the one that was written",
        holds=[row["text"] for row in rows] == [texts[n] for n in chosen],
    )
    yield f"read {len(chosen):,} random rows in {took_s * 1e3:.0f} ms, also out of gzip, each checked against what was written"

    victim_file = raw / "b.jsonl"
    at = victim_file.stat().st_size // 2
    _flip_bit(victim_file, at)
    damages = registry.resolve("web").verify().damages
    insist(
        "a flipped bit is found",
        holds=len(damages) == 1 and damages[0].offset <= at < damages[0].offset + 65536,
    )
    first, stop = version.shard_rows("b.jsonl")
    insist("damaged rows are never delivered", holds=_refuses(registry, range(first, stop)))
    yield f"flipped one bit at byte {at:,} of {victim_file.name}: verify names {Path(damages[0].file).name}, byte {damages[0].offset:,}; reading refuses"


def _write(raw: Path) -> list[str]:
    draw = random.Random(7)
    texts: list[str] = []
    raw.mkdir()
    for name in ("a.jsonl", "b.jsonl", "c.jsonl.gz"):
        rows = [" ".join(draw.choices(_WORDS, k=draw.randint(5, 120))) for _ in range(_ROWS_PER_FILE)]
        lines = "".join(
            json.dumps({"id": len(texts) + n, "text": text}) + "\n" for n, text in enumerate(rows)
        ).encode()
        (raw / name).write_bytes(gzip.compress(lines, 6) if name.endswith(".gz") else lines)
        texts += rows
    return texts


def _flip_bit(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x20
    path.write_bytes(data)


def _refuses(registry: Registry, rows: range) -> bool:
    try:
        registry.resolve("web").take(rows)
    except CorruptShard:
        return True
    return False
