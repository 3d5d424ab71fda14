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

from penstock.data.records.stacking import stack_rows
from penstock.data.records.values import ValueUnusable, encode, usable, usable_row

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
    found = [encode({"x": usable(value)}) for value in VALUES]
    for (one, a), (other, b) in itertools.combinations(zip(VALUES, found, strict=True), 2):
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


def test_bytes_do_not_depend_on_how_a_value_is_held() -> None:
    assert encode({"a": 1, "b": 2}) == encode({"b": 2, "a": 1})
    array = np.arange(12).reshape(3, 4)
    assert encode({"x": array[:, ::2]}) == encode({"x": array[:, ::2].copy()})
    assert encode({"x": usable((1, [2]))}) == encode({"x": [1, [2]]})
    assert encode({"x": usable(bytearray(b"ab"))}) == encode({"x": b"ab"})


def test_arrays_of_other_libraries_become_numpy_arrays() -> None:
    pixels = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    for value in (torch.from_numpy(pixels), Image.fromarray(pixels), np.array(pixels)):
        found = usable(value)
        assert isinstance(found, np.ndarray)
        assert np.array_equal(found, pixels)
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
        with pytest.raises(ValueUnusable):
            usable_row(row)


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
        assert [id(each) for each in field] == [id(each) for each in values]
        return
    assert isinstance(field, np.ndarray)
    assert np.dtype((field.dtype, field.shape[1:])) == np.dtype(dtype)
    assert all(np.array_equal(each, value) for each, value in zip(field, values, strict=True))


def test_rows_that_hold_nothing_are_zeros_or_none() -> None:
    fields = stack_rows([{"x": 3, "t": "a"}, None, {"x": 4, "t": "b"}], None)
    assert fields["x"].tolist() == [3, 0, 4]
    assert fields["t"] == ["a", None, "b"]
    like = {"x": np.ones(2, "f4"), "t": "a"}
    fields = stack_rows([None, None], like)
    assert (fields["x"].shape, fields["x"].dtype, fields["x"].any()) == ((2, 2), np.float32, False)
    assert fields["t"] == [None, None]
    assert stack_rows([None], None) == {}
