"""`penstock data peek` and `bench` on records."""

import json
from pathlib import Path

import pytest

from tests.cli.test_data import run
from tests.data.gallery import Gallery, expected_row

RECIPE = """
seed = 17
batch = 12
exhaustion = "pad"
undecodable = "mask"
[[sources]]
name = "pictures@1"
epochs = 1
[[sources]]
name = "notes@1"
stages = [{ kind = "map", function = "tests.data.record_maps:fragile" }]
[[sources]]
name = "moves@1"
"""


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Gallery:
    new_gallery = Gallery.make(tmp_path_factory.mktemp("gallery"))
    (new_gallery.folder / "recipe.toml").write_text(RECIPE)
    return new_gallery


def test_peek_shows_fields_values_and_origins(gallery: Gallery, capsys: pytest.CaptureFixture[str]) -> None:
    registry = ["--registry", gallery.registry.url]
    assert run("peek", str(gallery.folder / "recipe.toml"), *registry) == 0
    text = capsys.readouterr().out
    assert text.startswith("step 0: 12 records, 0 padding")
    for shown in (
        "  valid: uint8 [12]",
        "obs: list of float32 array",
        "89 50 4e 47",
        "row 11: ",
        "obs = float32 [2, 3]: ",
    ):
        assert shown in text
    assert (
        run("peek", str(gallery.folder / "recipe.toml"), *registry, "--lane", "1/3", "--json", "--count", "2")
        == 0
    )
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["step"], second["step"], first["rows"]) == (0, 1, 4)
    for document in (first, second):
        bad = {fault["row"] for fault in document["undecodable"]}
        for row, (values, (origin,)) in enumerate(zip(document["values"], document["origins"], strict=True)):
            expected = expected_row(origin["source"], origin["sample"])
            assert values["valid"] == (row not in bad)
            for name, value in expected.items():
                if row not in bad and not isinstance(value, bytes) and name != "valid":
                    assert values[name] == value


def test_peek_says_what_cannot_be_decoded_and_what_is_padding(
    gallery: Gallery, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "notes.toml").write_text(
        'batch = 8\nshuffle = "none"\nexhaustion = "pad"\nundecodable = "mask"\n[[sources]]\nname = "notes@1"\nepochs = 1\n'
        '[[stages]]\nkind = "map"\nfunction = "tests.data.record_maps:fragile"\n'
    )
    assert (
        run(
            "peek",
            str(tmp_path / "notes.toml"),
            "--step",
            "0",
            "--count",
            "4",
            "--registry",
            gallery.registry.url,
        )
        == 0
    )
    text = capsys.readouterr().out
    assert text.count("cannot be decoded: map tests.data.record_maps:fragile: ValueError") == 3
    assert text.count(": padding\n") == 2
    assert "text = 'note 29'" in text


def test_bench_counts_rows(gallery: Gallery, capsys: pytest.CaptureFixture[str]) -> None:
    words = [str(gallery.folder / "recipe.toml"), "--seconds", "0.2", "--registry", gallery.registry.url]
    assert run("bench", *words) == 0
    assert "rows per second" in capsys.readouterr().out
    assert run("bench", *words, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["rows_per_s"] > 0
    assert document["tokens_per_s"] == 0
