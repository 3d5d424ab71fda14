"""Coming from Grain: the same ArrayRecord files, with filters and packing that keep an exact, elastic resume."""

import itertools
import tempfile
from pathlib import Path

import grain
import jax
import numpy as np
import tensorflow as tf
from array_record.python.array_record_module import ArrayRecordWriter

import penstock as ps
import penstock.jax


def write_records(path: Path) -> None:
    """Tokenised documents as tf.train.Example, one record each."""
    draw = np.random.default_rng(1)
    writer = ArrayRecordWriter(str(path), "group_size:1")
    for _ in range(500):
        tokens = tf.train.Int64List(value=draw.integers(0, 97, draw.integers(5, 60)))
        features = tf.train.Features(feature={"tokens": tf.train.Feature(int64_list=tokens)})
        writer.write(tf.train.Example(features=features).SerializeToString())
    writer.close()


def tokens_of(record: bytes) -> np.ndarray:
    """What a Grain pipeline's first map does."""
    return np.array(tf.train.Example.FromString(record).features.feature["tokens"].int64_list.value)


def main(folder: Path) -> None:
    """Read the same records with both, then pack, train on all devices, stop and go on."""
    path = folder / "docs.array_record"
    write_records(path)
    before = grain.MapDataset.source(grain.sources.ArrayRecordDataSource(str(path))).map(tokens_of)

    registry = ps.Registry(folder / "registry")
    version = registry.register("docs", path)  # the file stays where and as it is
    assert version.rows == len(before) == 500
    assert all(np.array_equal(before[n], row["tokens"]) for n, row in enumerate(version.take(range(500))))

    registry.export("docs@1", "bin-idx", folder / "ready", name="ready")  # tokens in records: once
    stages = [ps.Filter("len(tokens) > 20"), ps.Pack(64, "fit")]  # .filter(…), BestFitPackIterDataset
    recipe = ps.Recipe(sources=[ps.Source("ready@1")], seed=42, batch=8 * jax.device_count(), stages=stages)
    with penstock.jax.loader(recipe, registry=registry) as batches:  # no ShardByJaxProcess
        digests = [batch.digest for batch in itertools.islice(batches, 8)]
        state = batches.state_dict()  # instead of iterator.get_state()
        digests += [batch.digest for batch in itertools.islice(batches, 3)]
    with penstock.jax.loader(recipe, registry=registry) as batches:
        batches.load_state_dict(state)
        assert [batch.digest for batch in itertools.islice(batches, 3)] == digests[8:]
    print(f"{version.rows} records are the same; 3 batches after the resume are the same")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        main(Path(place))
