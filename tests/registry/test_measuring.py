"""Measured columns are computed once, survive kills, and keep the tokens they counted."""

import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from penstock import Registry, errors
from penstock.registry.columns.measure import Limits, measure_version
from penstock.registry.tokenize.tokens import TokenLength
from tests.registry.conftest import WriteRows


def write_tokenizer(path: Path, extra: int = 0) -> Path:
    """A small word tokenizer, saved as Hugging Face tokenizers are."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    words = ["[UNK]", "row", *map(str, range(1000)), *(f"extra{n}" for n in range(extra))]
    tokenizer = Tokenizer(WordLevel({word: number for number, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(path))
    return path


def test_lengths_and_tokens_are_those_of_the_tokenizer(
    registry: Registry, write_rows: WriteRows, tmp_path: Path
) -> None:
    from tokenizers import Tokenizer

    write_rows("a.jsonl", 0, 300)
    write_rows("b.jsonl", 300, 200)
    version = registry.register("web", tmp_path / "raw")
    path = write_tokenizer(tmp_path / "tokenizer.json")

    column = registry.measure("web", TokenLength(path))

    expected = [e.ids for e in Tokenizer.from_file(str(path)).encode_batch([row["text"] for row in version])]
    assert registry.values(column).tolist() == [len(ids) for ids in expected]
    tokens = registry.resolve(f"web/tokens-{tokens_suffix(registry)}")
    assert tokens.digest == column.payload_version
    assert tokens.about.derived_from == (version.digest,)
    assert [np.asarray(row["tokens"]).tolist() for row in tokens] == expected
    assert registry.lineage("web").children == [tokens.address]


def tokens_suffix(registry: Registry) -> str:
    (name,) = [name for name in registry.datasets() if name.startswith("web/tokens-")]
    return name.removeprefix("web/tokens-")


def test_the_second_time_nothing_is_computed(local: Registry, write_rows: WriteRows, tmp_path: Path) -> None:
    local.register("web", write_rows("a.jsonl"))
    path = write_tokenizer(tmp_path / "tokenizer.json")
    first = local.measure("web", TokenLength(path))
    (tmp_path / "raw/a.jsonl").unlink()
    copy = tmp_path / "renamed.json"
    copy.write_bytes(path.read_bytes())
    assert local.measure("web", TokenLength(copy)) == first
    other = write_tokenizer(tmp_path / "other.json", extra=1)
    with pytest.raises(errors.CorruptShard, match="gone"):
        local.measure("web", TokenLength(other))


def test_token_types_are_as_small_as_the_vocabulary_allows(tmp_path: Path) -> None:
    assert TokenLength(write_tokenizer(tmp_path / "small.json")).payloads == {"tokens": "<u2"}
    assert TokenLength(write_tokenizer(tmp_path / "large.json", extra=70_000)).payloads == {"tokens": "<u4"}


def test_a_killed_measurement_goes_on_where_it_was(
    local: Registry, write_rows: WriteRows, tmp_path: Path
) -> None:
    """Goal: resumable. Method: kill a real process once the first parts are there; they are kept as they are."""
    for number in range(30):
        write_rows(f"{number:02d}.jsonl", number * 1000, 1000)
    local.register("web", tmp_path / "raw")
    path = write_tokenizer(tmp_path / "tokenizer.json")
    script = (
        "import sys; from penstock import Registry; from penstock.registry.tokenize.tokens import TokenLength; "
        "Registry(sys.argv[1]).measure('web', TokenLength(sys.argv[2]))"
    )
    with subprocess.Popen([sys.executable, "-c", script, local.url, str(path)]) as process:
        parts: dict[str, str] = {}
        for _ in range(3000):
            parts = {e.name: e.stamp for e in local.store.entries("columns")}
            if len(parts) >= 3 or process.poll() is not None:
                break
            threading.Event().wait(0.01)
        process.send_signal(signal.SIGKILL)
    assert 3 <= len(parts) <= 30

    column = local.measure("web", TokenLength(path))

    after = {e.name: e.stamp for e in local.store.entries("columns")}
    assert parts.items() <= after.items()
    assert len(local.values(column)) == 30_000


def test_what_cannot_be_measured_is_said(local: Registry, write_rows: WriteRows, tmp_path: Path) -> None:
    version = local.register("web", write_rows("a.jsonl"))
    path = write_tokenizer(tmp_path / "tokenizer.json")
    with pytest.raises(
        errors.SampleUndecodable, match=r"web@1 row 0 \(a.jsonl\): field 'content' is missing"
    ):
        local.measure("web", TokenLength(path, field="content"))
    with pytest.raises(errors.SampleUndecodable, match="'id' is int"):
        local.measure("web", TokenLength(path, field="id"))
    with pytest.raises(errors.UsageError, match="cannot read tokenizer"):
        TokenLength(tmp_path / "none.json")
    (tmp_path / "broken.json").write_text("{}")
    with pytest.raises(errors.UsageError, match=r"must be a tokenizer\.json"):
        local.measure("web", TokenLength(tmp_path / "broken.json"))
    with pytest.raises(errors.DerivedTooLarge):
        measure_version(local, version, TokenLength(path), limits=Limits(derived_bytes_max=10))


def test_damaged_values_are_refused(local: Registry, write_rows: WriteRows, tmp_path: Path) -> None:
    local.register("web", write_rows("a.jsonl"))
    column = local.measure("web", TokenLength(write_tokenizer(tmp_path / "tokenizer.json")))
    path = tmp_path / "registry/objects" / column.parts[0].values.removeprefix("b3:")
    data = bytearray(path.read_bytes())
    data[3] ^= 1
    path.write_bytes(data)
    with pytest.raises(errors.ManifestDamaged, match="tokens"):
        local.values(column)
