"""JSON, tables and texts: Python's own modules, pandas, polars and Hugging Face datasets."""

import bz2
import csv
import gzip
import json
import lzma
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pandas as pd
import polars as pl
import zstandard

from penstock.formats.contract import Policy
from tests.peers.case import Case, Rows

ROWS: Rows = [
    {
        "id": number,
        "text": f'größe "{number}"\n日本; | \\',
        "score": number / 8,
        "tags": [str(number), None],
        "about": {"lang": "de", "n": None},
        "ok": number % 2 == 0,
    }
    for number in range(5)
]
NAN_ROWS: Rows = [{"a": math.nan, "b": [math.inf]}, {"a": 0.5, "b": [-math.inf]}]
TABLE: list[dict[str, Any]] = [
    {"id": 1, "name": 'a;b|c,"d"\nnext', "x": 0.5},
    {"id": -2, "name": "ü", "x": 1e30},
    {"id": 3, "name": "007", "x": -1.0},
]
_TEXT = "eins\nzwöi\r\n\n  drei \n"
_PACKED: dict[str, Callable[..., Any]] = {
    "gz": gzip.open,
    "bz2": bz2.open,
    "xz": lzma.open,
    "zst": zstandard.open,
}


def _lines(rows: Rows) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _write(name: str, text: str, encoding: str = "utf-8") -> Callable[[Path], Path]:
    def run(folder: Path) -> Path:
        (folder / name).write_bytes(text.encode(encoding))
        return folder / name

    return run


def _pack(name: str, text: str) -> Callable[[Path], Path]:
    def run(folder: Path) -> Path:
        with _PACKED[name.rpartition(".")[2]](folder / name, "wb") as file:
            file.write(text.encode())
        return folder / name

    return run


def _unpack(path: Path) -> Rows:
    with _PACKED[path.suffix[1:]](path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def _by(write: Callable[[Path], Any], name: str) -> Callable[[Path], Path]:
    def run(folder: Path) -> Path:
        write(folder / name)
        return folder / name

    return run


def _load(encoding: str) -> Callable[[Path], Rows]:
    return lambda path: json.loads(path.read_text(encoding=encoding))  # type: ignore[no-any-return]


def _write_csv(path: Path, **dialect: Any) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(TABLE[0]), **dialect)
        writer.writeheader()
        writer.writerows(TABLE)


def _read_csv(**dialect: Any) -> Callable[[Path], Rows]:
    def read(path: Path) -> Rows:
        with path.open(newline="") as file:
            return list(csv.DictReader(file, **dialect))

    return read


def _typed(row: dict[str, Any]) -> dict[str, Any]:
    return {"id": int(row["id"]), "name": row["name"], "x": float(row["x"])}


def _frame() -> pd.DataFrame:
    return pd.DataFrame(TABLE)


def _hf_table(path: Path) -> Rows:
    loaded = datasets.Dataset.from_csv(str(path), cache_dir=str(path.parent / "cache"))
    rows: Rows = loaded.to_list()
    return rows


def _hf_json(path: Path) -> Rows:
    loaded = datasets.Dataset.from_json(str(path), cache_dir=str(path.parent / "cache"))
    rows: Rows = loaded.to_list()
    return rows


def _hf_text(path: Path) -> Rows:
    loaded = datasets.Dataset.from_text(str(path), cache_dir=str(path.parent / "cache"))
    rows: Rows = loaded.to_list()
    return rows


def _hf_rows() -> datasets.Dataset:
    return datasets.Dataset.from_list(ROWS)


def _polars_rows() -> pl.DataFrame:
    return pl.DataFrame(ROWS)


_STRINGS = "numbers and truths are values, where every value is one; the module gives text"
_NAMES = "a column with leading zeros is text, so that 007 comes back"

CASES = [
    Case(
        "jsonl",
        "json",
        "lines",
        _write("a.jsonl", _lines(ROWS)),
        lambda path: [json.loads(x) for x in path.open()],
    ),
    Case("jsonl", "json", "an array", _write("a.json", json.dumps(ROWS)), _load("utf-8")),
    Case(
        "jsonl",
        "json",
        "an array, indented, in UTF-16",
        _write("a.json", json.dumps(ROWS, indent=4), "utf-16"),
        _load("utf-16"),
    ),
    Case(
        "jsonl",
        "json",
        "an array after a byte order mark",
        _write("a.json", json.dumps(ROWS), "utf-8-sig"),
        _load("utf-8-sig"),
    ),
    Case(
        "jsonl",
        "json",
        "one object over several lines",
        _write("a.json", json.dumps(ROWS[0], indent=2)),
        lambda path: [json.loads(path.read_text())],
    ),
    Case(
        "jsonl",
        "json",
        "NaN and infinities, with `--nan float`",
        _write("a.jsonl", _lines(NAN_ROWS)),
        lambda path: [json.loads(line) for line in path.open()],
        policy=Policy(nan="float"),
    ),
    *(
        Case("jsonl", module, f"lines in .{ending}", _pack(f"a.jsonl.{ending}", _lines(ROWS)), _unpack)
        for module, ending in (("gzip", "gz"), ("bz2", "bz2"), ("lzma", "xz"), ("zstandard", "zst"))
    ),
    Case("jsonl", "datasets", "to_json", _by(lambda path: _hf_rows().to_json(path), "a.jsonl"), _hf_json),
    Case(
        "jsonl",
        "datasets",
        "to_json(lines=False)",
        _by(lambda path: _hf_rows().to_json(path, lines=False), "a.json"),
        _hf_json,
    ),
    Case(
        "jsonl",
        "polars",
        "write_ndjson",
        _by(lambda path: _polars_rows().write_ndjson(path), "a.jsonl"),
        lambda path: pl.read_ndjson(path).to_dicts(),
    ),
    Case(
        "jsonl",
        "polars",
        "write_json",
        _by(lambda path: _polars_rows().write_json(path), "a.json"),
        lambda path: pl.read_json(path).to_dicts(),
    ),
    Case(
        "jsonl",
        "pandas",
        "to_json(lines=True, compression='bz2')",
        _by(lambda path: pd.DataFrame(ROWS).to_json(path, orient="records", lines=True), "a.jsonl.bz2"),
        lambda path: pd.read_json(path, orient="records", lines=True, dtype=False).to_dict("records"),
    ),
    Case("csv", "csv", "commas, quotes, line ends", _by(_write_csv, "a.csv"), _read_csv(), _STRINGS, _typed),
    Case(
        "csv",
        "csv",
        "semicolons",
        _by(lambda path: _write_csv(path, delimiter=";"), "a.csv"),
        _read_csv(delimiter=";"),
        _STRINGS,
        _typed,
    ),
    Case(
        "csv",
        "csv",
        "bars",
        _by(lambda path: _write_csv(path, delimiter="|"), "a.csv"),
        _read_csv(delimiter="|"),
        _STRINGS,
        _typed,
    ),
    Case(
        "csv",
        "csv",
        "tildes, with `--delimiter ~`",
        _by(lambda path: _write_csv(path, delimiter="~"), "a.csv"),
        _read_csv(delimiter="~"),
        _STRINGS,
        _typed,
        Policy(delimiter="~"),
    ),
    Case(
        "tsv",
        "csv",
        "excel-tab",
        _by(lambda path: _write_csv(path, dialect="excel-tab"), "a.tsv"),
        _read_csv(dialect="excel-tab"),
        _STRINGS,
        _typed,
    ),
    Case(
        "csv",
        "pandas",
        "semicolons in UTF-16",
        _by(lambda path: _frame().to_csv(path, sep=";", index=False, encoding="utf-16"), "a.csv"),
        lambda path: pd.read_csv(path, sep=";", encoding="utf-16").to_dict("records"),
    ),
    Case(
        "csv",
        "polars",
        "bars",
        _by(lambda path: pl.DataFrame(TABLE).write_csv(path, separator="|"), "a.csv"),
        lambda path: pl.read_csv(path, separator="|").to_dicts(),
    ),
    Case(
        "csv",
        "datasets",
        "to_csv",
        _by(lambda path: datasets.Dataset.from_list(TABLE).to_csv(path), "a.csv"),
        _hf_table,
    ),
    Case(
        "csv",
        "polars",
        "nulls and empty texts",
        _by(lambda path: pl.DataFrame({"a": [1, 2, 3], "b": ["x", "", None]}).write_csv(path), "a.csv"),
        lambda path: pl.read_csv(path).to_dicts(),
        "an empty field is null, quoted or not",
        lambda row: {**row, "b": row["b"] or None},
    ),
    Case(
        "text",
        "datasets",
        "lines, one of them empty",
        _write("a.txt", _TEXT),
        _hf_text,
        "an empty line is no row: the account of the registration counts them",
    ),
    Case(
        "documents",
        "pathlib",
        "a text as one row, with `--per file`",
        _write("a.txt", _TEXT),
        lambda path: [{"path": path.name, "text": path.read_bytes().decode()}],
        policy=Policy(per="file"),
    ),
    Case(
        "documents",
        "pathlib",
        "markdown in UTF-16",
        _write("a.md", "# Ü\n\n日本\n", "utf-16"),
        lambda path: [{"path": path.name, "text": path.read_text(encoding="utf-16")}],
    ),
]
