"""Folders as people and engines have them, made by those engines where they are at hand.

Each maker writes below the folder it is given. The guide shows what ``penstock data register`` says about each.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any


def write_rows(path: Path, first: int, count: int, **more: Any) -> Path:
    """A JSON lines file of numbered rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [{"id": row, "text": f"row {row}", **more} for row in range(first, first + count)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def hub_snapshot(top: Path) -> Path:
    """A dataset as ``huggingface_hub.snapshot_download`` leaves it: links in a revision to blobs beside it."""
    import datasets

    repository = top / "datasets--acme--chat"
    revision = repository / "snapshots/5e1f6b3"
    staging = top / "staging"
    for split, count in (("train", 60), ("test", 12)):
        rows = {"id": list(range(count)), "text": [f"{split} {n}" for n in range(count)]}
        for number in range(2 if split == "train" else 1):
            shards = 2 if split == "train" else 1
            part = datasets.Dataset.from_dict(rows).shard(shards, number)
            part.to_parquet(staging / f"data/{split}-{number:05}-of-{shards:05}.parquet")
    (staging / "README.md").write_text("---\nlicense: cc0-1.0\n---\n# Chat\n")
    (staging / ".gitattributes").write_text("*.parquet filter=lfs diff=lfs merge=lfs -text\n")
    for file in sorted(path for path in staging.rglob("*") if path.is_file()):
        blob = repository / "blobs" / hashlib.sha256(file.read_bytes()).hexdigest()
        link = revision / file.relative_to(staging)
        for folder in (blob.parent, link.parent):
            folder.mkdir(parents=True, exist_ok=True)
        file.rename(blob)
        link.symlink_to(os.path.relpath(blob, link.parent))
    (repository / "refs").mkdir()
    (repository / "refs/main").write_text("5e1f6b3")
    return repository


def spark_output(top: Path) -> Path:
    """What ``df.write.partitionBy("lang").parquet(…)`` leaves: a mark, sums, partitions, a part without rows, a failed task's rest."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    output = top / "events"
    schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
    for number, (lang, first, count) in enumerate((("de", 0, 20), ("en", 20, 30), ("en", 50, 0))):
        table = pa.table(
            {"id": range(first, first + count), "text": [f"{lang} {n}" for n in range(count)]}, schema=schema
        )
        part = output / f"lang={lang}" / f"part-{number}.snappy.parquet"
        part.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, part)
        (part.parent / f".{part.name}.crc").write_bytes(b"crc\0\0\0\2\0")
    (output / "_SUCCESS").touch()
    (output / "._SUCCESS.crc").write_bytes(b"crc\0\0\0\2\0")
    rest = output / "_temporary/0/task_7/part-7.snappy.parquet"
    rest.parent.mkdir(parents=True)
    pq.write_table(pa.table({"id": [999], "text": ["of a task that failed"]}, schema=schema), rest)
    return output


def rsynced_tree(top: Path) -> Path:
    """A tree copied with ``rsync -a``: links kept, one to elsewhere, one back up, one whose target did not come along."""
    tree = top / "corpus"
    write_rows(tree / "2024/a.jsonl", 0, 10)
    write_rows(tree / "2025/b.jsonl", 10, 10)
    write_rows(top / "shared/books/c.jsonl", 20, 10)
    (tree / "current").symlink_to("2025")
    (tree / "books").symlink_to(top / "shared/books")
    (tree / "2025/up").symlink_to("..")
    (tree / "2025/d.jsonl").symlink_to("/mnt/other/d.jsonl")
    os.link(tree / "2024/a.jsonl", tree / "2024/a-copy.jsonl")
    os.mkfifo(tree / "queue")
    return tree


def markdown_folder(top: Path) -> Path:
    """Documentation: pages in folders, a README that is one of them, and a licence."""
    docs = top / "handbook"
    for name in ("README.md", "guide/start.md", "guide/install.md", "reference/errors.md"):
        (docs / name).parent.mkdir(parents=True, exist_ok=True)
        (docs / name).write_text(f"# {name}\n\nA page about {name}.\n")
    (docs / "LICENSE").write_text("Do what you like.\n")
    (docs / ".git").mkdir()
    (docs / ".git/HEAD").write_text("ref: refs/heads/main\n")
    return docs


def mixed_folder(top: Path) -> Path:
    """Two formats that are data, and other things."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    mixed = top / "mixed"
    for number in range(3):
        write_rows(mixed / f"part-{number}.jsonl", number * 10, 10)
    (mixed / "part-3.jsonl").touch()
    pq.write_table(pa.table({"id": [1, 2]}), mixed / "extra.parquet")
    (mixed / "README.txt").write_text("What this is.\n")
    (mixed / "weights.dat").write_bytes(bytes(range(256)) * 4)
    return mixed
