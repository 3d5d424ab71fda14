"""A recipe is one value in two forms, its digest is what affects batches, and nonsense is refused with a field."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.data.feed.lane import parse_lane
from penstock.errors import AddressUnknown, RecipeInvalid
from tests.data.corpus import Corpus, write_tokenizer

TOML = """
seed = 17
batch = [[0, 24], [10, 48]]
shuffle = "local"
exhaustion = "drop"
weights = [[0, {web = 0.7, code = 0.3}], [7, {web = 0.2, code = 0.8}]]

[[sources]]
name = "web@1"
epochs = 2
[[sources.stages]]
kind = "filter"
expression = "lang == 'en'"

[[sources]]
name = "group/code@gold"
alias = "code"

[[stages]]
kind = "tokenize"
tokenizer = "tokenizer.json"
field = "text"

[[stages]]
kind = "pack"
length = 128
policy = "fit"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_tokenizer(tmp_path / "tokenizer.json")
    return tmp_path


def load(folder: Path, text: str) -> ps.Recipe:
    (folder / "recipe.toml").write_text(text)
    return ps.Recipe.load(folder / "recipe.toml")


def in_python(folder: Path, **changes: Any) -> ps.Recipe:
    fields: dict[str, Any] = {
        "sources": [
            ps.Source("web@1", stages=[ps.Filter("lang == 'en'")], epochs=2),
            ps.Source("group/code@gold", alias="code"),
        ],
        "seed": 17,
        "batch": [(0, 24), (10, 48)],
        "shuffle": "local",
        "exhaustion": "drop",
        "weights": [(0, {"web": 0.7, "code": 0.3}), (7, {"web": 0.2, "code": 0.8})],
        "stages": [ps.Tokenize(str(folder / "tokenizer.json")), ps.Pack(128, "fit")],
    }
    return ps.Recipe(**(fields | changes))


def test_the_two_forms_are_equal_and_have_one_digest(folder: Path) -> None:
    assert load(folder, TOML) == in_python(folder)
    assert load(folder, TOML).digest == in_python(folder).digest
    plain = 'batch = 8\n[[sources]]\nname = "web@1"\nweight = 2\n[[stages]]\nkind = "pack"\nlength = 4\n'
    same = ps.Recipe(sources=[ps.Source("web@1", weight=2.0)], batch=8, stages=[ps.Pack(4)])
    assert (load(folder, plain), load(folder, plain).digest) == (same, same.digest)


def test_the_order_of_keys_in_a_file_does_not_count(folder: Path) -> None:
    top, *tables = TOML.strip().split("\n\n")
    lines = top.splitlines()
    for seed in range(5):
        random.Random(seed).shuffle(lines)
        assert load(folder, "\n\n".join(["\n".join(lines), *tables])).digest == in_python(folder).digest
    turned = TOML.replace("{web = 0.7, code = 0.3}", "{code = 0.3, web = 0.7}")
    turned = turned.replace('length = 128\npolicy = "fit"', 'policy = "fit"\nlength = 128')
    assert load(folder, turned).digest == in_python(folder).digest


def test_the_digest_changes_with_nothing_that_leaves_batches_alone(folder: Path) -> None:
    expected = in_python(folder).digest
    (folder / "elsewhere").mkdir()
    copy = shutil.copy(folder / "tokenizer.json", folder / "elsewhere/renamed.json")
    stages = [ps.Tokenize(str(copy)), ps.Pack(128, "fit")]
    assert in_python(folder, stages=stages).digest == expected
    spaced = [
        ps.Source("web@1", stages=[ps.Filter('(lang=="en")')], epochs=2),
        ps.Source("group/code@gold", alias="code"),
    ]
    assert in_python(folder, sources=spaced).digest == expected
    scaled = [(0, {"web": 1.4, "code": 0.6}), (7, {"code": 1.6, "web": 0.4})]
    assert in_python(folder, weights=scaled).digest == expected
    # A schedule overrides the sources' own weights, and a source without a weight at any step is never read.
    unread = [*in_python(folder).sources, ps.Source("spare@1", weight=9)]
    assert in_python(folder, sources=unread).digest == expected


CHANGES: dict[str, Callable[[Path], dict[str, Any]]] = {
    "seed": lambda folder: {"seed": 18},
    "negative seed": lambda folder: {"seed": -17},
    "batch": lambda folder: {"batch": [(0, 24), (10, 96)]},
    "step of a batch": lambda folder: {"batch": [(0, 24), (11, 48)]},
    "weights": lambda folder: {"weights": [(0, {"web": 0.6, "code": 0.4}), (7, {"web": 0.2, "code": 0.8})]},
    "step of weights": lambda folder: {
        "weights": [(0, {"web": 0.7, "code": 0.3}), (8, {"web": 0.2, "code": 0.8})]
    },
    "shuffle": lambda folder: {"shuffle": "full"},
    "exhaustion": lambda folder: {"exhaustion": "stop"},
    "length": lambda folder: {"stages": [ps.Tokenize(str(folder / "tokenizer.json")), ps.Pack(64, "fit")]},
    "policy": lambda folder: {"stages": [ps.Tokenize(str(folder / "tokenizer.json")), ps.Pack(128)]},
    "content of the tokenizer": lambda folder: {
        "stages": [ps.Tokenize(str(write_tokenizer(folder / "other.json", first=7))), ps.Pack(128, "fit")]
    },
    "field": lambda folder: {
        "stages": [ps.Tokenize(str(folder / "tokenizer.json"), field="body"), ps.Pack(128, "fit")]
    },
    "special tokens": lambda folder: {
        "stages": [ps.Tokenize(str(folder / "tokenizer.json"), special=True), ps.Pack(128, "fit")]
    },
    "filter of all": lambda folder: {
        "stages": [ps.Filter("id > 5"), ps.Tokenize(str(folder / "tokenizer.json")), ps.Pack(128, "fit")]
    },
}
WEB, CODE = (
    ps.Source("web@1", stages=[ps.Filter("lang == 'en'")], epochs=2),
    ps.Source("group/code@gold", alias="code"),
)
SOURCES: dict[str, list[ps.Source]] = {
    "order of sources": [CODE, WEB],
    "version": [ps.Source("web@2", stages=WEB.stages, epochs=2), CODE],
    "filter": [ps.Source("web@1", stages=[ps.Filter("lang == 'de'")], epochs=2), CODE],
    "no filter": [ps.Source("web@1", epochs=2), CODE],
    "epochs": [ps.Source("web@1", stages=WEB.stages, epochs=3), CODE],
    "no limit on epochs": [ps.Source("web@1", stages=WEB.stages), CODE],
}


@pytest.mark.parametrize("what", [*CHANGES, *SOURCES])
def test_the_digest_changes_with_everything_that_affects_batches(folder: Path, what: str) -> None:
    changes = CHANGES[what](folder) if what in CHANGES else {"sources": SOURCES[what]}
    assert in_python(folder, **changes).digest != in_python(folder).digest


def test_all_those_digests_differ_from_each_other(folder: Path) -> None:
    digests = [in_python(folder, **change(folder)).digest for change in CHANGES.values()]
    digests += [in_python(folder, sources=sources).digest for sources in SOURCES.values()]
    assert len(set(digests)) == len(digests)


def test_a_recipe_cannot_be_changed(folder: Path) -> None:
    recipe = in_python(folder)
    with pytest.raises(AttributeError):
        recipe.seed = 5  # type: ignore[misc]
    with pytest.raises(AttributeError):
        recipe.sources[0].weight = 5  # type: ignore[misc]


#: What is replaced in the TOML text, by what, the field that the error names, and a word of its hint or reason.
BROKEN = {
    "unknown field": ("seed = 17", "sead = 17", "recipe", "known are sources"),
    "unknown field of a source": ("epochs = 2", "epocs = 2", "sources", "known are name"),
    "unknown field of a stage": ("length = 128", "length = 128\nwidth = 3", "stage pack", "width"),
    "source without a name": ('name = "web@1"', "", "sources", "no name"),
    "name that is a number": ('name = "web@1"', "name = 1", "sources", "web@3"),
    "negative weight": ("epochs = 2", "weight = -1.0", "weight", "-1.0"),
    "weight that is no number": ("epochs = 2", "weight = nan", "weight", "nan"),
    "weight that is text": ("epochs = 2", 'weight = "x"', "weight", "'x'"),
    "infinite weight": ("web = 0.7", "web = inf", "weights", "inf"),
    "negative weight in the schedule": ("web = 0.7", "web = -0.7", "weights", "-0.7"),
    "weight of nobody": ("web = 0.2", "wab = 0.2", "weights", "known are code, web"),
    "no weight at all": ("{web = 0.2, code = 0.8}", "{web = 0.0}", "weights", "step 7"),
    "weights that do not begin at 0": ("[[0, {web", "[[1, {web", "weights", "begin at step 0"),
    "weights out of order": ("[7, {web", "[0, {web", "weights", "begin at step 0"),
    "weights without steps": ("weights = [[0,", "weights = [5, [0,", "weights", "web = 0.7"),
    "batch that does not begin at 0": ("[[0, 24]", "[[1, 24]", "batch", "begin at step 0"),
    "batch out of order": ("[10, 48]", "[-1, 48]", "batch", "begin at step 0"),
    "batch of nothing": ("[10, 48]", "[10, 0]", "batch", "1 to"),
    "batch of far too much": ("[10, 48]", "[10, 99999999]", "batch", "1 to"),
    "batch that is text": ("[[0, 24], [10, 48]]", '"many"', "batch", "batch = 64"),
    "batch that is a truth": ("[[0, 24], [10, 48]]", "true", "batch", "batch = 64"),
    "batch that is a fraction": ("[[0, 24], [10, 48]]", "2.5", "batch", "batch = 64"),
    "empty schedule": ("[[0, 24], [10, 48]]", "[]", "batch", "begin at step 0"),
    "no batch": ("batch = [[0, 24], [10, 48]]", "", "batch", "batch = 64"),
    "no sources": (TOML[TOML.index("[[sources]]") : TOML.index("[[stages]]")], "", "sources", "none"),
    "sources that are no tables": (TOML[TOML.index("[[sources]]") :], "", "sources", "none"),
    "unknown stage": ('kind = "pack"', 'kind = "shrink"', "stages", "known are filter, tokenize, pack"),
    "stage without a kind": ('kind = "pack"', "", "stages", "known are"),
    "stage without its value": ("length = 128", "", "stage pack", "length"),
    "length of nothing": ("length = 128", "length = 0", "length", "1 to"),
    "negative length": ("length = 128", "length = -5", "length", "1 to"),
    "length of far too much": ("length = 128", "length = 16777217", "length", "1 to"),
    "length that is a fraction": ("length = 128", "length = 1.5", "length", "1 to"),
    "length that is text": ("length = 128", 'length = "128"', "length", "1 to"),
    "unknown policy": ('policy = "fit"', 'policy = "tight"', "policy", "concat, fit or crop"),
    "missing tokenizer": ("tokenizer.json", "absent.json", "tokenizer", "tokenizer.json"),
    "tokenizer that is a number": ('"tokenizer.json"', "5", "tokenizer", "tokenizer.json"),
    "filter that cannot be read": ("lang == 'en'", "lang ==", "filter", "for example"),
    "filter that is a number": ("\"lang == 'en'\"", "5", "filter", "text"),
    "no epochs": ("epochs = 2", "epochs = 0", "epochs", "0 times"),
    "half an epoch": ("epochs = 2", "epochs = 1.5", "epochs", "1.5 times"),
    "unknown shuffle": ('"local"', '"wild"', "shuffle", "full, local, none"),
    "unknown exhaustion": ('"drop"', '"panic"', "exhaustion", "drop"),
    "seed too large": ("seed = 17", "seed = 9223372036854775808", "seed", "64 bits"),
    "seed that is text": ("seed = 17", 'seed = "x"', "seed", "64 bits"),
    "seed that is a fraction": ("seed = 17", "seed = 1.5", "seed", "64 bits"),
    "duplicate alias": ('alias = "code"', 'alias = "web"', "sources", "give one of them an alias"),
    "no TOML": ("seed = 17", "seed ==", "file", "must be TOML"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_nonsense_is_refused_with_its_field_and_what_helps(folder: Path, what: str) -> None:
    good, bad, field, helps = BROKEN[what]
    assert TOML.count(good) == 1
    with pytest.raises(RecipeInvalid) as raised:
        load(folder, TOML.replace(good, bad))
    assert raised.value.field == field
    assert helps in f"{raised.value.reason} {raised.value.hint}"


def test_files_that_are_no_recipes_are_refused(folder: Path) -> None:
    (folder / "binary.toml").write_bytes(b"\xff\xfe\x00")
    for name in ("absent.toml", "binary.toml", "."):
        with pytest.raises(RecipeInvalid) as raised:
            ps.Recipe.load(folder / name)
        assert raised.value.field == "file"
    for text in ("batch = 4\nsources = 5", 'batch = 4\nsources = ["web"]', "batch = 4\nstages = 5"):
        with pytest.raises(RecipeInvalid, match="must be a list of tables"):
            load(folder, text)


@pytest.mark.parametrize(
    "kinds", ["pack filter", "pack tokenize", "tokenize filter", "tokenize tokenize", "pack pack"]
)
def test_stages_in_the_wrong_order_are_refused(folder: Path, kinds: str) -> None:
    by_kind = {
        "filter": ps.Filter("n"),
        "tokenize": ps.Tokenize(str(folder / "tokenizer.json")),
        "pack": ps.Pack(8),
    }
    stages = [by_kind[kind] for kind in kinds.split()]
    with pytest.raises(RecipeInvalid) as raised:
        ps.Recipe(sources=[ps.Source("web@1")], batch=4, stages=stages)
    assert raised.value.field == "stages"
    with pytest.raises(RecipeInvalid, match="web has"):
        ps.Recipe(sources=[ps.Source("web@1", stages=stages[:1])], batch=4, stages=stages[1:])


@pytest.mark.parametrize("text", ["8/8", "9/8", "x", "1/", "/2", "1/0", "-1/2", "1.5/2", ""])
def test_lanes_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(RecipeInvalid) as raised:
        parse_lane(text)
    assert raised.value.field == "lane"
    assert parse_lane("3/8") == ps.Lane(3, of=8)


def test_what_only_the_registry_knows_is_refused_at_open(corpus: Corpus) -> None:
    with pytest.raises(AddressUnknown) as unknown:
        corpus.open(corpus.recipe("web@9"))
    assert unknown.value.hint == "there are web@1"
    with pytest.raises(AddressUnknown):
        corpus.open(corpus.recipe("nothing"))
    with pytest.raises(RecipeInvalid, match="not tokens") as raised:
        corpus.open(corpus.recipe("web@1", stages=[ps.Pack(8)]))
    assert "Tokenize" in f"{raised.value.hint}"
    with pytest.raises(RecipeInvalid, match="not packed") as raised:
        corpus.open(corpus.recipe("web@1", stages=corpus.stages(8)[:1]))
    assert "Pack" in f"{raised.value.hint}"
    lengths = [
        ps.Source("web@1", stages=corpus.stages(8)),
        ps.Source("code@1", stages=corpus.stages(16)),
    ]
    with pytest.raises(RecipeInvalid, match="web 8, code 16"):
        corpus.open(corpus.recipe(*lengths, stages=[]))


@pytest.mark.parametrize("batch", [4, [(0, 6), (9, 4)], [(0, 4), (9, 6), (20, 3)]])
def test_a_batch_that_lanes_do_not_divide_is_refused_at_open(corpus: Corpus, batch: Any) -> None:
    """A ramp is looked at as a whole: who finds out at step 9 finds out too late."""
    recipe = corpus.recipe("web@1", batch=batch)
    with pytest.raises(RecipeInvalid) as raised:
        corpus.open(recipe, lane=ps.Lane(0, of=3))
    assert raised.value.field == "batch"
    assert "choose a batch that 3 divides" in f"{raised.value.hint}"
    corpus.open(recipe, lane=ps.Lane(0, of=1)).close()


def test_steps_that_are_over_need_not_be_dealt(corpus: Corpus) -> None:
    """A run that began with batches of 5 may go on with four lanes once its batches are of 8."""
    recipe = corpus.recipe("web@1", batch=[(0, 5), (3, 8)])
    with corpus.open(recipe) as feed:
        expected = [next(feed) for _ in range(4)][3]
    with corpus.open(recipe) as feed:
        cursor = [(next(feed), feed.cursor)[1] for _ in range(3)][-1]
    rows = [corpus.read(recipe, 1, cursor=cursor, lane=ps.Lane(k, of=4))[0]["tokens"] for k in range(4)]
    assert [row.tolist() for part in rows for row in part] == expected["tokens"].tolist()


def test_numbers_that_are_none_are_refused(corpus: Corpus) -> None:
    recipe = corpus.recipe("web@1")
    with pytest.raises(RecipeInvalid) as raised:
        ps.batch_at(recipe, step=-1, registry=corpus.registry)
    assert raised.value.field == "step"
    with pytest.raises(RecipeInvalid) as raised:
        corpus.open(recipe, threads=-1)
    assert raised.value.field == "threads"
    with pytest.raises(RecipeInvalid, match="4 rows, got 4"):
        ps.batch_at(recipe, step=0, registry=corpus.registry).origin(4)
