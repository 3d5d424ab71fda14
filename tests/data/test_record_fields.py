"""Chosen fields of records: others are neither decoded nor delivered nor digested, and the choice is part of the recipe."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.errors import CursorForeign, RecipeInvalid
from tests.data.gallery import write_archive
from tests.data.record_maps import counted

ROWS = 24
CHOSEN = ("id", "näme", "words")


def row(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "text": f"row {number}",
        "näme": f"ü{number}",
        "words": list(range(number % 3)),
        "score": number / 2,
        "meta": {"id": -number},
    }


def write(folder: Path, form: str) -> Path:
    """The rows in one of the formats."""
    table = pa.Table.from_pylist([row(n) for n in range(ROWS)])
    path = folder / f"rows.{form}"
    if form == "jsonl":
        # Python writes names that are no ASCII with escapes.
        path.write_text("".join(json.dumps(row(n)) + "\n" for n in range(ROWS)))
    elif form == "parquet":
        pq.write_table(table, path, row_group_size=7)
    elif form == "feather":
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=5)
    else:
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=5)
    return path


def read(registry: ps.Registry, recipe: ps.Recipe, **options: Any) -> list[Any]:
    with ps.open(recipe, registry=registry, **{"threads": 0, **options}) as feed:
        return list(feed)


def recipe_of(name: str = "rows@1", **fields: Any) -> ps.Recipe:
    return ps.Recipe(sources=[ps.Source(name, epochs=1)], batch=8, seed=3, **fields)


@pytest.mark.parametrize("form", ["jsonl", "parquet", "feather", "arrows"])
@pytest.mark.parametrize("copies", ["never", "always"])
def test_chosen_fields_alone_are_delivered_and_digested(tmp_path: Path, form: str, copies: str) -> None:
    """Goal: the digest says what was delivered. Method: a version that has only the chosen fields has the same digests."""
    registry = ps.Registry(tmp_path / "registry")
    registry.register("rows", write(tmp_path, form))
    batches = read(registry, recipe_of(fields=["words", "näme", "id"]), copies=copies)
    assert all(set(batch) == {"valid", *CHOSEN} for batch in batches)
    for batch in batches:
        for at in range(8):
            sample = batch.origin(at)[0].sample
            assert {name: batch[name][at] for name in CHOSEN} == {name: row(sample)[name] for name in CHOSEN}
    few = ps.Registry(tmp_path / "few")
    lines = [json.dumps({name: row(n)[name] for name in CHOSEN}) + "\n" for n in range(ROWS)]
    (tmp_path / "few.jsonl").write_text("".join(lines))
    few.register("rows", tmp_path / "few.jsonl")
    # The order of samples follows from the version, so rows are compared one by one.
    digests = {b.origin(0)[0].sample: b["words"][0] for b in read(few, recipe_of())}
    assert all(digests[sample] == row(sample)["words"] for sample in digests)
    in_order = {"shuffle": "none"}
    assert [b.digest for b in read(registry, recipe_of(fields=CHOSEN, **in_order))] == [
        b.digest for b in read(few, recipe_of(**in_order))
    ]


def test_fields_are_part_of_the_recipe_and_their_order_is_not(tmp_path: Path) -> None:
    registry = ps.Registry(tmp_path / "registry")
    registry.register("rows", write(tmp_path, "jsonl"))
    whole, some = recipe_of(), recipe_of(fields=["id", "words"])
    assert "fields" not in json.dumps(whole.document())
    assert some.digest != whole.digest
    assert some.digest == recipe_of(fields=("words", "id")).digest
    source = ps.Source("rows@1", epochs=1, fields=["id", "words"])
    assert ps.Recipe(sources=[source], batch=8, seed=3).digest == some.digest
    (tmp_path / "recipe.toml").write_text(
        'batch = 8\nseed = 3\nfields = ["words", "id"]\n[[sources]]\nname = "rows@1"\nepochs = 1\n'
    )
    assert ps.Recipe.load(tmp_path / "recipe.toml") == some
    with ps.open(some, registry=registry, threads=0) as feed:
        next(feed)
        cursor = feed.cursor
    with pytest.raises(CursorForeign):
        ps.open(whole, registry=registry, cursor=cursor)


def test_a_source_may_choose_for_itself(tmp_path: Path) -> None:
    registry = ps.Registry(tmp_path / "registry")
    registry.register("rows", write(tmp_path, "parquet"))
    registry.register("lines", write(tmp_path, "jsonl"))
    sources = [ps.Source("rows@1", epochs=1), ps.Source("lines@1", epochs=1, fields=["id", "score"])]
    recipe = ps.Recipe(sources=sources, batch=12, fields=["id"], shuffle="none")
    for batch in read(registry, recipe):
        assert set(batch) == {"valid", "id", "score"}
        for at, score in enumerate(batch["score"]):
            assert (score is None) == (batch.origin(at)[0].source == "rows")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ("id", "must be a list of names"),
        ([], "must be names of fields"),
        ([1], "must be names of fields"),
        (["id", "id"], "named twice"),
        (["wrods"], "no field 'wrods'"),
    ],
)
def test_fields_that_are_none_are_refused(tmp_path: Path, fields: Any, said: str) -> None:
    registry = ps.Registry(tmp_path / "registry")
    registry.register("rows", write(tmp_path, "jsonl"))
    with pytest.raises(RecipeInvalid, match=said) as raised:
        ps.open(recipe_of(fields=fields), registry=registry)
    if fields == ["wrods"]:
        assert "'words'" in f"{raised.value.hint}"


def test_tokens_have_no_fields(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.zeros((8, 4), dtype=np.uint16))
    registry = ps.Registry(tmp_path / "registry")
    registry.register("rows", tmp_path / "rows.npy")
    with pytest.raises(RecipeInvalid, match="read as tokens"):
        ps.open(recipe_of(fields=["id"]), registry=registry)


def test_a_field_that_is_left_out_may_be_called_as_batches_call_theirs(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"valid": true, "id": 1}\n')
    registry = ps.Registry(tmp_path / "registry")
    registry.register("rows", tmp_path / "rows.jsonl")
    (batch,) = read(registry, ps.Recipe(sources=[ps.Source("rows@1", epochs=1)], batch=1, fields=["id"]))
    assert batch["id"].tolist() == [1]


def test_filters_see_all_fields_and_maps_the_chosen_ones(tmp_path: Path) -> None:
    """Goal: a map gets the same row when it is measured and when it is read. Method: it counts the fields that it gets."""
    registry = ps.Registry(tmp_path / "registry")
    registry.register("rows", write(tmp_path, "jsonl"))
    stages = [ps.Filter("score >= 4"), ps.Map(counted), ps.Filter("count == 2")]
    recipe = recipe_of(fields=["id", "text"], stages=stages)
    counts = [int(number) for batch in read(registry, recipe) for number in batch["count"]]
    assert counts == [2] * 16


def test_a_chosen_field_is_there_even_if_no_row_has_it(tmp_path: Path) -> None:
    lines = [{"id": 0, "note": "a"}, *({"id": n} for n in range(1, 4))]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    registry = ps.Registry(tmp_path / "registry")
    registry.register("rows", tmp_path / "rows.jsonl")
    source = ps.Source("rows@1", epochs=1, fields=["note", "id"])
    batches = read(registry, ps.Recipe(sources=[source], batch=2, shuffle="none"))
    assert [batch["note"] for batch in batches] == [["a", None], [None, None]]


def test_formats_that_decode_whole_rows_deliver_the_chosen_fields(tmp_path: Path) -> None:
    write_archive(tmp_path / "some.tar", [{"__key__": f"{n}", "json": {"n": n}, "cls": n} for n in range(4)])
    registry = ps.Registry(tmp_path / "registry")
    registry.register("some", tmp_path / "some.tar")
    source = ps.Source("some@1", epochs=1, fields=["cls"])
    (batch,) = read(registry, ps.Recipe(sources=[source], batch=4, shuffle="none"))
    assert set(batch) == {"valid", "cls"}
    assert batch["cls"].tolist() == [0, 1, 2, 3]
