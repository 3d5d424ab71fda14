"""`penstock cache`: what is there, what is rotten, what is too much."""

import json
from pathlib import Path

import pytest

from penstock import Registry
from penstock.cli.main import main
from penstock.store import open_store


@pytest.fixture
def filled(tmp_path: Path, s3_bucket: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache that holds three pieces of a file on S3."""
    place = tmp_path / "cache"
    monkeypatch.setenv("PENSTOCK_CACHE", str(place))
    monkeypatch.setenv("PENSTOCK_CACHE_BYTES", "100M")
    store = open_store(f"{s3_bucket}/cli-cache")
    lines = [json.dumps({"id": row, "text": "x" * 1_000}) for row in range(2_800)]
    store.put_if_absent("rows.jsonl", ("\n".join(lines) + "\n").encode())
    version = Registry(tmp_path / "registry").register("web", [f"{s3_bucket}/cli-cache/rows.jsonl"])
    assert [row["id"] for row in version.take([2_799, 0, 1_400])] == [2_799, 0, 1_400]
    return place


def test_show_verify_trim_and_clear(filled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "show", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["place"], shown["pieces"], shown["limit_bytes"]) == (str(filled), 3, 100 << 20)
    assert shown["bytes"] == sum(path.stat().st_size for path in filled.glob("pieces/*/*"))
    assert main(["cache", "show"]) == 0
    assert "3 pieces" in capsys.readouterr().out
    assert main(["cache", "verify"]) == 0
    rotten = next(filled.glob("pieces/*/*"))
    rotten.write_bytes(rotten.read_bytes()[::-1])
    assert main(["cache", "verify", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["rotten"] == [str(rotten)]
    assert not rotten.exists()
    assert main(["cache", "trim", "1500K", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bytes"] <= 1_500 << 10
    assert main(["cache", "clear", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bytes"] == 0
    assert list(filled.glob("pieces/*/*")) == []


def test_what_cannot_be_done_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "file"))
    assert main(["cache", "show"]) == 1
    assert "cannot be the cache" in capsys.readouterr().err
    monkeypatch.setenv("PENSTOCK_CACHE", "off")
    assert main(["cache", "show"]) == 2
    assert "PENSTOCK_CACHE is off" in capsys.readouterr().err
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    assert main(["cache", "trim", "many"]) == 2
    monkeypatch.setenv("PENSTOCK_CACHE_BYTES", "much")
    assert main(["cache", "show"]) == 2
    assert "50G" in capsys.readouterr().err
