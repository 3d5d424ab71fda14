"""``penstock data``: every command, for people and for programs, on good input and bad."""

import json
from pathlib import Path

import pytest

from penstock.cli.data import COMMANDS
from penstock.cli.data import app as data_app
from penstock.cli.main import main
from tests.registry.test_measuring import write_tokenizer

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with two raw files and a registry of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_REGISTRY", str(tmp_path / "registry"))
    (tmp_path / "raw").mkdir()
    for number in range(2):
        rows = [{"id": number * 50 + n, "text": f"row {n}"} for n in range(50)]
        (tmp_path / f"raw/{number}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def run(*words: str) -> int:
    return main(["data", *words])


def documents(capsys: Capture) -> list[dict[str, object]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_purpose_examples_and_json(command: str, capsys: Capture) -> None:
    assert run(command, "--help") == 0
    text = capsys.readouterr().out
    assert f"penstock data {command}" in text.partition("examples:")[2]
    assert "--json" in text
    assert data_app[command].help == COMMANDS[command][0]


def test_from_raw_files_to_rows(capsys: Capture) -> None:
    assert run("register", "web", "raw/*.jsonl", "--note", "first", "--licence", "CC0") == 0
    captured = capsys.readouterr()
    assert captured.out == "web@1\n"
    assert "100 rows" in captured.err
    assert run("list") == 0
    assert "web@1" in capsys.readouterr().out
    assert run("show", "web") == 0
    shown = capsys.readouterr().out
    assert "CC0" in shown
    assert "0.jsonl" in shown
    assert run("rows", "web@1", "--start", "-1") == 0
    assert "id: 99" in capsys.readouterr().out


def test_json_is_complete(capsys: Capture) -> None:
    assert run("register", "web", "raw", "--json") == 0
    (registered,) = documents(capsys)
    assert registered["rows"] == 100
    assert registered.pop("account")["files"] == 2  # type: ignore[index]
    assert run("list", "--json") == 0
    assert documents(capsys)[0]["digest"] == registered["digest"]
    assert run("show", "web", "--json") == 0
    assert documents(capsys) == [registered]
    assert run("rows", "web", "--start", "98", "--count", "9", "--json") == 0
    assert documents(capsys) == [
        {"row": 98, "id": 98, "text": "row 48"},
        {"row": 99, "id": 99, "text": "row 49"},
    ]
    assert run("tag", "web@1", "gold", "--json") == 0
    assert documents(capsys) == [{"address": "web@1", "tag": "gold"}]
    assert run("lineage", "web@gold", "--json") == 0
    assert documents(capsys)[0]["address"] == "web@1"
    assert run("migrate", "--json") == 0
    assert json.loads(capsys.readouterr().out)[0]["after"] == "web@1"
    assert run("derived", "--json") == 0
    assert documents(capsys) == [{"derived": [], "freed_bytes": 0}]


def test_verify_names_file_and_byte_and_exits_1(place: Path, capsys: Capture) -> None:
    run("register", "web", "raw")
    assert run("verify", "web") == 0
    data = bytearray((place / "raw/1.jsonl").read_bytes())
    data[700] ^= 1
    (place / "raw/1.jsonl").write_bytes(data)
    capsys.readouterr()
    assert run("verify", "web", "--json") == 1
    (report,) = documents(capsys)
    assert report["damages"] == [
        {
            "file": str(place / "raw/1.jsonl"),
            "offset": 0,
            "reason": "the bytes are not those that were registered (1,440 bytes)",
        }
    ]
    assert run("rows", "web", "--start", "60") == 1
    error = capsys.readouterr().err
    assert "1.jsonl is corrupt at byte 0" in error
    assert "hint: bring the file back" in error


def test_bad_rows_are_an_error_or_a_list(place: Path, capsys: Capture) -> None:
    with (place / "raw/1.jsonl").open("a") as file:
        file.write("{broken\n")
    assert run("register", "web", "raw") == 2
    error = capsys.readouterr().err
    assert "1.jsonl, row 51 (byte 1440)" in error
    assert "--skip-bad" in error
    assert run("list") == 0
    assert run("register", "web", "raw", "--skip-bad", "5") == 0
    assert "left out: 1.jsonl, row 51" in capsys.readouterr().err
    assert run("show", "web", "--json") == 0
    assert documents(capsys)[0]["skipped"][0]["line"] == 51  # type: ignore[index]


def test_options_say_how_files_are_meant_that_do_not_say_it(place: Path, capsys: Capture) -> None:
    (place / "a.txt").write_text("one\ntwo\n")
    (place / "b.jsonl").write_text('{"x": NaN}\n')
    (place / "c.csv").write_text("a~b\n1~2\n")
    (place / "d.bin").write_bytes(bytes([5, 0, 9, 0, 6, 0]))
    assert run("register", "nan", "b.jsonl") == 2
    assert "--nan float" in capsys.readouterr().err
    for words in (
        ("a", "a.txt", "--per", "file"),
        ("b", "b.jsonl", "--nan", "null"),
        ("c", "c.csv", "--delimiter", "~"),
        ("d", "d.bin", "--dtype", "uint16", "--eot", "9"),
    ):
        assert run("register", *words) == 0
    said = capsys.readouterr().err
    assert "b.jsonl (NaN and infinities are read as null)" in said
    assert "c.csv (fields are separated by '~')" in said
    assert [run("rows", name, "--json") for name in "abcd"] == [0, 0, 0, 0]
    rows = [{name: value for name, value in row.items() if name != "row"} for row in documents(capsys)]
    assert rows == [
        {"path": "a.txt", "text": "one\ntwo\n"},
        {"x": None},
        {"a": 1, "b": 2},
        {"tokens": [5, 9]},
        {"tokens": [6]},
    ]
    assert run("register", "e", "a.txt", "--per", "page") == 2
    assert "per must be line or file, got 'page'" in capsys.readouterr().err


def test_diff_exits_1_when_versions_differ(place: Path, capsys: Capture) -> None:
    run("register", "web", "raw")
    run("register", "web", "raw/0.jsonl")
    capsys.readouterr()
    assert run("diff", "web@1", "web@1") == 0
    capsys.readouterr()
    assert run("diff", "web@1", "web@2", "--json") == 1
    (document,) = documents(capsys)
    assert (document["shards_removed"], document["rows_removed"]) == (["1.jsonl"], 50)


def test_relocate(place: Path, capsys: Capture) -> None:
    run("register", "web", "raw")
    (place / "raw").rename(place / "moved")
    assert run("relocate", "web", "--root", "raw=moved") == 0
    assert run("rows", "web") == 0
    assert run("relocate", "web", "--root", "elsewhere=moved") == 2
    assert run("relocate", "web", "--root", "nonsense") == 2
    assert "OLD=NEW" in capsys.readouterr().err


def test_measure_prints_what_it_will_cost_and_found(place: Path, capsys: Capture) -> None:
    run("register", "web", "raw")
    capsys.readouterr()
    assert run("measure", "web", "--tokenizer", str(write_tokenizer(place / "tokenizer.json")), "--json") == 0
    captured = capsys.readouterr()
    assert "of derived data" in captured.err
    figures = json.loads(captured.out)
    assert (figures["rows"], figures["tokens"], figures["longest"]) == (100, 200, 2)
    again = ("measure", "web", "--tokenizer", str(write_tokenizer(place / "other.json", extra=1)))
    assert run(*again, "--derived-max", "10") == 2
    assert "bytes of derived data, but 10 are allowed" in capsys.readouterr().err
    assert run("list", "--json") == 0
    assert [document["format"] for document in documents(capsys)] == ["jsonl", "tokens"]


def test_derived_copies_are_listed_pruned_and_made_again(place: Path, capsys: Capture) -> None:
    import gzip

    (place / "raw/0.jsonl.gz").write_bytes(gzip.compress((place / "raw/0.jsonl").read_bytes()))
    run("register", "web", "raw/0.jsonl.gz")
    capsys.readouterr()
    assert run("derived", "--prune", "--json") == 0
    (document,) = documents(capsys)
    assert document["freed_bytes"] > 0  # type: ignore[operator]
    assert list((place / "registry/derived").iterdir()) == []
    assert run("rows", "web", "--count", "1") == 0
    assert len(list((place / "registry/derived").iterdir())) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("register", "web"), "no files were named"),
        (("register", "web", "none/*"), "no file matches"),
        (("register", "we b", "raw"), "is not an address"),
        (("register", "web", "raw", "--engine", "abacus"), "local or ray, got 'abacus'"),
        (("rows", "web@9"), "there is no web@9"),
        (("export", "web", "--to", "xlsx", "--out", "x"), "there is no web"),
        (("measure", "web", "--tokenizer", "none.json"), "cannot read tokenizer"),
    ],
)
def test_bad_input_gets_a_sentence(words: tuple[str, ...], message: str, capsys: Capture) -> None:
    assert run(*words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
