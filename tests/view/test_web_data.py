"""What the web server answers about data: datasets, rows, spreads, filters, lineage, media, batches, lanes, differences."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from starlette.testclient import TestClient

import penstock as ps
from penstock.report import histogram
from penstock.view.model import unpack
from penstock.view.web import batch_routes
from penstock.view.web.content import cells, datasets
from penstock.view.web.content import filtered_rows as filtering
from penstock.view.web.content.column_spread import spread
from penstock.view.web.content.media_bytes import OPEN_RANGE_BYTES, byte_range
from tests.view.exhibit import HOSTILE_FIELD, SCRIPT, TURNED, Exhibit, picture
from tests.view.serving import client_of, site_at


@pytest.fixture(scope="module")
def client(exhibit: Exhibit) -> TestClient:
    return client_of(site_at(exhibit.folder))


def ask(client: TestClient, path: str, **query: Any) -> Any:
    answer = client.get(f"/api/{path}", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_datasets_are_listed_with_their_newest_versions(client: TestClient) -> None:
    by_name = {dataset["name"]: dataset for dataset in ask(client, "datasets")["datasets"]}

    assert by_name["web"]["address"] == "web@2"
    assert (by_name["web"]["rows"], by_name["web"]["tags"]) == (1200, {"gold": 2})
    assert by_name["web/parquet"]["derived"]
    assert not by_name["web"]["derived"]


def test_a_search_finds_datasets_that_the_list_leaves_out(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets, "DATASETS_MAX", 1)
    every = ask(client, "datasets")
    answer = ask(client, "datasets", search="WEB par")

    assert (len(every["datasets"]), every["left_out"] > 1) == (1, True)
    assert ([dataset["name"] for dataset in answer["datasets"]], answer["left_out"]) == (["web/parquet"], 0)
    assert ask(client, "datasets", search="nowhere")["datasets"] == []


def test_a_dataset_that_cannot_be_read_does_not_hide_the_others(tmp_path: Path) -> None:
    registry = ps.Registry(tmp_path / "registry")
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n')
    registry.register("good", tmp_path / "a.jsonl")
    bad = registry.register("bad", tmp_path / "a.jsonl", about=ps.About(note="x"))
    (tmp_path / "b.jsonl").write_text('{"a": 2}\n')
    bad = registry.register("bad", tmp_path / "b.jsonl")
    (tmp_path / "registry/objects" / bad.digest.removeprefix("b3:")).write_text("damaged")

    by_name = {
        dataset["name"]: dataset for dataset in ask(client_of(site_at(tmp_path)), "datasets")["datasets"]
    }

    assert "problem" in by_name["bad"]
    assert by_name["good"]["rows"] == 1


def test_a_version_shows_its_schema_and_a_command_that_finds_it(client: TestClient) -> None:
    answer = ask(client, "version", at="web@gold")

    assert answer["address"] == "web@2"
    assert {field["name"] for field in answer["schema"]} >= {"id", "text", "lang", HOSTILE_FIELD}
    assert answer["command"] == "penstock data show web@2"


@pytest.mark.parametrize("start", [0, 3, 1190, 1200, 10**15])
def test_rows_come_by_number_from_anywhere(client: TestClient, start: int) -> None:
    answer = ask(client, "rows", at="web@2", start=start, count=5)

    assert [row["row"] for row in answer["rows"]] == list(range(start, min(1200, start + 5)))
    assert [row["cells"][0]["text"] for row in answer["rows"]] == [str(row["row"]) for row in answer["rows"]]


def test_long_values_say_how_long_they_are(client: TestClient) -> None:
    preview = ask(client, "rows", at="web@2", start=3, count=1)["rows"][0]["cells"][1]
    whole = ask(client, "row", at="web@2", row=3)

    assert len(preview["text"]) == cells.PREVIEW_MAX < preview["of"]
    text = next(field for field in whole["fields"] if field["name"] == "text")
    assert text["text"].startswith(SCRIPT)
    assert ("of" in text, len(text["text"])) == (False, preview["of"])
    assert (whole["shard"], whole["place"]) == ("000.jsonl", 3)


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        (None, {"kind": "null", "text": "null"}),
        (float("nan"), {"kind": "number", "text": "nan"}),
        (2**80, {"kind": "number", "text": str(2**80)}),
        ("\ud800", {"kind": "text", "text": "\\ud800"}),
        (b"ab", {"kind": "bytes", "text": "61 62", "size": 2}),
        (picture(2, 2, 0)[:40], {"kind": "image", "text": "image/png", "size": 40}),
        (b"<svg onload=alert(1)>", {"kind": "bytes", "size": 21}),
        (np.arange(3.0), {"kind": "array", "text": "0 1 2", "dtype": "float64", "shape": [3]}),
        ({"a": [1, {"b": "c"}]}, {"kind": "object", "text": '{"a": [1, {"b": "c"}]}', "items": 1}),
        ([0] * 10_000, {"kind": "list", "items": 10_000}),
    ],
)
def test_values_of_every_kind_become_cells_that_json_keeps(value: Any, cell: dict[str, Any]) -> None:
    shown = cells.cell(value, 100)

    assert cell.items() <= shown.items()
    assert msgspec.json.decode(msgspec.json.encode(shown)) == shown
    assert len(shown["text"]) <= 100


def test_spreads_cover_every_field_and_each_bar_can_be_asked_for(client: TestClient) -> None:
    """Goal: a click on a bar gives the rows that it counts."""
    answer = ask(client, "columns", at="web@2")

    assert (answer["looked_at"], answer["rows"]) == (1200, 1200)
    for column in answer["columns"]:
        for bar in column["bars"]:
            if bar["where"] is not None and bar["count"]:
                rows, start = 0, 0
                # A look ends after a while, also before the last row; the page goes on from there.
                while start is not None and rows < 200:
                    passed = ask(
                        client, "filter", at="web@2", where=bar["where"], start=start, count=200 - rows
                    )
                    rows, start = rows + len(passed["rows"]), passed["next"]
                assert rows == min(200, bar["count"]), bar
    hostile = next(column for column in answer["columns"] if column["name"] == HOSTILE_FIELD)
    assert [bar["where"] for bar in hostile["bars"]] == [None, None]
    assert {bar["label"] for bar in hostile["bars"]} == {"quiet", TURNED}


def test_pages_show_the_histograms_of_the_report(client: TestClient, exhibit: Exhibit) -> None:
    """Goal: a number is computed in one place. Method: every count, end and median of the page, against those of the report."""
    columns = histogram.histograms(exhibit.registry.resolve("web@2")).columns
    answers = ask(client, "columns", at="web@2")["columns"]

    assert {column.of for column in columns} >= {"values", "numbers", "lengths"}
    for column, answer in zip(columns, answers, strict=True):
        counts = [count for _, count in column.choices] or [bar.count for bar in column.bins]
        ends = (column.low, column.median, column.high, column.not_finite)
        assert [bar["count"] for bar in answer["bars"]] == counts
        assert (answer["of"], answer["missing"]) == (column.of, column.missing)
        assert tuple(map(answer.get, ("low", "median", "high", "not_finite"))) == ends


def test_spreads_of_large_versions_are_of_rows_taken_evenly(
    monkeypatch: pytest.MonkeyPatch, exhibit: Exhibit
) -> None:
    monkeypatch.setattr(histogram, "ROWS_MAX", 64)
    monkeypatch.setattr(histogram, "STRETCHES", 16)
    version = exhibit.registry.resolve("web@2")

    answer = spread(version)

    identities = next(column for column in answer["columns"] if column["name"] == "id")
    assert (answer["looked_at"], answer["rows"]) == (64, 1200)
    assert identities["low"] < 20
    assert identities["high"] > 1100


def test_a_filter_says_how_many_rows_were_looked_at_and_goes_on(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filtering, "LOOKED_AT_MAX", 300)
    numbers: list[int] = []
    looked_at, start = 0, 0
    while start is not None:
        answer = ask(
            client, "filter", at="web@2", where="lang == 'de' and len(text) > 100", start=start, count=20
        )
        assert len(answer["rows"]) <= 20
        numbers += [row["row"] for row in answer["rows"]]
        looked_at += answer["looked_at"]
        start = answer["next"]

    rows = list(
        ps.Registry(Path(client.app.state.site.registry.url.removeprefix("file://"))).resolve("web@2")
    )  # type: ignore[attr-defined]
    assert numbers == [n for n, row in enumerate(rows) if row["lang"] == "de" and len(row["text"]) > 100]
    assert looked_at == 1200


def test_rows_on_which_an_expression_fails_are_counted_and_explained(client: TestClient) -> None:
    answer = ask(client, "filter", at="web@2", where="len(url) > 5 and id + url == 3", count=5)

    assert (answer["rows"], answer["failed"]) == ([], 800)
    assert answer["reason"].startswith("row 1: ")


@pytest.mark.parametrize(
    "where", ["open('x')", "__import__('os')", "a.b", "(" * 500, "x" * 11_000, "id ** 99"]
)
def test_expressions_reach_nothing_but_the_row(client: TestClient, where: str) -> None:
    answer = client.get("/api/filter", params={"at": "web@2", "where": where})

    assert answer.status_code == 422
    assert "error" in answer.json()


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("version", {"at": "nothing@9"}),
        ("version", {"at": "../etc"}),
        ("version", {}),
        ("row", {"at": "web@2", "row": 5000}),
        ("rows", {"at": "web@2", "start": "-1"}),
        ("rows", {"at": "web@2", "start": "²"}),
        ("media", {"at": "web@2", "row": 0, "field": 99}),
        ("media", {"at": "web@2", "row": 0, "field": 1}),
        ("batch", {"address": "web@2"}),
        ("batch", {"address": "recipe.toml#step=1,row"}),
        ("batch", {"address": "recipe.toml", "rows": "x"}),
        ("token", {"address": "recipe.toml#step=1"}),
        ("lanes", {"address": "recipe.toml", "lanes": 7}),
        ("lanes", {"address": "recipe.toml", "lanes": 100_000}),
        ("records", {"address": "recipe.toml"}),
        ("batch", {"address": "recipe.toml#step=0,lane=9/3"}),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(
    client: TestClient, path: str, query: dict[str, Any]
) -> None:
    answer = client.get(f"/api/{path}", params=query)

    assert answer.status_code == 422
    assert answer.json()["error"]["message"]


def test_lineage_is_a_graph_around_the_version(client: TestClient) -> None:
    answer = ask(client, "lineage", at="web@2")

    levels = {place["address"]: place["level"] for place in answer["places"]}
    assert levels["web@2"] == 0
    assert levels["web/parquet@1"] == 1
    assert ["web@2", "web/parquet@1"] in answer["arrows"]
    below = ask(client, "lineage", at="web/parquet@1")
    assert {place["address"]: place["level"] for place in below["places"]} == {
        "web/parquet@1": 0,
        "web@2": -1,
    }


def test_versions_are_compared_with_and_without_rows(client: TestClient) -> None:
    quick = ask(client, "difference", before="web@1", after="web@2")
    whole = ask(client, "difference", before="web@1", after="web@2", rows=1)

    assert (quick["equal"], quick["shards_added"], quick["rows_added"]) == (False, ["001.jsonl"], None)
    assert whole["rows_added"] == 600


def test_media_have_the_types_that_we_recognise_and_are_sandboxed(client: TestClient) -> None:
    names = [field["name"] for field in ask(client, "version", at="pictures@1")["schema"]]
    types = {}
    for name in ("png", "wav", "bin"):
        answer = client.get("/api/media", params={"at": "pictures@1", "row": 2, "field": names.index(name)})
        types[name] = answer.headers["content-type"]
        assert answer.headers["content-security-policy"].startswith("sandbox;")
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert ("content-disposition" in answer.headers) == (name == "bin")
        assert "content-encoding" not in answer.headers

    assert types == {"png": "image/png", "wav": "audio/wav", "bin": "application/octet-stream"}


def test_media_come_in_ranges(client: TestClient) -> None:
    """Goal: a player can seek. Method: a whole picture, put together from ranges of all forms."""
    names = [field["name"] for field in ask(client, "version", at="pictures@1")["schema"]]
    query = {"at": "pictures@1", "row": 2, "field": names.index("png")}
    whole = client.get("/api/media", params=query)
    size = len(whole.content)

    parts = [
        client.get("/api/media", params=query, headers={"range": f"bytes={r}"})
        for r in ("0-99", "100-", f"-{size - 7}")
    ]

    assert whole.headers["accept-ranges"] == "bytes"
    assert whole.content == picture(96, 64, 2)
    assert {part.status_code for part in parts} == {206}
    assert parts[0].content + parts[1].content == whole.content
    assert parts[2].content == whole.content[7:]
    assert parts[0].headers["content-range"] == f"bytes 0-99/{size}"
    late = client.get("/api/media", params=query, headers={"range": f"bytes={size}-"})
    assert (late.status_code, late.headers["content-range"]) == (416, f"bytes */{size}")


def test_pictures_inside_of_objects_are_pictures(tmp_path: Path) -> None:
    """Method: a Parquet file with images as Hugging Face datasets write them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [{"image": {"bytes": picture(4, 4, n), "path": f"{n}.png"}, "label": n} for n in range(3)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    ps.Registry(tmp_path / "registry").register("images", tmp_path / "a.parquet")
    client = client_of(site_at(tmp_path))

    field = ask(client, "row", at="images@1", row=1)["fields"][0]
    answer = client.get("/api/media", params={"at": "images@1", "row": 1, "field": 0, "path": field["path"]})

    assert (field["kind"], field["path"]) == ("image", "bytes")
    assert (answer.content, answer.headers["content-type"]) == (picture(4, 4, 1), "image/png")
    assert (
        client.get("/api/media", params={"at": "images@1", "row": 1, "field": 0, "path": "path"}).status_code
        == 422
    )


@pytest.mark.parametrize(
    ("header", "size", "span"),
    [
        (None, 10, None),
        ("bytes=0-", 10, (0, 10)),
        ("bytes=3-5", 10, (3, 6)),
        ("bytes=3-500", 10, (3, 10)),
        ("bytes=-4", 10, (6, 10)),
        ("bytes=-400", 10, (0, 10)),
        ("bytes=7-3", 10, (10, 10)),
        ("bytes=99-", 10, (10, 10)),
        ("bytes=0-1,3-4", 10, None),
        ("lines=0-1", 10, None),
        ("bytes=-", 10, None),
        ("bytes=0-", 1 << 30, (0, OPEN_RANGE_BYTES)),
    ],
)
def test_ranges_of_bytes(header: str | None, size: int, span: tuple[int, int] | None) -> None:
    assert byte_range(header, size) == span


def test_a_batch_travels_as_packed_columns_and_is_the_batch_itself(client: TestClient, folder: Path) -> None:
    answer = client.get("/api/batch", params={"address": "recipe.toml#step=2,lane=1/2"})
    facts, packed = unpack(answer.content)

    registry = ps.Registry(folder / "registry")
    batch = ps.batch_at(
        ps.Recipe.load(folder / "recipe.toml"), step=2, lane=ps.Lane(1, of=2), registry=registry
    )
    assert facts["digest"] == batch.digest
    for name, column in {"tokens": "tokens", "segments": "segments", "loss_mask": "loss_mask"}.items():
        np.testing.assert_array_equal(packed[name], batch[column])
    assert facts["window"]["cuts"] == []
    assert facts["address"].endswith("recipe.toml#step=2,lane=1/2")
    assert "content-encoding" not in answer.headers


def test_a_batch_too_large_for_one_answer_says_which_rows_it_has(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_routes, "TOKENS_MAX", 256 * 5)

    facts, packed = unpack(client.get("/api/batch", params={"address": "recipe.toml"}).content)
    more, _ = unpack(client.get("/api/batch", params={"address": "recipe.toml", "rows": "12:99"}).content)

    assert (facts["rows"], facts["window"]["rows"], len(packed["tokens"])) == (16, [0, 5], 5)
    assert facts["window"]["cuts"] == ["rows 0:5 of 16"]
    assert more["window"]["rows"] == [12, 16]


def test_a_token_knows_its_bytes_and_where_it_came_from(client: TestClient) -> None:
    token = ask(client, "token", address="recipe.toml#step=2,row=3,token=40")

    origin = token["origin"][0]
    row = ask(client, "row", at=origin["version"], row=origin["sample"])
    text = next(field["text"] for field in row["fields"] if field["name"] == "text")
    assert bytes.fromhex(token["bytes"]).decode() in text
    assert row["shard"] == origin["shard"]


def test_records_come_with_fields_by_kind_and_their_media(client: TestClient) -> None:
    records = ask(client, "records", address="pictures.toml#step=1", first=1, count=2)

    assert [row["row"] for row in records["rows"]] == [1, 2]
    kinds = {field["name"]: field["kind"] for field in records["rows"][0]["fields"]}
    assert (kinds["png"], kinds["wav"], kinds["bin"]) == ("image", "audio", "bytes")
    answer = client.get("/api/field", params={"address": "pictures.toml#step=1", "row": 1, "name": "png"})
    assert answer.content == picture(96, 64, records["rows"][0]["origin"][0]["sample"])
    assert answer.headers["content-type"] == "image/png"


def test_the_lens_deals_every_row_to_one_lane_and_finds_nothing_twice(client: TestClient) -> None:
    lens = ask(client, "lanes", address="recipe.toml#step=2", lanes=4, equal=2)

    assert lens["adds_up"]
    assert [len(lane["rows"]) for lane in lens["lanes"]] == [4, 4, 4, 4]
    assert (lens["same_rows_count"], lens["repeats_count"]) == (0, 0)
    assert lens["ranks"] == {"count": 8, "unequal": []}


def test_the_lens_names_what_stands_in_two_lanes(tmp_path: Path, exhibit: Exhibit) -> None:
    """Method: a source of few rows, read over and over, so that a step holds the same rows twice."""
    (tmp_path / "few.jsonl").write_text("".join(f'{{"text": "a b {n}"}}\n' for n in range(3)))
    registry = ps.Registry(tmp_path / "registry")
    registry.register("few", tmp_path / "few.jsonl")
    tokenizer = (exhibit.folder / "tokenizer.json").read_text()
    (tmp_path / "tokenizer.json").write_text(tokenizer)
    stages = (
        '[[stages]]\nkind = "tokenize"\ntokenizer = "tokenizer.json"\n[[stages]]\nkind = "pad"\nlength = 16\n'
    )
    (tmp_path / "few.toml").write_text(f'batch = 8\n[[sources]]\nname = "few@1"\n{stages}')

    refused = client_of(site_at(tmp_path)).get(
        "/api/lanes", params={"address": "few.toml#step=0", "lanes": 2}
    )
    assert (refused.status_code, "measured first" in refused.text) == (422, True)

    ps.batch_at(ps.Recipe.load(tmp_path / "few.toml"), step=0, registry=registry)
    lens = ask(client_of(site_at(tmp_path)), "lanes", address="few.toml#step=0", lanes=2)

    assert lens["adds_up"]
    assert lens["same_rows_count"] == 3
    assert {lane for places in lens["same_rows"] for lane, _ in places} == {0, 1}
    assert lens["repeats_count"] == 5
    assert {lane for repeat in lens["repeats"] for lane, _ in repeat["places"]} == {0, 1}


def test_a_batch_differs_from_others_and_not_from_itself(client: TestClient) -> None:
    same = ask(client, "differences", a="recipe.toml#step=2", b="./recipe.toml#step=2")
    step = ask(client, "differences", a="recipe.toml#step=2", b="recipe.toml#step=3")
    recipe = ask(client, "differences", a="recipe.toml#step=2", b="edited.toml#step=2")

    assert (same["equal"], same["summary"]["tokens_differing"], same["first"]) == (True, 0, None)
    assert (step["equal"], recipe["equal"]) == (False, False)
    assert step["first"]["row"] == 0
    assert step["summary"]["tokens_differing"] > 1000
    assert step["only_counts"][0] > 0
    records = ask(client, "differences", a="pictures.toml#step=0", b="pictures.toml#step=1")
    assert (records["kind"], records["equal"], records["only_counts"]) == ("records", False, [4, 4])


def test_the_stages_of_a_token_are_linked_by_characters(client: TestClient) -> None:
    """Goal: raw, templated, tokens and input tell of the same token. Method: a conversation, token by token."""
    address = "chat.toml#step=1,row=2,token=60"

    stages = ask(client, "stages", address=address)

    token = ask(client, "token", address=address)
    stretch = next(
        candidate
        for candidate in stages["input"]
        if candidate["row"] == 2 and candidate["row_span"][0] <= 60 < candidate["row_span"][1]
    )
    at = 60 - stretch["row_span"][0] + stretch["token_span"][0]
    assert stages["tokens"]["ids"][at] == token["id"]
    first, stop = stages["tokens"]["spans"][at]
    text = "".join(piece["text"] for piece in stages["templated"]["pieces"])
    assert text[first:stop] == bytes.fromhex(token["bytes"]).decode()
    piece = next(part for part in stages["templated"]["pieces"] if part["start"] <= first < part["stop"])
    assert (piece["role"], piece["trained"]) == ("assistant", True)
    assert token["loss_mask"] == 1
    assert {field["name"] for field in stages["raw"]["fields"]} == {"id", "messages"}


def test_loss_is_counted_by_role_where_samples_are_conversations(client: TestClient) -> None:
    roles = {share["role"]: share for share in ask(client, "roles", address="chat.toml#step=1")["by_role"]}

    assert roles["assistant"]["loss"] == roles["assistant"]["tokens"] > 100
    assert (roles["user"]["loss"], roles["system"]["loss"]) == (0, 0)
    assert ask(client, "roles", address="recipe.toml#step=1")["by_role"] == []
