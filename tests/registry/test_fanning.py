"""I1 with another engine: registering and measuring on a real Ray cluster of several nodes gives the same bytes as doing it here."""

import json
import subprocess
import sys
from pathlib import Path

from penstock import Registry
from penstock.registry.tokenize.tokens import TokenLength
from tests.registry.conftest import WriteRows
from tests.registry.test_measuring import write_tokenizer

_ON_RAY = """
import json, sys
import ray
from ray.cluster_utils import Cluster
from penstock import Registry, errors
from penstock.registry.tokenize.tokens import TokenLength

place, raw, bad, tokenizer = sys.argv[1:]
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
cluster.add_node(num_cpus=1)
ray.init(address=cluster.address, logging_level="ERROR", log_to_driver=False)
registry = Registry(place)
told = []
version = registry.register("web", raw, engine="ray", watch=told.append)
column = registry.measure("web", TokenLength(tokenizer), engine="ray")
try:
    registry.register("bad", bad, engine="ray")
except errors.BadRow as problem:
    refused = [problem.line, problem.hint is not None]
nodes = len([node for node in ray.nodes() if node["Alive"]])
print(json.dumps({"digest": version.digest, "column": column.key, "parts": [p.values for p in column.parts],
                  "tokens": column.payload_version, "told": told[-1].shards_done, "nodes": nodes, "refused": refused}))
ray.shutdown()
cluster.shutdown()
"""


def test_a_ray_cluster_gives_the_same_bytes(write_rows: WriteRows, tmp_path: Path) -> None:
    raws = [write_rows(f"{number}.jsonl", number * 500, 500) for number in range(6)]
    tokenizer = write_tokenizer(tmp_path / "tokenizer.json")
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"id": 1}\nnot json\n')
    here = Registry(tmp_path / "here")
    version = here.register("web", raws[0].parent)
    column = here.measure("web", TokenLength(tokenizer))

    command = [
        sys.executable,
        "-c",
        _ON_RAY,
        str(tmp_path / "there"),
        str(raws[0].parent),
        str(bad),
        str(tokenizer),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)

    assert done.returncode == 0, done.stderr[-3000:]
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["nodes"] == 2
    assert answer["digest"] == version.digest
    assert answer["column"] == column.key
    assert answer["parts"] == [part.values for part in column.parts]
    assert answer["tokens"] == column.payload_version
    assert answer["told"] == 6
    assert answer["refused"] == [2, True]
    objects = {path.name: path.read_bytes() for path in (tmp_path / "here/objects").iterdir()}
    assert {path.name: path.read_bytes() for path in (tmp_path / "there/objects").iterdir()} == objects
