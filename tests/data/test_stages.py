"""Stages are plain values: one form in Python and in a file, an order that makes sense, nonsense refused with a field."""

import json
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.data.stages import Stage, stage_of
from penstock.errors import RecipeInvalid
from tests.data import maps
from tests.data.corpus import write_tokenizer

TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_tokenizer(tmp_path / "tokenizer.json")
    (tmp_path / "ranks.tiktoken").write_text("MQ== 0\n")
    (tmp_path / "chat.jinja").write_text(TEMPLATE)
    return tmp_path


def made(folder: Path) -> dict[str, Stage]:
    tokenizer = str(folder / "tokenizer.json")
    return {
        "filter": ps.Filter("n"),
        "map": ps.Map(maps.louder),
        "tokenize": ps.Tokenize(tokenizer),
        "chat": ps.Chat(tokenizer, TEMPLATE),
        "truncate": ps.Truncate(100),
        "pack": ps.Pack(8),
        "pad": ps.Pad(8),
        "random": ps.Map(maps.scrambled, random=True),
    }


def recipe(folder: Path, kinds: str) -> ps.Recipe:
    stages = [made(folder)[kind] for kind in kinds.split()]
    return ps.Recipe(sources=[ps.Source("web@1")], batch=4, stages=stages)


GOOD = [
    "",
    "pack",
    "filter filter map filter tokenize pack",
    "map filter chat truncate pad",
    "tokenize truncate pack random",
    "filter map random random",
    "truncate pack",
]
BAD = {
    "pack filter": "filter comes after pack",
    "tokenize map pack": "map comes after tokenize",
    "tokenize chat": "at most one tokenize or chat",
    "chat tokenize": "at most one tokenize or chat",
    "truncate tokenize": "tokenize comes after truncate",
    "tokenize truncate truncate": "at most one truncate",
    "pack pad": "at most one pack or pad",
    "pad truncate": "truncate comes after pad",
    "pack map": "map comes after pack",
    "random pack": "pack comes after random map",
}


@pytest.mark.parametrize("kinds", GOOD)
def test_orders_that_make_sense(folder: Path, kinds: str) -> None:
    assert [stage.kind for stage in recipe(folder, kinds).stages] == kinds.replace("random", "map").split()


@pytest.mark.parametrize("kinds", BAD)
def test_orders_that_make_none_are_refused_with_the_right_one(folder: Path, kinds: str) -> None:
    with pytest.raises(RecipeInvalid) as raised:
        recipe(folder, kinds)
    assert raised.value.field == "stages"
    assert BAD[kinds] in f"{raised.value.reason} {raised.value.hint}"
    assert "web has " in raised.value.reason


#: The table of a recipe file, and the same in Python.
FORMS: dict[str, tuple[dict[str, Any], Any]] = {
    "pack": ({"length": 8, "policy": "fit", "pad": 3}, lambda f: ps.Pack(8, "fit", pad=3)),
    "pack by steps": ({"length": [[0, 8], [5, 16]]}, lambda f: ps.Pack([(0, 8), (5, 16)])),
    "pad": ({"length": 8, "token": 2}, lambda f: ps.Pad(8, token=2)),
    "truncate": ({"length": 8, "keep": "end"}, lambda f: ps.Truncate(8, keep="end")),
    "map": ({"function": "tests.data.maps:louder", "version": "2"}, lambda f: ps.Map(maps.louder, "2")),
    "map at random": (
        {"function": "tests.data.maps:scrambled", "random": True, "length_max": 9},
        lambda f: ps.Map(maps.scrambled, random=True, length_max=9),
    ),
    "tokenize ranks": (
        {"tokenizer": "ranks.tiktoken", "pattern": "gpt2", "special_tokens": {"<b>": 9, "<a>": 8}},
        lambda f: ps.Tokenize(str(f / "ranks.tiktoken"), pattern="gpt2", special_tokens={"<a>": 8, "<b>": 9}),
    ),
    "chat": (
        {"tokenizer": "tokenizer.json", "template": "chat.jinja", "train_on": ["user", "assistant"]},
        lambda f: ps.Chat(
            str(f / "tokenizer.json"), str(f / "chat.jinja"), train_on=("assistant", "user", "user")
        ),
    ),
}


@pytest.mark.parametrize("what", FORMS)
def test_a_stage_in_a_file_is_the_stage_in_python(folder: Path, what: str) -> None:
    table, in_python = FORMS[what]
    read = stage_of({"kind": what.split()[0], **table}, folder=folder)
    assert read == in_python(folder)
    assert json.dumps(read.document()) == json.dumps(in_python(folder).document())


def test_a_template_counts_by_its_text(folder: Path) -> None:
    tokenizer = str(folder / "tokenizer.json")
    inline = ps.Chat(tokenizer, TEMPLATE)
    assert inline.document() == ps.Chat(tokenizer, str(folder / "chat.jinja")).document()
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    assert inline.document() == ps.Chat(tokenizer).document()
    (folder / "chat_template.jinja").unlink()
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    assert inline.document() == ps.Chat(tokenizer).document()
    several = [{"name": "tool_use", "template": "{{ 1 }}"}, {"name": "default", "template": TEMPLATE}]
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"chat_template": several, "eos_token": {"content": "</s>"}, "bos_token": None})
    )
    assert (
        ps.Chat(tokenizer).document()
        == ps.Chat(tokenizer, TEMPLATE, variables={"eos_token": "</s>"}).document()
    )
    assert ps.Chat(tokenizer, TEMPLATE + " ").document() != ps.Chat(tokenizer).document()


REFUSED: dict[str, tuple[Any, str, str]] = {
    "schedule that begins late": (lambda f: ps.Pack([(1, 8)]), "length", "begin at step 0"),
    "schedule out of order": (lambda f: ps.Pack([(0, 8), (5, 9), (5, 8)]), "length", "go up"),
    "schedule of nothing": (lambda f: ps.Pack([]), "length", "begin at step 0"),
    "schedule of text": (lambda f: ps.Pack([(0, "8")]), "length", "5000"),  # type: ignore[list-item]
    "schedule with a length of nothing": (lambda f: ps.Pack([(0, 8), (5, 0)]), "length", "1 to"),
    "length that is a truth": (lambda f: ps.Pack(True), "length", "1 to"),
    "padding below zero": (lambda f: ps.Pack(8, pad=-1), "pad", "number of a token"),
    "padding that is text": (lambda f: ps.Pad(8, token="x"), "token", "number of a token"),  # type: ignore[arg-type]
    "pad of nothing": (lambda f: ps.Pad(0), "length", "1 to"),
    "keep the middle": (
        lambda f: ps.Truncate(8, keep="middle"),  # type: ignore[arg-type]
        "keep",
        "start or end",
    ),
    "map that is no function": (lambda f: ps.Map(5), "function", "module"),  # type: ignore[arg-type]
    "map without a name": (lambda f: ps.Map(lambda row: row), "function", "module"),
    "map of a builtin": (lambda f: ps.Map(len), "function", "module"),
    "map from nowhere": (lambda f: ps.Map("absent.module:clean"), "function", "PYTHONPATH"),
    "map without a module": (lambda f: ps.Map("clean"), "function", "module:clean"),
    "map that is not there": (lambda f: ps.Map("tests.data.maps:absent"), "function", "PYTHONPATH"),
    "map without a version": (lambda f: ps.Map(maps.louder, ""), "version", "must be a version"),
    "length of a map that is measured": (
        lambda f: ps.Map(maps.louder, length_max=5),
        "length_max",
        "leave length_max out",
    ),
    "ranks without a pattern": (lambda f: ps.Tokenize(str(f / "ranks.tiktoken")), "pattern", "o200k"),
    "pattern for a tokenizer.json": (
        lambda f: ps.Tokenize(str(f / "tokenizer.json"), pattern="gpt2"),
        "pattern",
        ".tiktoken",
    ),
    "special tokens without numbers": (
        lambda f: ps.Tokenize(str(f / "ranks.tiktoken"), pattern="gpt2", special_tokens=["<a>"]),  # type: ignore[arg-type]
        "special_tokens",
        "endoftext",
    ),
    "chat without a template": (lambda f: ps.Chat(str(f / "tokenizer.json")), "template", "template="),
    "chat with a template that is not there": (
        lambda f: ps.Chat(str(f / "tokenizer.json"), "absent.jinja"),
        "template",
        "absent.jinja",
    ),
    "chat without a tokenizer": (lambda f: ps.Chat("absent.json", TEMPLATE), "tokenizer", "absent.json"),
    "chat with roles as text": (
        lambda f: ps.Chat(str(f / "tokenizer.json"), TEMPLATE, train_on="assistant"),  # type: ignore[arg-type]
        "train_on",
        '["assistant"]',
    ),
    "chat on no day": (
        lambda f: ps.Chat(str(f / "tokenizer.json"), TEMPLATE, date="today"),
        "date",
        "2024-07-26",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_nonsense_is_refused(folder: Path, what: str) -> None:
    make, field, helps = REFUSED[what]
    with pytest.raises(RecipeInvalid) as raised:
        make(folder)
    assert raised.value.field == field
    assert helps in f"{raised.value.reason} {raised.value.hint}"


def test_a_length_may_change_later_without_touching_what_was_before(folder: Path) -> None:
    """Goal: a cursor survives a later edit of the length. Method: what the steps before depend on is the same document."""

    def packed(length: Any) -> ps.Recipe:
        return ps.Recipe(sources=[ps.Source("web@1")], batch=4, stages=[ps.Pack(length)])

    plain, edited, again = packed(8), packed([(0, 8), (10, 16)]), packed([(0, 8), (10, 16), (20, 32)])
    assert plain.document(until_step=10) == edited.document(until_step=10)
    assert plain.document(until_step=11) != edited.document(until_step=11)
    assert edited.document(until_step=20) == again.document(until_step=20)
    assert len({variant.digest for variant in (plain, edited, again)}) == 3
    assert edited.stages[0] == ps.Pack([[0, 8], [10, 16]])  # type: ignore[list-item]
    assert packed([(0, 8)]).digest == plain.digest
    (pack,) = edited.stages
    assert isinstance(pack, ps.Pack)
    assert (pack.length, pack.lengths) == (8, ((0, 8), (10, 16)))


def test_fields_that_came_later_leave_digests_alone(folder: Path) -> None:
    """The document of a recipe that uses none of them has none of them."""
    plain = ps.Recipe(sources=[ps.Source("web@1")], batch=4, stages=[ps.Pack(8)])
    assert plain.document()["sources"][0]["stages"] == [{"kind": "pack", "length": 8, "policy": "concat"}]
    assert "undecodable" not in plain.document()
    masked = ps.Recipe(sources=[ps.Source("web@1")], batch=4, stages=[ps.Pack(8)], undecodable="mask")
    more = ps.Recipe(
        sources=[ps.Source("web@1")], batch=4, stages=[ps.Pack(8)], undecodable="mask", undecodable_max=5
    )
    assert plain.digest != masked.digest == more.digest
    for field, value in {"undecodable": "hide", "undecodable_max": -1}.items():
        with pytest.raises(RecipeInvalid) as raised:
            ps.Recipe(sources=[ps.Source("web@1")], batch=4, **{field: value})  # type: ignore[arg-type]
        assert raised.value.field == field
