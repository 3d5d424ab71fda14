"""Names of hosts are read as people, mpirun and Slurm write them; slips are refused with the name that is wrong."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import HostsInvalid
from penstock.process.hosts.host_names import (
    NamedHost,
    common_slots,
    expand,
    in_racks,
    parse_host_file,
    read_hosts,
)


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("a,b", ["a", "b"]),
        ("gpu[01-03]", ["gpu01", "gpu02", "gpu03"]),
        ("gpu[8-11]", ["gpu8", "gpu9", "gpu10", "gpu11"]),
        ("gpu[098-101]", ["gpu098", "gpu099", "gpu100", "gpu101"]),
        ("n[1,3-4],login", ["n1", "n3", "n4", "login"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("rack[1]-node[7].cluster", ["rack1-node7.cluster"]),
        ("me@gpu[1-2]", ["me@gpu1", "me@gpu2"]),
        (" a , b ", ["a", "b"]),
        ("gpu01.cluster.,gpu02.cluster.", ["gpu01.cluster", "gpu02.cluster"]),
        ("fd00::1,[fd00::2],me@[fd00::3]", ["fd00::1", "fd00::2", "me@fd00::3"]),
    ],
)
def test_a_pattern_stands_for_these_names_in_this_order(pattern: str, names: list[str]) -> None:
    assert expand(pattern) == names


@given(st.integers(0, 5000), st.integers(0, 300), st.integers(1, 6))
def test_a_range_has_every_number_once_and_in_order(first: int, more: int, width: int) -> None:
    names = expand(f"n[{first:0{width}d}-{first + more:0{width}d}]")
    assert [int(name[1:]) for name in names] == list(range(first, first + more + 1))
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("value", "word"),
    [
        ("4", "--nnodes 4"),
        ("a,b,a", "names a twice"),
        ("gpu[01-03],gpu02", "names gpu02 twice"),
        ("x@a,y@a", "names a twice"),
        ("GPU01,gpu01.", "names gpu01 twice"),
        ("fd00::1,[fd00::1]", "names fd00::1 twice"),
        ("gpu[3-1]", "not a range"),
        ("gpu[1-3", "brackets"),
        ("gpu]1[", "brackets"),
        ("gpu[a-c]", "not a range"),
        ("a b", "cannot be the name"),
        ("-oProxyCommand=x", "cannot be the name"),
        (",", "names no host"),
        ("n[0-99999999]", "more than"),
        ("n[0-999]m[0-999]", "more than"),
        ("/no/such/file", "cannot be read"),
    ],
)
def test_a_slip_is_refused_with_what_is_wrong(value: str, word: str) -> None:
    with pytest.raises(HostsInvalid) as caught:
        read_hosts(value)
    assert value in str(caught.value)
    assert word in f"{caught.value} {caught.value.hint}"


def test_a_host_file_of_mpirun_is_read(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text(
        "# ours\n\ngpu01 slots=8 rack=a # first\ngpu02:8 max_slots=16 rack=a\nme@gpu[03-04] slots=8 rack=b\n"
    )
    hosts = read_hosts(str(file))
    assert hosts == [
        NamedHost("gpu01", 8, "a"),
        NamedHost("gpu02", 8, "a"),
        NamedHost("me@gpu03", 8, "b"),
        NamedHost("me@gpu04", 8, "b"),
    ]
    assert common_slots(hosts) == 8


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        # Open MPI, Intel and MPICH (Hydra), and the files that PBS and LSF write: a line for each slot.
        ("gpu01 slots = 8 max-slots=9\r\ngpu02 slots=8\r\n", [("gpu01", 8), ("gpu02", 8)]),
        ("gpu01:8 binding=rr\ngpu02:8 ifhn=gpu02-ib\n", [("gpu01", 8), ("gpu02", 8)]),
        ("gpu01\ngpu01\ngpu02\ngpu02\n", [("gpu01", 2), ("gpu02", 2)]),
        ("gpu01\ngpu02\ngpu01\ngpu02\n", [("gpu01", 2), ("gpu02", 2)]),
        ("gpu01\ngpu02\n", [("gpu01", 0), ("gpu02", 0)]),
        (
            "fd00::1 slots=4\n[fd00::2]:4\n[fd00::3] slots=4\n",
            [("fd00::1", 4), ("fd00::2", 4), ("fd00::3", 4)],
        ),
        ("\ufeffgpu01 slots=8\n", [("gpu01", 8)]),
    ],
)
def test_host_files_of_other_launchers_are_read(
    text: str, hosts: list[tuple[str, int]], tmp_path: Path
) -> None:
    file = tmp_path / "hosts"
    file.write_bytes(text.encode())
    assert [(host.name, host.slots) for host in read_hosts(str(file))] == hosts


def test_a_host_with_two_counts_of_slots_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("gpu01 slots=4\ngpu01 slots=4\n")
    with pytest.raises(HostsInvalid, match="names gpu01 twice"):
        read_hosts(str(file))


def test_hosts_of_one_rack_stand_together_and_keep_their_order() -> None:
    lines = "c rack=y\na rack=x\nb rack=y\ne\nd rack=x\nf\n"
    hosts = in_racks(parse_host_file(lines, source="hosts"))
    assert [host.name for host in hosts] == ["c", "b", "a", "d", "e", "f"]
    alone = [NamedHost(name) for name in ("z", "a", "m")]
    assert in_racks(alone) == alone


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("a slots=none", "slots must be"),
        ("a slots=0", "slots must be"),
        ("a sluts=8", "is not known"),
        ("# nothing", "names no host"),
    ],
)
def test_a_line_that_makes_no_sense_is_named(text: str, word: str) -> None:
    with pytest.raises(HostsInvalid, match=word):
        parse_host_file(text, source="hosts")


def test_hosts_with_different_slots_are_refused() -> None:
    with pytest.raises(HostsInvalid, match="different numbers of slots"):
        common_slots([NamedHost("a", 8), NamedHost("b", 4)])
    assert common_slots([NamedHost("a"), NamedHost("b")]) == 0
