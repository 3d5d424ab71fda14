"""Feeds that Python finishes (records, random maps) over a store that fails for a while: the same step comes, and comes right."""

import json
import os
import tarfile
import uuid
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.store import open_store
from tests.faulty.faults import Reset, Status
from tests.faulty.proxy import Proxy
from tests.operations.conftest import LIMITS
from tests.operations.reading import reading

ROWS, BATCH = 96, 16
STEPS = 2 * ROWS // BATCH
_MAP = """
[[stages]]
kind = "map"
function = "tests.data.token_maps:noisy"
random = true
"""


def write(folder: Path, form: str) -> list[Path]:
    """Two shards of a form; the second comes after six steps."""
    draws = np.random.default_rng(5)
    paths = [folder / f"{number}.{form}" for number in range(2)]
    for number, path in enumerate(paths):
        rows = [
            {"id": number * ROWS + n, "text": "word " * int(draws.integers(1, 300)), "seen": [n, n + 1]}
            for n in range(ROWS)
        ]
        if form == "jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        elif form == "parquet":
            pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=20)
        elif form == "npy":
            np.save(path, draws.integers(1, 9_000, (ROWS, 32), dtype=np.uint16))
        else:
            with tarfile.open(path, "w") as archive:
                for row in rows:
                    member = tarfile.TarInfo(f"{row['id']:04}.json")
                    data = json.dumps(row).encode()
                    member.size = len(data)
                    archive.addfile(member, BytesIO(data))
    return paths


@pytest.fixture
def proxy(s3_bucket: str) -> Iterator[Proxy]:
    with Proxy(os.environ["AWS_ENDPOINT_URL"]) as proxy:
        yield proxy


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ("jsonl", ()),
        ("jsonl", ("ahead",)),
        ("parquet", ("ahead",)),
        ("tar", ()),
        ("npy", ()),
        ("npy", ("ahead",)),
    ],
)
def test_a_store_that_fails_for_a_while_costs_an_error_and_nothing_else(
    s3_bucket: str, proxy: Proxy, tmp_path: Path, form: str, words: tuple[str, ...]
) -> None:
    """Goal: what is asked for again comes right. Method: break the second shard, ask twice, mend it, read to the end."""
    raw, store = tmp_path / "raw", f"{s3_bucket}/{uuid.uuid4().hex}"
    raw.mkdir()
    for path in write(raw, form):
        open_store(store).put_if_absent(path.name, path.read_bytes())
    registry = ps.Registry(tmp_path / "registry")
    near, far = registry.register("near", raw), registry.register("far", store)
    assert near.digest == far.digest
    text = f'batch = {BATCH}\nshuffle = "none"\n[[sources]]\nname = "{{}}@1"\nepochs = 1\n{_MAP if form == "npy" else ""}'
    for name in ("near", "far"):
        (tmp_path / f"{name}.toml").write_text(
            text.format(name).replace(f'"{name}@1"', f'"{name}@1"\nalias = "x"')
        )
    with ps.open(ps.Recipe.load(tmp_path / "near.toml"), registry=registry, threads=0) as feed:
        expected = [batch.digest for batch in feed]
    assert len(expected) == STEPS
    variables = {**LIMITS, "AWS_ENDPOINT_URL": proxy.url, "PENSTOCK_CACHE": str(tmp_path / "cache")}
    rule = proxy.add(Status(503), method="GET", path=f"1.{form}")
    with reading(registry.url, str(tmp_path / "far.toml"), *words, variables=variables) as reader:
        digests = []
        while "error" not in (answer := reader.batch()):
            digests.append(answer["digest"])
            assert len(digests) < STEPS
        assert answer["error"] == "StoreThrottled"
        assert "error" in reader.batch()
        assert rule.happened
        proxy.heal()
        # Another fault, which the store itself rides out.
        proxy.add(Reset(100), times=1, method="GET", path=f"1.{form}")
        assert digests + reader.rest(STEPS - len(digests)) == expected
        reader.end()
