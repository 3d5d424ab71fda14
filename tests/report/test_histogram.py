"""Columns of a version at a glance: one histogram for every screen."""

from pathlib import Path

import numpy as np
import pytest

from penstock.registry import Registry
from penstock.report.histogram import BINS, CHOICES_MAX, Bin, histogram, histograms


def test_few_different_texts_are_choices_and_many_are_lengths() -> None:
    languages = histogram("lang", ["en", "de", "en", None])
    texts = histogram("text", ["x" * n for n in range(CHOICES_MAX + 1)])
    flags = histogram("kept", [True, np.False_, True])

    assert (languages.of, languages.missing, languages.choices) == ("values", 1, (("en", 2), ("de", 1)))
    assert (texts.of, texts.low, texts.high, texts.whole) == ("lengths", 0.0, float(CHOICES_MAX), True)
    assert flags.choices == ((True, 2), (False, 1))


@pytest.mark.parametrize(
    "values",
    [
        list(range(1000)),
        [n / 7 for n in range(1000)],
        [5] * 10,
        [-3, 0.5, 1e300],
        list(np.arange(50, dtype="<i2")),
    ],
)
def test_every_finite_number_is_in_one_bin(values: list[float]) -> None:
    column = histogram("n", values)

    assert column.of == "numbers"
    assert len(column.bins) <= BINS + 1
    assert sum(bar.count for bar in column.bins) == len(values)
    assert (
        (column.bins[0].first, column.bins[-1].end) == (column.low, column.high) == (min(values), max(values))
    )


def test_numbers_that_are_not_finite_are_counted_apart() -> None:
    column = histogram("loss", [1.0, float("nan"), 3.0, float("inf")])

    assert (column.not_finite, column.low, column.high) == (2, 1.0, 3.0)
    assert histogram("loss", [float("nan")]).bins == ()
    assert histogram("loss", [2.0]).bins == (Bin(2.0, 2.0, 1),)


def test_the_median_is_a_value_by_nearest_rank() -> None:
    """Goal: the same definition as every other quantile, so it never stands between two values."""
    assert histogram("n", [1, 2, 3, 10]).median == 2
    assert histogram("n", [4, 1, 9]).median == 4


def test_values_without_a_length_are_nothing() -> None:
    assert histogram("x", [np.array(1.0), object()]).of == "nothing"
    assert histogram("x", [None, None]) == histogram("x", [None] * 2)
    assert histogram("x", [np.zeros(3), [1, 2]]).of == "lengths"


def test_a_version_is_looked_at_with_all_its_fields(tmp_path: Path) -> None:
    file = tmp_path / "people.jsonl"
    file.write_text(
        "".join(f'{{"age": {n % 50}, "lang": "{"en" if n % 3 else "de"}"}}\n' for n in range(300))
    )
    version = Registry(tmp_path / "registry").register("people", file)

    result = histograms(version)

    ages, languages = result.columns
    assert (result.looked_at, result.rows, result.columns_left_out) == (300, 300, 0)
    assert (ages.name, sum(bar.count for bar in ages.bins), ages.low, ages.high) == ("age", 300, 0, 49)
    assert languages.choices == (("en", 200), ("de", 100))
