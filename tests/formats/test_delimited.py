"""Comma- and tab-separated values, written by Python's csv and by Hugging Face datasets."""

import csv
import gzip
import io
from pathlib import Path
from typing import Any

import datasets
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import BadRow, FileUnusable, SchemaMixed
from penstock.formats.contract import Policy
from penstock.registry import Registry
from tests.formats.damage import assert_cuts_are_found, assert_flips_are_found, assert_rows, copy_path

ROWS = 3_000


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "registry")


def rows() -> list[dict[str, Any]]:
    return [
        {
            "id": number,
            "score": number / 8,
            "ok": number % 2 == 0,
            "zip": f"{number % 100:05}",
            "text": f'say "{number}",\r\nor\ttwice\n' * (number % 5) or None,
            "json": f'{{"n": {number}, "l": [1, 2]}}',
            "maybe": number if number % 7 else None,
            "none": None,
        }
        for number in range(ROWS)
    ]


def encode(delimiter: str = ",") -> bytes:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows()[0]), delimiter=delimiter)
    writer.writeheader()
    writer.writerows(rows())
    return text.getvalue().encode()


@pytest.mark.parametrize(("name", "delimiter"), [("csv", ","), ("tsv", "\t")])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "byte order mark"])
def test_values_come_back_with_their_kinds(
    tmp_path: Path, registry: Registry, name: str, delimiter: str, mark: bytes
) -> None:
    """Quotes, delimiters and line ends inside fields; JSON inside cells does not make it JSON lines."""
    path = tmp_path / f"a.{name}"
    path.write_bytes(mark + encode(delimiter))
    version = registry.register("a", path)
    assert version.manifest.format == name
    assert_rows(version, rows())
    assert [(field.name, field.kind, field.optional) for field in version.schema] == [
        ("id", "int", False),
        ("score", "float", False),
        ("ok", "bool", False),
        ("zip", "string", False),
        ("text", "string", True),
        ("json", "string", False),
        ("maybe", "int", True),
        ("none", "null", True),
    ]


def test_a_flipped_bit_is_found(tmp_path: Path, registry: Registry) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(encode())
    version = registry.register("a", path)
    assert_flips_are_found(registry, version, path, rows(), every=2)
    assert_cuts_are_found(registry, version, path)


@pytest.mark.parametrize("name", ["csv.gz", "csv.zst", "tsv.gz"])
def test_compressed_tables_are_read_through_a_plain_copy(
    tmp_path: Path, registry: Registry, name: str
) -> None:
    plain = encode("\t" if name.startswith("tsv") else ",")
    path = tmp_path / f"a.{name}"
    path.write_bytes(zstandard.compress(plain) if name.endswith("zst") else gzip.compress(plain, mtime=0))
    version = registry.register("a", path)
    assert version.manifest.format == name.partition(".")[0]
    copy = copy_path(registry, version)
    assert copy.read_bytes() == plain
    assert_rows(version, rows())
    assert_flips_are_found(registry, version, copy, rows(), every=12)
    assert_flips_are_found(registry, version, path, rows(), read=False, every=12)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(FileUnusable, match=r"cannot be decompressed: .*[Tt]runcated"):
        Registry(tmp_path / "other").register("a", path)


def test_what_hugging_face_writes_is_read(tmp_path: Path, registry: Registry) -> None:
    expected = [{"text": f'a "quoted"\nline {n}', "n": n, "x": n / 3} for n in range(500)]
    datasets.Dataset.from_list(expected).to_csv(tmp_path / "hf.csv")
    assert_rows(registry.register("hf", tmp_path / "hf.csv"), expected)


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        (b"a,b\n1,2\n3\n", 3, "it has 1 fields, expected 2"),
        (b'a,b\n"1\n1",2\n3,4,5\n', 4, "it has 3 fields, expected 2"),
        (b"a,b\n1,2\n\xff,2\n", 3, "it is not UTF-8"),
        (b'a,b\n1,2\n"3,4\n', 3, "a quoted field is not closed"),
        (b"a,b\n1,2\n" + b"x" * 2_000 + b",1\n", 3, "longer than 1000 bytes"),
    ],
)
def test_bad_records_fail_by_line_or_are_listed(
    tmp_path: Path, registry: Registry, text: bytes, line: int, reason: str
) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(text)
    with pytest.raises(BadRow) as caught:
        registry.register("a", path, policy=Policy(row_bytes_max=1000))
    assert (caught.value.shard, caught.value.line) == (str(path), line)
    assert reason in caught.value.reason
    version = registry.register("a", path, policy=Policy(row_bytes_max=1000, skip_bad=1))
    assert [bad.line for bad in version.manifest.skipped] == [line]
    assert version.rows == 1


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"a,b,a\n1,2,3\n", "column `a` twice"),
        (b"a,b\n", "no rows"),
        (b"\n\n\n", "no rows"),
    ],
)
def test_files_that_are_no_tables_are_refused(
    tmp_path: Path, registry: Registry, text: bytes, reason: str
) -> None:
    (tmp_path / "a.csv").write_bytes(text)
    with pytest.raises(FileUnusable, match=reason):
        registry.register("a", tmp_path / "a.csv", format="csv")


def test_kinds_are_those_of_all_files(tmp_path: Path, registry: Registry) -> None:
    (tmp_path / "1.csv").write_text("n,s\n1,1\n")
    (tmp_path / "2.csv").write_text("n,s\n2.5,x\n")
    with pytest.raises(SchemaMixed, match=r"field 's' is string in 2.csv but int in 1.csv"):
        registry.register("a", tmp_path / "*.csv")
    version = registry.register("a", tmp_path / "*.csv", policy=Policy(mixed=True))
    assert_rows(version, [{"n": 1.0, "s": "1"}, {"n": 2.5, "s": "x"}])


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("a.csv", "one\n1\n2\n", "csv"),
        ("a.CSV", "a,b\n1,2\n", "csv"),
        ("a.csv", '{"a": 1},5\n{"a": 2},6\n', "csv"),
        ("a.csv", "a\tb\n1\t2\n3\t4\n", "tsv"),
        ("table", "a,b\n1,2\n3,4\n", "csv"),
        ("table", "a\tb\n1\t2\n3\t4\n", "tsv"),
        ("a.csv", '{"a": 1}\n{"a": 2}\n', "jsonl"),
        ("a.txt", "Well, no.\nOh, yes.\nReally, now?\n", "text"),
        ("a.csv", "a;b\n1;2\n3;4\n", "csv"),
        ("prose", "Well, no.\nOh, yes, that.\nReally?\n", None),
    ],
)
def test_the_format_is_found_in_the_content(
    tmp_path: Path, registry: Registry, name: str, text: str, found: str | None
) -> None:
    (tmp_path / name).write_text(text)
    if found is None:
        with pytest.raises(FileUnusable, match="no known format"):
            registry.register("a", tmp_path / name)
    else:
        assert registry.register("a", tmp_path / name).manifest.format == found


@pytest.mark.parametrize("delimiter", [";", "|"])
@pytest.mark.parametrize("ending", ["csv", "csv.gz"])
def test_another_delimiter_is_found_by_looking_and_said(
    tmp_path: Path, registry: Registry, delimiter: str, ending: str
) -> None:
    path = tmp_path / f"a.{ending}"
    text = f'id{delimiter}x\n1{delimiter}"0,5{delimiter}"\n2{delimiter}7\n'.encode()
    path.write_bytes(gzip.compress(text) if ending.endswith(".gz") else text)
    version = registry.register("a", path)
    assert_rows(version, [{"id": 1, "x": f"0,5{delimiter}"}, {"id": 2, "x": "7"}])
    assert version.account.notes == (f"a.{ending} (fields are separated by {delimiter!r})",)
    # Commas, if that is what somebody says.
    commas = registry.register("b", path, policy=Policy(delimiter=",", skip_bad=1))
    assert [field.name for field in commas.schema] == [f"id{delimiter}x"]


def test_the_note_that_excel_wants_is_no_header(tmp_path: Path, registry: Registry) -> None:
    (tmp_path / "a.csv").write_text("sep=;\na;b\n1;2\n")
    with pytest.raises(FileUnusable, match="a note of Excel's"):
        registry.register("a", tmp_path / "a.csv")


def test_a_table_of_commas_stays_one(tmp_path: Path, registry: Registry) -> None:
    (tmp_path / "a.csv").write_text("a;b,c;d\n1;2,3;4\n")
    assert registry.register("a", tmp_path / "a.csv")[0] == {"a;b": "1;2", "c;d": "3;4"}


_CELLS = st.text(st.sampled_from('ab,"\n\r\t 0'), max_size=6)


@settings(max_examples=60, deadline=None)
@given(table=st.lists(st.tuples(_CELLS, _CELLS), min_size=1, max_size=5))
def test_any_table_that_python_writes_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, table: list[tuple[str, str]]
) -> None:
    """Goal: the records found in Rust are those that are split in Python. Method: cells of awkward characters."""
    folder = tmp_path_factory.mktemp("table")
    with (folder / "a.csv").open("w", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerows([("x", "y"), *table])
    version = Registry(folder / "registry").register("a", folder / "a.csv", format="csv")
    kinds = {field.name: field.kind for field in version.schema}
    cells = [tuple(str(row[name] if row[name] is not None else "") for name in ("x", "y")) for row in version]
    assert cells == [
        tuple(
            str(int(cell)) if kinds[name] == "int" and cell else cell
            for name, cell in zip(("x", "y"), row, strict=True)
        )
        for row in table
    ]


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("a.csv", 'id,text\n1,"she said \\"no\\" twice"\n2,x\n', 2),
        ("a.tsv", 'id\ttext\n1\tx\n2\t"No" means no\n', 3),
        ("a.tsv", 'id\ttext\n1\t"open\n2\tsaid "no"\n3\tx\n', 2),
    ],
)
def test_quotes_that_are_not_those_of_a_table_are_no_row(
    tmp_path: Path, name: str, text: str, line: int
) -> None:
    """Goal: no quote and no record is lost in silence. Method: quotes escaped with a backslash, and tables written without quoting."""
    (tmp_path / name).write_text(text)
    with pytest.raises(BadRow, match="text follows the quote that closes a field") as caught:
        Registry(tmp_path / "registry").register("web", tmp_path / name)
    assert caught.value.line == line
