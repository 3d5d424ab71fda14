"""With how many hosts a job may run, as options say it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import UsageError
from penstock.process.hosts.join import HostSizes, host_sizes


@pytest.mark.parametrize(
    ("nnodes", "sizes", "expected"),
    [
        ("4", None, HostSizes(4)),
        ("4:4", None, HostSizes(4)),
        ("1:4", None, HostSizes(4, (1, 2, 4))),
        ("2:4", None, HostSizes(4, (2, 4))),
        # No smaller number divides 16, so any will do.
        ("12:16", None, HostSizes(16, (12, 13, 14, 15, 16))),
        ("8:16", "8, 12", HostSizes(16, (8, 12, 16))),
    ],
)
def test_sizes_follow_from_nnodes(nnodes: str, sizes: str | None, expected: HostSizes) -> None:
    assert host_sizes(nnodes, sizes) == expected


@pytest.mark.parametrize(
    ("nnodes", "sizes", "words"),
    [
        ("0", None, "1 to 1000000"),
        ("4:2", None, "MIN at most MAX"),
        ("four", None, "a number or MIN:MAX, got four"),
        ("4", "2,4", "--sizes needs --nnodes MIN:MAX"),
        ("2:4", "1,4", "between the 2 and 4 of --nnodes, got 1"),
        ("2:4", "8", "got 8"),
        ("2:4", "two", "numbers of hosts"),
        ("2:4", "", "numbers of hosts"),
    ],
)
def test_what_makes_no_sense_is_named(nnodes: str, sizes: str | None, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        host_sizes(nnodes, sizes)


@given(st.integers(1, 300), st.integers(0, 300))
def test_the_largest_is_always_one_of_them(least: int, more: int) -> None:
    sizes = host_sizes(f"{least}:{least + more}")
    assert sizes.most == least + more
    assert sizes.is_elastic == (more > 0)
    if more:
        assert sizes.sizes[-1] == sizes.most
        assert sizes.sizes[0] >= least
        assert len(sizes.sizes) > 1


def test_many_sizes_are_one_short_sentence() -> None:
    assert host_sizes("2:4").words() == "may go on with 4, 2 hosts"
    assert len(host_sizes("7:1009").words()) < 80
