"""Files of one folder are rows of one kind, or it is said that they are not."""

import json
import subprocess
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import Policy, Registry, errors
from penstock.cli.main import main
from penstock.registry.version import Version

ROWS = "".join(json.dumps({"id": n, "text": f"document {n}"}) + "\n" for n in range(3))


def left_out(version: Version) -> dict[str, str]:
    assert version.account is not None
    return {omission.name: omission.reason for omission in version.account.left_out}


def notes(version: Version) -> str:
    assert version.account is not None
    return "\n".join(version.account.notes)


def test_descriptions_of_a_model_or_a_crawl_beside_rows_are_no_rows(tmp_path: Path) -> None:
    """Goal: no row is made of settings. Method: files as model repositories have them, and a crawler's counts, beside JSON lines."""
    raw = tmp_path / "raw"
    raw.mkdir()
    (raw / "a.jsonl").write_text(ROWS)
    (raw / "config.json").write_text(json.dumps({"model_type": "bert", "id2label": {"0": "no"}}, indent=2))
    (raw / "generation_config.json").write_text('{"max_new_tokens": 3}\n')
    (raw / "stats.json").write_text('{"rows": 3, "took_s": 1.5}')
    registry = Registry(tmp_path / "registry")
    version = registry.register("web", raw)
    assert [row["id"] for row in version] == [0, 1, 2]
    reason = "one object, with no field of the rows beside it"
    assert left_out(version) == dict.fromkeys(("config.json", "generation_config.json", "stats.json"), reason)
    with pytest.raises(errors.FilesLeftOut):
        registry.register("web", raw, policy=Policy(strict=True))
    # Whoever names one means it.
    assert len(registry.register("stats", raw / "stats.json")) == 1


def test_an_object_per_file_stays_a_row_per_file(tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / f"{number}.json").write_text(json.dumps({"id": number}, indent=2))
    assert len(Registry(tmp_path / "registry").register("web", tmp_path / "*.json")) == 4
    # One that has a field of the others is one of them.
    (tmp_path / "more.jsonl").write_text(ROWS)
    assert len(Registry(tmp_path / "other").register("web", tmp_path / "*.json*")) == 7


def test_files_without_a_common_field_are_a_question(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = tmp_path / "raw"
    for name, column in (("en/0", "text"), ("de/0", "image"), ("fr/0", "image")):
        (raw / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({column: ["a", "b"]}), raw / f"{name}.parquet")
    registry = Registry(tmp_path / "registry")
    with pytest.raises(errors.TablesMixed) as caught:
        registry.register("web", raw)
    assert (caught.value.shard, caught.value.other_shard) == ("de/0.parquet", "en/0.parquet")
    assert (caught.value.fields, caught.value.other_fields) == (["image"], ["text"])
    assert len(registry.register("web", raw, policy=Policy(mixed=True))) == 6
    files = sorted(raw.rglob("*.parquet"))
    assert len(registry.register("named", files)) == 6
    assert main(["data", "register", "web", str(raw), "--registry", str(tmp_path / "cli")]) == 2
    said = capsys.readouterr().err
    assert "have no field in common" in said
    assert "--mixed" in said


def test_fields_may_lead_from_one_file_to_another(tmp_path: Path) -> None:
    """Goal: rows of logs that grew are one dataset. Method: the first and the last file share nothing, but both share with others."""
    for number, names in enumerate((("a", "b"), ("c", "d"), ("b", "c"))):
        (tmp_path / f"{number}.jsonl").write_text(json.dumps(dict.fromkeys(names, 1)) + "\n")
    assert len(Registry(tmp_path / "registry").register("web", tmp_path / "*.jsonl")) == 3


def test_columns_that_some_files_lack_are_said(tmp_path: Path) -> None:
    (tmp_path / "orders.csv").write_text("id,user,amount\n1,2,3\n")
    (tmp_path / "users.csv").write_text("id,name\n2,x\n")
    said = notes(Registry(tmp_path / "registry").register("web", tmp_path / "*.csv"))
    assert "columns 'user', 'amount' missing in 1 of 2 files (users.csv)" in said
    assert "column 'name' missing in 1 of 2 files (orders.csv)" in said
    (tmp_path / "orders.csv").unlink()
    assert notes(Registry(tmp_path / "other").register("web", tmp_path / "*.csv")) == ""


def test_a_table_without_a_header_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,x\n2,y\n3,z\n")
    version = Registry(tmp_path / "registry").register("web", tmp_path / "a.csv")
    assert notes(version) == "a.csv (its first line was taken for names of fields, though '1' is a number)"


def test_members_of_archives_that_are_in_no_sample_are_said(tmp_path: Path) -> None:
    """Goal: a sample behind a hard link, as tar writes the second name of a file, is not lost in silence. Method: GNU tar."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in/0.txt").write_text("zero")
    (tmp_path / "in/1.txt").hardlink_to(tmp_path / "in/0.txt")
    archive = tmp_path / "a.tar"
    subprocess.run(["tar", "-cf", archive, "0.txt", "1.txt"], cwd=tmp_path / "in", check=True, timeout=60)
    version = Registry(tmp_path / "registry").register("web", archive)
    assert len(version) == 1
    assert "of its members 1 are no part of a sample: folders, links" in notes(version)
