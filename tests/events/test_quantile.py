"""One definition of a quantile, whoever shows it."""

from array import array

from penstock.events.quantile import p50_p99, quantile


def test_quantiles_are_values_that_occurred() -> None:
    ordered = array("q", range(1, 101))
    assert [quantile(ordered, share) for share in (0.0, 0.5, 0.99, 1.0)] == [1, 50, 99, 100]
    assert quantile(ordered[:1], 0.99) == 1
    assert p50_p99([100.0, 1.0]) == (1.0, 100.0)
    assert p50_p99([]) == (0.0, 0.0)
