"""Coming from MosaicML Streaming: MDS shards are read as they are, and mixed, tokenised and resumed without a service in between."""

import tempfile
from pathlib import Path

import numpy as np
from streaming import MDSWriter, StreamingDataset
from tokenizers import Tokenizer, models, pre_tokenizers

import penstock as ps


def write_shards(folder: Path, samples: list[dict[str, object]]) -> None:
    """Shards with text and with tokens, written by Streaming itself."""
    columns = {"id": "int", "text": "str", "tokens": "ndarray:uint16"}
    with MDSWriter(out=str(folder), columns=columns, size_limit=1 << 15) as writer:
        for sample in samples:
            writer.write(sample)


def main(folder: Path) -> None:
    """Read the same shards with both, then train from their text and from their tokens."""
    draw = np.random.default_rng(1)
    documents = [draw.integers(0, 97, draw.integers(5, 60)).astype(np.uint16) for _ in range(600)]
    samples = [{"id": n, "text": " ".join(map(str, d)), "tokens": d} for n, d in enumerate(documents)]
    write_shards(folder / "mds", samples)
    before = StreamingDataset(local=str(folder / "mds"), shuffle=False, batch_size=1)

    registry = ps.Registry(folder / "registry")
    version = registry.register("web", folder / "mds")  # index.json is not needed
    for old, new in zip(before, version.take(range(600)), strict=True):
        assert (old["id"], old["text"]) == (new["id"], new["text"])
        np.testing.assert_array_equal(old["tokens"], new["tokens"], strict=True)  # values and type

    words = Tokenizer(models.WordLevel({str(n): n for n in range(98)}, unk_token="97"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.save(str(folder / "tokenizer.json"))
    registry.export("web@1", "bin-idx", folder / "ready", name="ready", fields=["tokens"])  # with lineage
    recipe = ps.Recipe(
        sources=[  # Stream(proportion=0.8), Stream(proportion=0.2)
            ps.Source("web@1", weight=0.8, stages=[ps.Tokenize(str(folder / "tokenizer.json"))]),
            ps.Source("ready@1", weight=0.2),
        ],
        seed=9176,  # shuffle_seed
        batch=16,
        stages=[ps.Pack(64)],
    )
    with ps.open(recipe, registry=registry) as feed:
        batches = [next(feed) for _ in range(10)]
        cursor = feed.cursor  # instead of state_dict(num_samples, from_beginning)
        expected = next(feed)["tokens"].copy()
    assert {batch.origin(row)[0].source for batch in batches for row in range(16)} == {"web", "ready"}
    lanes = [ps.open(recipe, lane=ps.Lane(k, of=4), registry=registry, cursor=cursor) for k in range(4)]
    assert np.array_equal(np.concatenate([next(lane)["tokens"] for lane in lanes]), expected)
    print(f"{version.rows} samples are the same; the batch after the resume is the same on four lanes")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        main(Path(place))
