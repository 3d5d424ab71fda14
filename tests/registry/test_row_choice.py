"""Rows of a version by slices, numbers and masks: as numpy has them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import MaskLengthWrong, RowOutOfRange, UsageError

COUNT = 11


@pytest.fixture(scope="module")
def version(tmp_path_factory: pytest.TempPathFactory) -> ps.Version:
    folder = tmp_path_factory.mktemp("rows")
    for part, numbers in enumerate(np.array_split(np.arange(COUNT), 3)):
        text = "".join(json.dumps({"n": int(n)}) + "\n" for n in numbers)
        (folder / f"{part}.jsonl").write_text(text)
    return ps.Registry(folder / "registry").register("web", sorted(folder.glob("*.jsonl")))


def numbers(rows: list[dict[str, Any]]) -> list[int]:
    return [row["n"] for row in rows]


ends = st.none() | st.integers(-COUNT - 3, COUNT + 3)


@settings(max_examples=200, deadline=None)
@given(start=ends, stop=ends, step=st.none() | st.integers(-4, 4).filter(bool))
def test_slices_are_numpys(
    version: ps.Version, start: int | None, stop: int | None, step: int | None
) -> None:
    assert numbers(version[start:stop:step]) == np.arange(COUNT)[start:stop:step].tolist()


@settings(max_examples=100, deadline=None)
@given(
    mask=st.lists(st.booleans(), min_size=COUNT, max_size=COUNT),
    chosen=st.lists(st.integers(-COUNT, COUNT - 1)),
)
def test_masks_and_numbers_are_numpys(version: ps.Version, mask: list[bool], chosen: list[int]) -> None:
    expected = np.arange(COUNT)[np.array(mask)].tolist()
    for given_mask in (mask, np.array(mask), tuple(mask)):
        assert numbers(version[given_mask]) == numbers(version.take(given_mask)) == expected
    wanted = np.arange(COUNT)[np.array(chosen, dtype=np.int64)].tolist()
    for given_rows in (chosen, np.array(chosen, dtype=np.int16), tuple(chosen)):
        assert numbers(version[given_rows]) == numbers(version.take(given_rows)) == wanted


def test_one_row_is_a_row(version: ps.Version) -> None:
    for number in (3, -8, np.int64(3), np.uint8(3), np.array(3)[()]):
        assert version[number] == {"n": 3}
    assert (version[:], version[[]], version.take(np.zeros(0))) == (list(version), [], [])


@pytest.mark.parametrize("row", [COUNT, -COUNT - 1, 1 << 70, np.uint64(1 << 63)])
def test_rows_that_are_not_there_are_index_errors(version: ps.Version, row: int) -> None:
    with pytest.raises(IndexError) as raised:
        version[row]
    assert isinstance(raised.value, RowOutOfRange)
    with pytest.raises(IndexError):
        version.take([int(row)])


@pytest.mark.parametrize(
    "mask", [[True], [True] * (COUNT + 1), np.ones((COUNT, 1), dtype=bool)], ids=["short", "long", "wide"]
)
def test_masks_of_another_length_are_index_errors(version: ps.Version, mask: Any) -> None:
    with pytest.raises(IndexError, match="11 rows") as raised:
        version[mask]
    assert isinstance(raised.value, MaskLengthWrong)


@pytest.mark.parametrize("rows", [1.0, [0.5], ["a"], "abc", None, True, [[1, 2]], np.array([1.0])], ids=repr)
def test_what_is_no_row_is_refused_and_never_rounded(version: ps.Version, rows: Any) -> None:
    with pytest.raises(UsageError, match="whole numbers"):
        version[rows]


def test_slices_that_make_no_sense_are_refused(version: ps.Version) -> None:
    for start, stop, step in ((0, 2, 0), (0.0, 2, 1), ("a", None, None)):
        with pytest.raises(UsageError, match="whole numbers"):
            version[start:stop:step]  # type: ignore[misc]


def test_masks_of_arrow_are_masks_too(version: ps.Version) -> None:
    mask = pa.array([n % 2 == 0 for n in range(COUNT)])
    assert numbers(version[mask]) == list(range(0, COUNT, 2))


def test_masks_of_measures_choose_rows(version: ps.Version, tmp_path: Path) -> None:
    values = np.array([row["n"] for row in version])
    assert numbers(version[values % 2 == 0]) == values[values % 2 == 0].tolist()
