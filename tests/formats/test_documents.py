"""Texts as documents: one row per file, or per line when that is asked for."""

from pathlib import Path

import pytest

from penstock.errors import BadRow, SampleUndecodable, UsageError
from penstock.formats.contract import Policy
from penstock.registry import Registry
from penstock.registry.tokenize.tokens import TokenLength
from tests.formats.damage import assert_flips_are_found, assert_rows
from tests.registry.test_measuring import write_tokenizer

TEXTS = {
    "a.md": "# Title\n\n- one\r\n- two\n",
    "deep/b.md": "ein wörtlicher Text\n",
    "deep/empty.md": "",
    "z.md": "x" * 70_000,
}
ROWS = [{"path": path, "text": text} for path, text in TEXTS.items()]


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "registry")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in TEXTS.items():
        path = tmp_path / "docs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("utf-16" if name == "deep/b.md" else "utf-8-sig"))
    (tmp_path / "docs/deep/empty.md").write_bytes(b"")
    return tmp_path / "docs"


def test_a_folder_of_markdown_is_documents(folder: Path, registry: Registry) -> None:
    version = registry.register("docs", folder / "**/*.md")
    assert version.manifest.format == "documents"
    assert [(field.name, field.kind) for field in version.schema] == [("path", "string"), ("text", "string")]
    # Of a pattern empty files may be left out; those that are taken are texts of no letters.
    assert_rows(version, ROWS if version.rows == len(ROWS) else [row for row in ROWS if row["text"]])


def test_per_says_what_a_row_of_a_text_is(tmp_path: Path, registry: Registry) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one\ntwo\n")
    assert_rows(registry.register("lines", path), [{"text": "one"}, {"text": "two"}])
    assert_rows(
        registry.register("same", path, policy=Policy(per="line")), [{"text": "one"}, {"text": "two"}]
    )
    assert registry.resolve("same").digest == registry.resolve("lines").digest
    whole = registry.register("files", path, policy=Policy(per="file"))
    assert_rows(whole, [{"path": "a.txt", "text": "one\ntwo\n"}])
    note = tmp_path / "b.md"
    note.write_text("one\n\ntwo\n")
    assert_rows(registry.register("md", note, policy=Policy(per="line")), [{"text": "one"}, {"text": "two"}])
    code = tmp_path / "c.py"
    code.write_text("print(1)\n")
    assert registry.register("code", code, policy=Policy(per="file"))[0]["text"] == "print(1)\n"
    with pytest.raises(UsageError, match="about documents, not about jsonl"):
        registry.register("no", path, format="jsonl", policy=Policy(per="file"))


def test_a_file_that_is_no_text_is_named_or_left_out(tmp_path: Path, registry: Registry) -> None:
    for name, data in (("a.txt", b"good"), ("b.txt", b"b\xffd"), ("c.txt", b"also good")):
        (tmp_path / name).write_bytes(data)
    with pytest.raises(BadRow, match="not UTF-8 at byte 1") as caught:
        registry.register("a", tmp_path / "*.txt", policy=Policy(per="file"))
    assert caught.value.shard == str(tmp_path / "b.txt")
    version = registry.register("a", tmp_path / "*.txt", policy=Policy(per="file", skip_bad=1))
    assert [row["text"] for row in version] == ["good", "also good"]


def test_a_flipped_bit_is_found(tmp_path: Path, registry: Registry) -> None:
    path = tmp_path / "a.md"
    path.write_text("some words " * 9_000)
    version = registry.register("a", path)
    assert_flips_are_found(registry, version, path, [{"path": "a.md", "text": "some words " * 9_000}])


def test_bytes_that_are_utf_8_are_tokenised_as_text(tmp_path: Path, registry: Registry) -> None:
    tokenizer = write_tokenizer(tmp_path / "tokenizer.json")
    (tmp_path / "a.txt").write_text("document 1")
    (tmp_path / "b.txt").write_bytes(b"\xff\xfe\xfd")
    text = registry.register("text", tmp_path / "a.txt")
    lengths = registry.values(registry.measure(text.address, TokenLength(tokenizer)))
    (good, bad) = (registry.register(name, tmp_path / f"{name}.txt", format="files") for name in "ab")
    column = registry.measure(good.address, TokenLength(tokenizer, field="bytes"))
    assert registry.values(column).tolist() == lengths.tolist()
    with pytest.raises(SampleUndecodable, match="bytes that are not UTF-8 at byte 0"):
        registry.measure(bad.address, TokenLength(tokenizer, field="bytes"))
