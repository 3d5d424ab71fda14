"""
Examples and other records, and their writing by TensorFlow itself (and by array_record).

Run as a program, in a process of its own: TensorFlow is large, and starts threads that tests should not have.
"""

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tests.formats.reread import leave

ROOT = Path(__file__).resolve().parents[2]
RECORDS = 500


def rows() -> list[dict[str, Any]]:
    """Features as they must come back: numbers as arrays, byte strings alone unless there are several."""
    random = np.random.default_rng(5)
    expected: list[dict[str, Any]] = []
    for at in range(RECORDS):
        row = {
            "empty": np.array([], dtype=np.float32),
            "floats": random.normal(size=at % 40).astype(np.float32),
            "image": random.bytes(at % 300),
            "label": np.array([-at if at % 2 else at << 40], dtype=np.int64),
            "words": [b"w%d" % word for word in range(at % 4)],
        }
        if at % 3 == 0:
            row["rare"] = np.arange(3)
        expected.append(dict(sorted(row.items())))
    return expected


def blobs() -> list[dict[str, Any]]:
    """Records that are no Examples."""
    random = np.random.default_rng(6)
    return [{"data": b"record %d " % at + random.bytes(at % 400)} for at in range(RECORDS)]


def example(row: dict[str, Any]) -> bytes:
    """A row as TensorFlow serialises it."""
    import tensorflow as tf

    def feature(value: Any) -> Any:
        if isinstance(value, bytes | list):
            values = value if isinstance(value, list) else [value]
            return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
        if value.dtype == np.int64:
            return tf.train.Feature(int64_list=tf.train.Int64List(value=value))
        return tf.train.Feature(float_list=tf.train.FloatList(value=value))

    features = {name: feature(value) for name, value in row.items()}
    data: bytes = tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()
    return data


def features(record: bytes) -> dict[str, Any]:
    """An Example as TensorFlow parses it: the kind and the values of each feature."""
    import tensorflow as tf

    parsed = {}
    for name, feature in tf.train.Example.FromString(record).features.feature.items():
        kind = feature.WhichOneof("kind")
        parsed[name] = (kind, list(getattr(feature, kind).value) if kind else [])
    return parsed


def main(folder: Path) -> None:
    """Write all files."""
    import tensorflow as tf
    from array_record.python.array_record_module import ArrayRecordWriter

    def write(name: str, records: list[bytes], packing: str = "") -> None:
        with tf.io.TFRecordWriter(str(folder / name), packing) as writer:
            for record in records:
                writer.write(record)

    examples = [example(row) for row in rows()]
    data: list[bytes] = [row["data"] for row in blobs()]
    writer = ArrayRecordWriter(str(folder / "examples.array_record"), "group_size:1")
    for record in [*examples[:5], b"\xff\xff", *examples[5:]]:
        writer.write(record)
    writer.close()
    for name, packing in (
        ("examples.tfrecord", ""),
        ("examples.tfrecord.gz", "GZIP"),
        ("blobs.tfrecord", ""),
    ):
        write(name, data if name.startswith("blobs") else examples, packing)
        read_records = [
            bytes(record.numpy()) for record in tf.data.TFRecordDataset(str(folder / name), packing)
        ]
        parsed = [
            {"data": packed} if name.startswith("blobs") else features(packed) for packed in read_records
        ]
        leave(folder / name, parsed)
    write("blobs.tfrecord.gz", data, "GZIP")
    write("examples.tfrecord.zlib", examples, "ZLIB")
    write("broken.tfrecord", [*examples[:5], b"\xff\xff", *examples[5:9]])
    write("kinds.tfrecord", [example({"a": b"x"}), example({"a": np.arange(2)}), example({"a": b"y"})])
    context = tf.train.Features(feature={"id": tf.train.Feature(int64_list=tf.train.Int64List(value=[1]))})
    steps = tf.train.FeatureList(feature=[tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"a"]))])
    lists = tf.train.FeatureLists(feature_list={"steps": steps})
    sequence = tf.train.SequenceExample(context=context, feature_lists=lists)
    write("sequences.tfrecord", [sequence.SerializeToString()] * 3)


@cache
def written() -> Path:
    """The folder that the program has filled, once for all tests of the process; it goes away with the process."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-tensors-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    command = [sys.executable, "-W", "ignore", "-m", "tests.formats.tensors", str(folder)]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return folder


if __name__ == "__main__":
    main(Path(sys.argv[1]))
