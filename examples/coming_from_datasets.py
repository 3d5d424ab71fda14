"""Coming from Hugging Face datasets: parquet of the Hub and .arrow of the cache are read as they are, and resume is exact."""

import tempfile
from pathlib import Path

import datasets
import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers

import penstock as ps


def main(folder: Path) -> None:
    """Read the same files with both, then filter, tokenise, pack and shuffle, stop and go on with two lanes."""
    datasets.disable_progress_bars()
    draw = np.random.default_rng(1)
    texts = [" ".join(map(str, draw.integers(0, 97, draw.integers(0, 60)))) for _ in range(800)]
    rows = {"id": list(range(800)), "text": texts, "lang": ["en" if n % 3 else "de" for n in range(800)]}
    before = datasets.Dataset.from_dict(rows)
    before.to_parquet(folder / "train-00000-of-00001.parquet")  # as on the Hub
    before.save_to_disk(str(folder / "saved"))  # as in the cache

    registry = ps.Registry(folder / "registry")
    parquet = registry.register("hub", folder / "train-00000-of-00001.parquet")
    arrow = registry.register("cache", str(folder / "saved/*.arrow"))
    assert parquet.take(range(800)) == arrow.take(range(800)) == list(before)

    words = Tokenizer(models.WordLevel({str(n): n for n in range(98)}, unk_token="97"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.save(str(folder / "tokenizer.json"))
    kept = before.filter(lambda row: row["lang"] == "en" and len(row["text"]) > 0)["text"]

    recipe = ps.Recipe(
        sources=[ps.Source("hub@1", epochs=1)],
        seed=42,  # .shuffle(seed=42), of everything and not of a buffer
        batch=8,
        stages=[
            ps.Filter("lang == 'en' and len(text) > 0"),  # .filter(…)
            ps.Tokenize(str(folder / "tokenizer.json")),  # .map(tokenize, batched=True)
            ps.Pack(64),  # .map(group_texts, batched=True)
        ],
        exhaustion="pad",
    )
    with ps.open(recipe, registry=registry) as feed:
        tokens = sum(int(batch["loss_mask"].sum()) for batch in feed)
    assert tokens == sum(len(words.encode(text).ids) for text in kept)  # nothing lost, nothing twice

    with ps.open(recipe, registry=registry) as feed:
        assert [next(feed).step for _ in range(5)] == [0, 1, 2, 3, 4]
        cursor = feed.cursor  # instead of state_dict
        expected = [batch["tokens"].copy() for batch in feed]
    lanes = [ps.open(recipe, lane=ps.Lane(k, of=2), registry=registry, cursor=cursor) for k in range(2)]
    resumed = [np.concatenate([part["tokens"] for part in step]) for step in zip(*lanes, strict=True)]
    assert np.array_equal(np.stack(expected), np.stack(resumed))  # no split_dataset_by_node, no set_epoch
    print(f"800 rows are the same; {tokens} tokens, each once; {len(resumed)} batches after the resume too")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        main(Path(place))
