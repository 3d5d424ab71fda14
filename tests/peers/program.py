"""A program of its own that lets mosaicml-streaming and Megatron write files and read them again.

They take seconds to import and change how a process behaves; what they read is left beside the files as a pickle. TensorFlow
does the same in tests/formats/tensors.py.
"""

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
import types
from functools import cache
from pathlib import Path

import numpy as np

from tests.formats.reread import leave

ROOT = Path(__file__).resolve().parents[2]


def mosaic_files(folder: Path) -> None:
    """Samples of every encoding."""
    from tests.formats.mosaic import COLUMNS, bare_packages, samples

    bare_packages("streaming", "streaming.base")
    import json

    from streaming.base.format.mds.reader import MDSReader
    from streaming.base.format.mds.writer import MDSWriter

    place = folder / "mds"
    with MDSWriter(out=str(place), columns=COLUMNS) as writer:
        for sample in samples()[:20]:
            writer.write(sample)
    (shard,) = json.loads((place / "index.json").read_text())["shards"]
    reader = MDSReader.from_json(str(place), None, shard)
    leave(place / "shard.00000.mds", [reader.get_item(number) for number in range(20)])


def megatron_files(folder: Path) -> None:
    """Sequences in documents."""
    from tests.formats.mosaic import bare_packages

    bare_packages("megatron", "megatron.core", "megatron.core.datasets")
    # It wants one function that writes to the log, and would import all of Megatron for it.
    log = types.ModuleType("megatron.core.utils")
    vars(log)["log_single_rank"] = lambda *_, **__: None
    sys.modules["megatron.core.utils"] = log
    from megatron.core.datasets.indexed_dataset import IndexedDataset, IndexedDatasetBuilder

    builder = IndexedDatasetBuilder(str(folder / "a.bin"), dtype=np.uint16)
    for document in range(4):
        builder.add_document(np.arange(document * 3), [document, document * 2])
    builder.finalize(str(folder / "a.idx"))
    dataset = IndexedDataset(str(folder / "a"))
    ends = dataset.document_indices[1:].tolist()
    rows = [
        {"tokens": np.array(dataset[number]), "document": sum(end <= number for end in ends)}
        for number in range(len(dataset))
    ]
    leave(folder / "a.bin", rows)


@cache
def _run() -> tuple[Path, str]:
    folder = Path(tempfile.mkdtemp(prefix="penstock-peers-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    command = [sys.executable, "-W", "ignore", "-m", "tests.peers.program", str(folder)]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
    return folder, done.stderr[-4000:] if done.returncode else ""


def written() -> Path:
    """The folder that the program has filled, once for all tests of the process."""
    folder, problem = _run()
    assert not problem, problem
    return folder


if __name__ == "__main__":
    mosaic_files(Path(sys.argv[1]))
    megatron_files(Path(sys.argv[1]))
