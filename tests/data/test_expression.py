"""The language of filters: what it can say, what it says of missing fields, and that it refuses everything else."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.data.plan.filter_column import FilterColumn
from penstock.data.recipe.expression import Expression
from penstock.errors import RecipeInvalid
from penstock.registry.columns.measure import NothingToMeasure
from tests.data.corpus import Corpus

ROW = {
    "lang": "en",
    "n": 5,
    "score": 0.5,
    "text": "Hello there",
    "tags": ["a", "b"],
    "none": None,
    "ok": True,
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("lang == 'en'", True),
        ('lang != "en"', False),
        ("n > 4 and n < 6", True),
        ("4 < n <= 5", True),
        ("4 < n < 5", False),
        ("not n", False),
        ("n == 4 or score >= 0.5", True),
        ("lang in ('en', 'de')", True),
        ("lang in ['de']", False),
        ("lang not in {'de'}", True),
        ("'there' in text", True),
        ("'a' in tags", True),
        ("n + 1 == 6 and n - 1 == 4 and n * 2 == 10", True),
        ("n / 2 == 2.5 and n // 2 == 2 and n % 2 == 1", True),
        ("-n == -5", True),
        ("len(text) == 11", True),
        ("len(tags) == 2", True),
        ("lower(text) == 'hello there'", True),
        ("startswith(text, 'Hell') and endswith(text, 'ere')", True),
        ("contains(text, 'lo t') and contains(tags, 'b')", True),
        ("abs(-n) == 5 and min(n, 3) == 3 and max(n, 3, 9) == 9", True),
        ("ok", True),
        ("ok is True", True),
        ("none is None", True),
        ("n is not None", True),
        ("len(lang + text) == 13", True),
        ("(none or 'en') == 'en'", True),
        ("(lang and n) == 5", True),
        ("True", True),
        ("  n == 5  ", True),
    ],
)
def test_what_the_language_says(text: str, expected: bool) -> None:
    assert Expression(text)(ROW) is expected


@pytest.mark.parametrize("name", ["none", "absent"])
def test_a_missing_field_is_none_and_has_no_order(name: str) -> None:
    for compare in ("<", "<=", ">", ">="):
        assert not Expression(f"{name} {compare} 5")(ROW)
        assert not Expression(f"5 {compare} {name}")(ROW)
        assert not Expression(f"{name} {compare} 'text'")(ROW)
    assert Expression(f"{name} == None and {name} is None and {name} != 5")(ROW)
    assert Expression(f"not {name} and len({name}) == 0 and lower({name}) == ''")(ROW)
    assert not Expression(f"startswith({name}, '') or endswith({name}, '') or contains({name}, '')")(ROW)
    assert not Expression(f"{name} in ('en', 'de')")(ROW)


@pytest.mark.parametrize(
    "text", ["absent + 1 > 0", "'a' in absent", "lang > 5", "n / 0 > 1", "abs(lang) > 1", "len()"]
)
def test_a_row_that_cannot_be_judged_is_a_typed_error_that_shows_the_row(text: str) -> None:
    with pytest.raises(NothingToMeasure, match="cannot judge") as raised:
        FilterColumn(text).read(ROW)
    assert "'en'" in str(raised.value)


def test_a_number_too_large_for_division_is_a_typed_error() -> None:
    with pytest.raises(NothingToMeasure, match="cannot judge"):
        FilterColumn(f"{'9' * 4000} / 3 > 1").read(ROW)


HOSTILE = [
    "text.upper()",
    "text.__class__",
    "text.__class__.__mro__[1].__subclasses__()",
    "__import__('os').system('true')",
    "open('x')",
    "eval('1')",
    "exec('1')",
    "getattr(text, 'x')",
    "print(1)",
    "len.__self__",
    "tags[0]",
    "tags[0:1]",
    "lambda: 1",
    "(lambda: 1)()",
    "(n := 5)",
    "[x for x in tags]",
    "{x: 1 for x in tags}",
    "{'a': 1}",
    "{**n}",
    "len(*tags)",
    "len(value=text)",
    "f'{n}'",
    "f'{text.__class__}'",
    "n if ok else 1",
    "await n",
    "yield",
    "n ** 9 ** 9",
    "1 << 99999999",
    "n @ n",
    "~n",
    "n | 1",
    "b'x'",
    "1j",
    "...",
    "n; n",
    "n\nn",
    "import os",
    "n = 5",
    "lang is 'en'",
    "n is 5",
    "n is not lang",
    "assert n",
    "",
    "   ",
    "n ==",
    "((n)",
    "\0",
    "\ud800",
    "9" * 5000,
    "n" * 10_001,
    "n == 1 or " * 2000 + "n",
]


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: ascii(text[:30]))
def test_everything_else_is_refused_before_it_is_run(text: str) -> None:
    with pytest.raises(RecipeInvalid, match="cannot be read") as raised:
        Expression(text)
    assert raised.value.field == "filter"
    assert raised.value.hint
    assert len(str(raised.value)) < 10_000


@pytest.mark.parametrize(
    "text",
    [
        "not " * 2400 + "n",
        "-" * 9_000 + "1",
        "n+" * 4_000 + "n",
        "abs(" * 1_500 + "n" + ")" * 1_500,
        "(" * 4_000 + "n" + ")" * 4_000,
        "[" * 150 + "]" * 150,
    ],
    ids=lambda text: text[:6],
)
def test_deep_nesting_is_refused_and_exhausts_nothing(text: str) -> None:
    with pytest.raises(RecipeInvalid, match=r"nested|cannot be read"):
        Expression(text)


def test_what_is_as_deep_as_allowed_can_be_run() -> None:
    assert Expression("not " * 98 + "n")(ROW)
    assert Expression("(" * 60 + "n" + ")" * 60)(ROW)
    assert Expression(" and ".join(["n == 5"] * 800))(ROW)


@pytest.mark.parametrize(
    "text", ["'a' * 99999999999 == ''", "text * 9999999999 == ''", "'%99999999999d' % n == ''"]
)
def test_strings_cannot_be_blown_up(text: str) -> None:
    with pytest.raises(NothingToMeasure, match="of numbers"):
        FilterColumn(text).read(ROW)


@pytest.mark.parametrize("name", ["__builtins__", "__class__", "self", "row", "len", "os"])
def test_a_name_is_a_field_and_nothing_else(name: str) -> None:
    assert Expression(f"{name} is None")(ROW)
    assert Expression(f"{name} == 'field'")({name: "field"})


@pytest.mark.parametrize(
    "other",
    [
        "lang=='en' and(n>3)",
        '  lang  ==  "en"  and  n  >  3 ',
        "((lang == 'en')) and n > 3",
        "lang == 'en' and n > 0x3",
    ],
)
def test_spacing_and_quotes_do_not_count(other: str) -> None:
    assert Expression(other).canonical == Expression("lang == 'en' and n > 3").canonical
    assert FilterColumn(other).identity() == FilterColumn("lang == 'en' and n > 3").identity()


def test_different_meanings_have_different_canonical_forms() -> None:
    texts = [
        "a and b or c",
        "a and (b or c)",
        "not (a and b)",
        "not a and b",
        "a == 1",
        "a == '1'",
        "a == 1.0",
        "a - (b - c)",
        "a - b - c",
    ]
    assert len({Expression(text).canonical for text in texts}) == len(texts)


NAMES = st.sampled_from(["a", "b", "c"])
TERMS = st.recursive(
    st.one_of(NAMES, st.integers(-3, 3).map(str), st.sampled_from(["'x'", "None", "True"])),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["==", "!=", "and", "or"]), inner).map(
            lambda t: f"({t[0]} {t[1]} {t[2]})"
        ),
        inner.map(lambda term: f"(not {term})"),
        inner.map(lambda term: f"({term} is None)"),
        st.tuples(inner, inner).map(lambda t: f"({t[0]} in ({t[1]}, 1))"),
    ),
    max_leaves=12,
)


@settings(derandomize=True, deadline=None, max_examples=200)
@given(text=TERMS, row=st.fixed_dictionaries({"a": st.integers(-3, 3), "b": st.none(), "c": st.just("x")}))
@pytest.mark.filterwarnings("ignore::SyntaxWarning")
def test_it_is_what_python_says_and_the_canonical_form_says_the_same(
    text: str, row: dict[str, object]
) -> None:
    """Goal: no meaning of its own. Method: compare with Python's own evaluation of the same text."""
    expected = bool(eval(text, {"__builtins__": {}}, dict(row)))
    assert Expression(text)(row) is expected
    canonical = Expression(text).canonical
    assert Expression(canonical)(row) is expected
    assert Expression(canonical).canonical == canonical


def test_the_verdict_of_a_filter_is_that_of_every_row(own: Corpus) -> None:
    own.add("web", [[n] for n in range(40)])
    column = own.registry.measure("web@1", FilterColumn("lang == 'en' and id % 2 == 1"))
    rows = [json.loads(line) for line in (own.folder / "web/000.jsonl").read_text().splitlines()]
    assert own.registry.values(column).tolist() == [
        row["lang"] == "en" and row["id"] % 2 == 1 for row in rows
    ]
