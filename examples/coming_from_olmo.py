"""Coming from OLMo: arrays of tokens in which an end of text closes every document, from text, or from arrays that lack it."""

import json
import tempfile
from pathlib import Path

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

import penstock as ps

EOS = "<|endoftext|>"


def write_tokenizer(path: Path) -> Tokenizer:
    """A tokenizer of bytes with an end of text."""
    letters = {letter: number for number, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(letters, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(EOS, special=True)])
    tokenizer.save(str(path))
    return tokenizer


def main(folder: Path) -> None:
    """What ``dolma tokens`` writes and OLMo's NumpyFSLDataset reads, as rows of a feed."""
    texts = [f"Document {n}: " + "words " * (n % 40) for n in range(300)]
    (folder / "web.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    tokenizer = write_tokenizer(folder / "tokenizer.json")
    end = tokenizer.token_to_id(EOS)
    # dolma tokens --tokenizer.eos_token_id
    flat = np.concatenate([[*tokenizer.encode(text).ids, end] for text in texts]).astype(np.uint16)
    chunks = flat[: len(flat) // 128 * 128].reshape(-1, 128)  # sequence_length: 128

    registry = ps.Registry(folder / "registry")
    registry.register("web", folder / "web.jsonl")
    common = {"sources": [ps.Source("web@1", epochs=1)], "batch": 1, "shuffle": "none"}
    tokenizing = ps.Tokenize(str(folder / "tokenizer.json"), eos=EOS)  # the token is stored with the document
    separating = [
        ps.Tokenize(str(folder / "tokenizer.json")),
        ps.Pack(128, separator=end),  # it is put between them
    ]
    for stages in ([tokenizing, ps.Pack(128)], separating):
        with ps.open(ps.Recipe(stages=stages, **common), registry=registry) as feed:
            batches = list(feed)
        rows = np.concatenate([batch["tokens"] for batch in batches])
        assert np.array_equal(rows[: len(chunks)], chunks)
        assert all(batch["loss_mask"][batch["tokens"] == end].all() for batch in batches)
    print(f"{len(chunks)} instances are the same, and documents are known by their borders as well")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        main(Path(place))
