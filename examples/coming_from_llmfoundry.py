"""Coming from LLM Foundry: what convert_dataset_hf.py --concat_tokens --eos_text writes, made from the text itself, without a conversion."""

import json
import tempfile
from pathlib import Path

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

import penstock as ps

EOS = "<|endoftext|>"


def write_tokenizer(path: Path) -> Tokenizer:
    """A tokenizer of bytes with an end of text, saved as Hugging Face does: its configuration says which token that is."""
    letters = {letter: number for number, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(letters, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(EOS, special=True)])
    tokenizer.save(str(path))
    (path.parent / "tokenizer_config.json").write_text(json.dumps({"eos_token": EOS}))
    return tokenizer


def concatenated(tokenizer: Tokenizer, texts: list[str], length: int) -> np.ndarray:
    """ConcatTokensDataset: tokens and the end of text, document after document, cut every ``length`` tokens."""
    buffer: list[int] = []
    for text in texts:
        buffer += [*tokenizer.encode(text).ids, tokenizer.token_to_id(EOS)]
    return np.array(buffer[: len(buffer) // length * length]).reshape(-1, length)


def main(folder: Path) -> None:
    """The same rows from the text as from the converted shards; then the same documents, shuffled."""
    texts = [f"Document {n}: " + "words " * (n % 40) for n in range(300)]
    (folder / "web.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    tokenizer = write_tokenizer(folder / "tokenizer.json")
    registry = ps.Registry(folder / "registry")
    registry.register("web", folder / "web.jsonl")

    stages = [ps.Tokenize(str(folder / "tokenizer.json"), eos="auto"), ps.Pack(128)]
    source = ps.Source("web@1", epochs=1)
    recipe = ps.Recipe(sources=[source], batch=1, stages=stages, shuffle="none")
    with ps.open(recipe, registry=registry) as feed:
        rows = np.concatenate([batch["tokens"] for batch in feed])
    expected = concatenated(tokenizer, texts, 128)
    assert np.array_equal(rows[: len(expected)], expected)
    print(f"{len(expected)} rows are those of the converted shards, and nothing was converted")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        main(Path(place))
