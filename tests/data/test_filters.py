"""Filters bound to a version: names are checked, nested fields and measured columns are reached."""

import io
import json
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.data.plan.row_filter import bind_filter
from penstock.data.plan.samples import measure_samples
from penstock.errors import ColumnAmbiguous, FieldUnknown, RecipeInvalid
from penstock.registry.columns.measure import Computed
from penstock.registry.tokenize.tokens import TokenLength
from penstock.view.model.filter import filter_rows
from penstock.view.model.rows import VersionView
from penstock.view.web.content.filtered_rows import passing
from tests.data import maps
from tests.data.corpus import Corpus, some_documents

ROWS: list[dict[str, Any]] = [
    {
        "id": n,
        "lang": ["en", "de"][n % 2],
        "tags": [{"name": "a"}],
        "text": " ".join(["7"] * (n % 5)),
        "meta": {"source": ["wiki", "mirror"][n % 3 == 0], "quality": {"score": n / 20}},
        **({"url": f"u{n}"} if n % 4 == 0 else {}),
    }
    for n in range(20)
]


@pytest.fixture
def mixed(own: Corpus) -> Corpus:
    """Rows with nested and optional fields, as JSON lines."""
    path = own.folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    own.registry.register("web", [path])
    return own


def kept(corpus: Corpus, *stages: Any, name: str = "web", **fields: Any) -> list[int]:
    """The rows that filters leave."""
    shape = [ps.Tokenize(str(corpus.tokenizer)), ps.Pack(8)]
    recipe = ps.Recipe(sources=[ps.Source(name)], batch=4, stages=[*stages, *shape], **fields)
    version = corpus.registry.resolve(name)
    samples = measure_samples(recipe, recipe.sources[0], version, corpus.registry, None)
    return np.flatnonzero(samples.mask).tolist()


@pytest.mark.parametrize(
    ("expression", "name", "nearest"),
    [
        ("lnag != 'de'", "lnag", "lang"),
        ("lang == 'en' and lenght > 5", "lenght", "lang"),
        ("len(txet) > 0", "txet", "text"),
        ("meta.sorce != 'mirror'", "meta.sorce", "meta.source"),
        ("meta.quality.scor > 0.5", "meta.quality.scor", "meta.quality.score"),
        ("lang.code == 'en'", "lang.code", "lang"),
        ("mata.source == 'wiki'", "mata", "meta"),
        ("tags.name == 'a'", "tags.name", "tags"),
        ("meta.source.name == 'a'", "meta.source.name", None),
        ("column('tokns') > 1", "tokns", "tokens"),
    ],
)
def test_a_name_that_no_row_has_is_refused_with_the_nearest(
    mixed: Corpus, expression: str, name: str, nearest: str | None
) -> None:
    with pytest.raises(FieldUnknown) as raised:
        kept(mixed, ps.Filter(expression))
    assert (raised.value.name, raised.value.nearest) == (name, nearest)
    assert isinstance(raised.value, RecipeInvalid)
    assert raised.value.hint
    assert nearest is None or f"did you mean {nearest!r}" in raised.value.hint


def test_optional_and_nested_fields_are_reached(mixed: Corpus) -> None:
    assert kept(mixed, ps.Filter("url != None")) == [0, 4, 8, 12, 16]
    expected = [n for n in range(20) if n % 3]
    assert kept(mixed, ps.Filter("meta.source == 'wiki'")) == expected
    assert kept(mixed, ps.Filter("meta.quality.score >= 0.5")) == list(range(10, 20))
    assert kept(mixed, ps.Filter("contains(lower(meta.source), 'mir')")) == [
        n for n in range(20) if not n % 3
    ]


def test_a_rare_nested_field_is_found_wherever_it_is(own: Corpus) -> None:
    rows = [{"text": "7", "meta": {"a": 1} | ({"rare": True} if n == 4_321 else {})} for n in range(5_000)]
    path = own.folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    own.registry.register("web", [path])
    assert kept(own, ps.Filter("meta.rare == True")) == [4_321]


def test_parquet_structs_are_reached_and_dots_in_names_win(own: Corpus) -> None:
    table = pa.table(
        {
            "text": ["7"] * 4,
            "meta": [{"source": name} for name in "abca"],
            "meta.source": [1, 2, 3, 4],
            "info": [{"deep": {"n": n}} for n in range(4)],
        }
    )
    pq.write_table(table, own.folder / "rows.parquet")
    own.registry.register("web", [own.folder / "rows.parquet"])
    assert kept(own, ps.Filter("meta.source > 2")) == [2, 3]
    assert kept(own, ps.Filter("info.deep.n in (0, 3)")) == [0, 3]


def test_fields_inside_a_field_with_dots_in_its_name_are_reached(own: Corpus, tmp_path: Path) -> None:
    """Goal: a JSON member of a WebDataset sample, which is called `meta.json`. Method: a real archive."""
    with tarfile.open(tmp_path / "a-000.tar", "w") as archive:
        for number in range(6):
            for name, data in (("meta.json", b'{"at": {"n": %d}}' % number), ("txt", b"x")):
                member = tarfile.TarInfo(f"{number:03d}.{name}")
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
    own.registry.register("archive", tmp_path / "a-000.tar")
    stages = [ps.Filter("meta.json.at.n > 3")]
    recipe = ps.Recipe(sources=[ps.Source("archive", epochs=1)], batch=1, stages=stages, shuffle="none")
    with ps.open(recipe, registry=own.registry) as feed:
        assert len(list(feed)) == 2
    for expression, nearest in (("meta.json.ta.n > 3", None), ("meta.json.at.m > 3", "meta.json.at.n")):
        wrong = replace(recipe, stages=[ps.Filter(expression)])
        with pytest.raises(FieldUnknown) as caught:
            ps.open(wrong, registry=own.registry)
        assert caught.value.nearest == nearest


def test_a_nested_field_of_something_else_is_an_error_and_not_a_silent_no(own: Corpus) -> None:
    path = own.folder / "rows.jsonl"
    path.write_text('{"text": "7", "meta": {"a": 1}}\n{"text": "7", "meta": "plain"}\n')
    own.registry.register("web", [path], policy=ps.Policy(mixed=True))
    with pytest.raises(ps.errors.SampleUndecodable, match="has no field 'a'"):
        kept(own, ps.Filter("meta.a != 2"))


def test_after_a_map_fields_are_not_known(mixed: Corpus) -> None:
    assert kept(mixed, ps.Map(maps.marked), ps.Filter("even == True")) == list(range(0, 20, 2))
    assert kept(mixed, ps.Map(maps.marked), ps.Filter("unheard is None")) == list(range(20))


def test_the_tokens_of_the_recipe_itself_are_a_column(mixed: Corpus) -> None:
    expected = [n for n in range(20) if n % 5 >= 3]
    assert kept(mixed, ps.Filter("tokens >= 3")) == expected
    assert kept(mixed, ps.Filter("column('tokens') >= 3 and lang == 'en'")) == [
        n for n in expected if n % 2 == 0
    ]
    assert kept(mixed, ps.Map(maps.marked), ps.Filter("column('tokens') >= 3")) == expected


class Width:
    """A measure of somebody's own."""

    name = "width"
    dtype = "<u4"
    payloads: ClassVar[dict[str, str]] = {}

    def __init__(self, factor: int) -> None:
        self.factor = factor

    def identity(self) -> dict[str, str]:
        return {"kind": "width", "factor": str(self.factor)}

    def read(self, row: dict[str, Any]) -> int:
        return int(row["id"]) * self.factor

    def compute(self, samples: list[int]) -> Computed:
        return samples, {}

    def payload_bytes(self, version: ps.Version) -> int:
        return 0


def test_kept_columns_are_reached_by_name_and_told_apart_by_key(mixed: Corpus) -> None:
    with pytest.raises(FieldUnknown, match="width"):
        kept(mixed, ps.Filter("width > 30"))
    ten = mixed.registry.measure("web", Width(10))
    assert kept(mixed, ps.Filter("width > 30")) == list(range(4, 20))
    two = mixed.registry.measure("web", Width(2))
    with pytest.raises(ColumnAmbiguous, match="2 measured columns") as raised:
        kept(mixed, ps.Filter("width > 30"))
    assert set(raised.value.keys) == {ten.key, two.key}
    assert kept(mixed, ps.Filter(f"column('width', '{two.key[:12]}') > 30")) == list(range(16, 20))
    version = mixed.registry.resolve("web")
    assert [column.key for column in version.columns()] == sorted(
        (column.key for column in version.columns()), key=lambda key: (_name(version, key), key)
    )


def _name(version: ps.Version, key: str) -> str:
    return next(column.name for column in version.columns() if column.key == key)


def test_plain_filters_have_the_verdicts_they_had(mixed: Corpus) -> None:
    """Goal: digests of recipes that were written before stay. Method: the identity of a verdict, as it always was."""
    from penstock.data.plan.filter_column import FilterColumn

    bound = FilterColumn(bind_filter("lang == 'en'", mixed.registry.resolve("web")))
    assert bound.identity() == {"kind": "verdict", "expression": "lang == 'en'", "language": "2"}


def test_eras_check_names_too(corpus: Corpus) -> None:
    recipe = corpus.recipe("web", stages=[ps.Filter("lnag == 'en'"), *corpus.stages(16)], measure="eras")
    with pytest.raises(FieldUnknown, match="lnag"):
        corpus.read(recipe, 1)


def test_views_filter_with_the_same_names(mixed: Corpus) -> None:
    mixed.registry.measure("web", TokenLength(mixed.tokenizer))
    version = mixed.registry.resolve("web")
    expected = [n for n in range(20) if n % 5 == 4 and n % 3]
    for text in ("tokens == 4 and meta.source == 'wiki'", "column('tokens') > 3 and meta.source != 'mirror'"):
        assert filter_rows(VersionView(version), text).rows == expected
        assert passing(version, text, start=0, count=50).numbers == expected
    for text in ("lnag == 'en'", "meta.sorce == 'wiki'"):
        with pytest.raises(FieldUnknown):
            filter_rows(VersionView(version), text)
        with pytest.raises(FieldUnknown):
            passing(version, text, start=0, count=50)


def test_records_are_filtered_by_columns(mixed: Corpus, tmp_path: Path) -> None:
    mixed.registry.measure("web", Width(10))
    recipe = ps.Recipe(
        sources=[ps.Source("web", epochs=1)], batch=1, stages=[ps.Filter("width >= 170")], shuffle="none"
    )
    with ps.open(recipe, registry=mixed.registry, threads=0) as feed:
        assert [batch["id"].tolist() for batch in feed] == [[17], [18], [19]]


def test_documents_of_a_split_stay_the_same(own: Corpus) -> None:
    own.add("web", some_documents(50, longest=9, seed=4))
    assert kept(own, ps.Filter("tokens > 4")) == [n for n, d in enumerate(own.documents["web"]) if len(d) > 4]
