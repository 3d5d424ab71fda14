"""Real text that every machine has: Python's own standard library, packed into compressed jsonl, with a tokenizer trained on the spot."""

import fcntl
import gzip
import json
import sysconfig
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer

import penstock as ps

WORDS = 1024
LENGTH = 64


def corpus(folder: Path, batch: int = 16) -> tuple[ps.Recipe, ps.Registry]:
    """A recipe over the text and its registry, made once: of several ranks one makes it and the others wait."""
    folder.mkdir(parents=True, exist_ok=True)
    registry = ps.Registry(folder / "registry")
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "tokenizer.json").exists():
            prepare(folder, registry)
    recipe = ps.Recipe(
        sources=[ps.Source("python@1")],
        seed=17,
        batch=batch,
        stages=[ps.Tokenize(str(folder / "tokenizer.json")), ps.Pack(LENGTH)],
    )
    return recipe, registry


def prepare(folder: Path, registry: ps.Registry) -> None:
    """Write the files, register them as they are, train the tokenizer, and measure once."""
    paths = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("[a-d]*.py"))
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in paths]
    (folder / "raw").mkdir(exist_ok=True)
    for part in range(4):
        with gzip.open(folder / f"raw/{part}.jsonl.gz", "wt") as file:
            for path, text in list(zip(paths, texts, strict=True))[part::4]:
                file.write(json.dumps({"file": path.name, "text": text}) + "\n")
    registry.register("python", [str(folder / "raw/*.jsonl.gz")])
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    trainer = BpeTrainer(vocab_size=WORDS, initial_alphabet=ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))


if __name__ == "__main__":
    recipe, registry = corpus(Path("corpus"))
    with ps.open(recipe, registry=registry) as feed:
        print(next(feed))
