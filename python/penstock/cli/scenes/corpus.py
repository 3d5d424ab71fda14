"""Real text that every machine has: the sources of Python's own library, as compressed raw files, with a tokenizer made from them."""

import gzip
import json
import sysconfig
from collections.abc import Iterator
from pathlib import Path

_BYTES = 3_000_000
_FILES = 4
_VOCABULARY = 2048
#: What a tokenizer has to see; more of the same teaches it little.
_TRAINED_ON = 120


def write(folder: Path) -> int:
    """Compressed jsonl files, one document per source file; how many documents."""
    folder.mkdir()
    documents = list(_documents())
    for part in range(_FILES):
        lines = "".join(json.dumps(document) + "\n" for document in documents[part::_FILES])
        (folder / f"{part}.jsonl.gz").write_bytes(gzip.compress(lines.encode(), 6))
    return len(documents)


def make_tokenizer(path: Path) -> None:
    """Byte-level pairs, from the beginning of the corpus."""
    from tokenizers import Tokenizer, decoders
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import ByteLevel
    from tokenizers.trainers import BpeTrainer

    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    texts = [document["text"] for document, _ in zip(_documents(), range(_TRAINED_ON), strict=False)]
    trainer = BpeTrainer(
        vocab_size=_VOCABULARY, initial_alphabet=sorted(ByteLevel.alphabet()), show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.save(str(path))


def _documents() -> Iterator[dict[str, str]]:
    library = Path(sysconfig.get_paths()["stdlib"])
    taken = 0
    for path in sorted(library.glob("*.py")) + sorted(library.glob("[a-z]*/*.py")):
        text = path.read_text(encoding="utf-8", errors="replace")
        if len(text) > 200 and "site-packages" not in path.parts:
            yield {"path": path.relative_to(library).as_posix(), "text": text}
            taken += len(text)
        if taken > _BYTES:
            return
