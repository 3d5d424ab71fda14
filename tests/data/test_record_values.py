"""Values of records: what they may be, the bytes that stand for them, and how they come together in a field."""

import datetime
import decimal
import itertools
import uuid
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from penstock import _rust
from penstock.data.records.stack import stack_rows
from penstock.data.records.values import ValueUnusable, digest_of, encode, usable, usable_row

#: No two of these are the same value.
VALUES: list[Any] = [
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        1 << 80,
        0.0,
        -0.0,
        1.0,
        float("inf"),
        "",
        "1",
        "a",
        "\ud800",
        b"",
        b"1",
        b"a",
    ),
    *([], [None], [0], [[0]], [0, 0], {}, {"a": 0}, {"a": [0]}, {"b": 0}, {"a": 0, "b": 0}, 1j),
    *(np.int64(1), np.int32(1), np.float64(1), np.float32(1), np.bool_(True), np.uint8(1)),
    *(np.zeros(0), np.zeros((0, 2)), np.zeros(2), np.zeros((1, 2)), np.zeros((2, 1)), np.zeros(2, "f4")),
    *(np.array(["a"]), np.array(["ab"]), np.array(["2020-01-01"], "M8[D]"), np.zeros(2, ">f8")),
    *(datetime.date(2020, 1, 1), datetime.datetime(2020, 1, 1), datetime.time(1), datetime.timedelta(1)),
    *(decimal.Decimal("1"), decimal.Decimal("1.0"), uuid.UUID(int=1)),
]


def test_different_values_have_different_bytes() -> None:
    encoded = [encode({"x": usable(value)}) for value in VALUES]
    for (one, a), (other, b) in itertools.combinations(zip(VALUES, encoded, strict=True), 2):
        assert a != b, (one, other)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(derandomize=True, deadline=None, max_examples=200)
@given(one=PLAIN, other=PLAIN)
def test_bytes_say_everything_about_a_value(one: Any, other: Any) -> None:
    same = repr(usable(one)) == repr(usable(other))
    assert (encode({"x": usable(one)}) == encode({"x": usable(other)})) == same


def agrees(rows: list[Any]) -> bool:
    """Whether what Rust makes of rows is what stands in their bytes."""
    encoded = [row if isinstance(row, bytes) else encode(row) for row in rows]
    return digest_of(5, rows) == (_rust.digest_rows(5, encoded), sum(map(len, encoded)))


@settings(derandomize=True, deadline=None, max_examples=200)
@given(row=st.dictionaries(st.text(), PLAIN, max_size=4))
def test_digests_are_those_of_the_bytes_whatever_the_value(row: Any) -> None:
    """Goal: digests of earlier releases stay. Method: Rust's walk against the bytes that Python writes."""
    row.pop("valid", None)
    for fresh in (True, False):
        assert agrees([usable_row(row, fresh=fresh), b"", row])


def test_digests_of_values_that_rust_does_not_know_are_those_of_the_bytes() -> None:
    class Subclass(dict[str, Any]):
        pass

    large = np.arange(50_000, dtype=np.int32)
    names = {"z": 1, "ü": 2, "": 3, "\U0001f600": 4, "\uffff": 5, "a": 6, "B": 7}
    rows = [{"x": usable(value)} for value in VALUES]
    rows += [names, {"deep": names}, {"\ud800": 1, "a": 2}, {"large": large, "other": large[::2]}]
    rows += [
        Subclass(a=1),
        {"x": Subclass(b=2)},
        {"text": "ä" * 1000},
        {"text": "\ud800" * 1000},
        {"bytes": b"x" * 9999},
    ]
    for row in rows:
        assert agrees([row])
    assert agrees(rows)


def test_fresh_rows_are_kept_and_others_are_copied() -> None:
    """Goal: whoever changes a batch changes that batch alone. Method: look at every list and dict of a row."""
    inner: dict[str, Any] = {"list": [1, {"a": []}], "dict": {"b": [2.5]}, "text": "t", "array": np.zeros(2)}
    assert usable_row(inner, fresh=True) is inner
    copy = usable_row(inner)
    assert repr(copy) == repr(inner)
    for one, other in (
        (copy, inner),
        (copy["list"], inner["list"]),
        (copy["list"][1], inner["list"][1]),
        (copy["list"][1]["a"], inner["list"][1]["a"]),
        (copy["dict"], inner["dict"]),
        (copy["dict"]["b"], inner["dict"]["b"]),
    ):
        assert one is not other
    # What has to be another value is, in a fresh row too, and the rest stays.
    mixed = {"pairs": [("k", 1)], "list": [[1], bytearray(b"b")], "n": 1}
    assert usable_row(mixed, fresh=True) == {"pairs": [["k", 1]], "list": [[1], b"b"], "n": 1}


def test_bytes_do_not_depend_on_how_a_value_is_held() -> None:
    assert encode({"a": 1, "b": 2}) == encode({"b": 2, "a": 1})
    array = np.arange(12).reshape(3, 4)
    assert encode({"x": array[:, ::2]}) == encode({"x": array[:, ::2].copy()})
    assert encode({"x": usable((1, [2]))}) == encode({"x": [1, [2]]})
    assert encode({"x": usable(bytearray(b"ab"))}) == encode({"x": b"ab"})


def test_arrays_of_other_libraries_become_numpy_arrays() -> None:
    pixels = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    for value in (torch.from_numpy(pixels), Image.fromarray(pixels), np.array(pixels)):
        array = usable(value)
        assert isinstance(array, np.ndarray)
        assert np.array_equal(array, pixels)
    assert usable(np.array([{"a": 1}, None], dtype=object)) == [{"a": 1}, None]


def test_what_is_no_value_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    for row in (
        {"x": object()},
        {1: 2},
        {"x": {1: 2}},
        {"x": {1, 2}},
        {"x": endless},
        {"valid": 1},
        [1],
        None,
    ):
        for fresh in (True, False):
            with pytest.raises(ValueUnusable):
                usable_row(row, fresh=fresh)


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([True, False], "?"),
        ([1, 2], "i8"),
        ([1.5, 2.0], "f8"),
        ([1, 2.5], "f8"),
        ([np.float32(1), np.float32(2)], "f4"),
        ([np.zeros(3, "i2"), np.ones(3, "i2")], "(3,)i2"),
        ([1, True], None),
        ([1 << 63, 1], None),
        ([(1 << 53) + 1, 0.5], None),
        ([1, None], None),
        ([np.zeros(3), np.zeros(2)], None),
        ([np.zeros(3, "f4"), np.zeros(3, "f8")], None),
        ([np.zeros(3), [0.0]], None),
        (["a", "b"], None),
        ([[1], [2]], None),
    ],
)
def test_values_that_fit_together_are_one_array(values: list[Any], dtype: str | None) -> None:
    field = stack_rows([{"x": value} for value in values], None)["x"]
    if dtype is None:
        assert field is not values
        assert [id(item) for item in field] == [id(item) for item in values]
        return
    assert isinstance(field, np.ndarray)
    assert np.dtype((field.dtype, field.shape[1:])) == np.dtype(dtype)
    assert all(np.array_equal(item, value) for item, value in zip(field, values, strict=True))


def test_rows_that_hold_nothing_are_zeros_or_none() -> None:
    fields = stack_rows([{"x": 3, "t": "a"}, None, {"x": 4, "t": "b"}], None)
    assert fields["x"].tolist() == [3, 0, 4]
    assert fields["t"] == ["a", None, "b"]
    like = {"x": np.ones(2, "f4"), "t": "a"}
    fields = stack_rows([None, None], like)
    assert (fields["x"].shape, fields["x"].dtype, fields["x"].any()) == ((2, 2), np.float32, False)
    assert fields["t"] == [None, None]
    assert stack_rows([None], None) == {}
