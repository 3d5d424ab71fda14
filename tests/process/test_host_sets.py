"""Names of hosts are folded as ClusterShell does it, which users know: its own program is the oracle."""

import random
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.questions.exec_on_hosts import HostChoice, _show
from penstock.cli.questions.rank_groups import groups_of_ranks
from penstock.errors import UsageError
from penstock.process.hosts.host_names import expand
from penstock.process.hosts.host_table import HostRow
from penstock.process.job.catalogue import Job
from penstock.process.questions.answers import Account, Answer, Part, Refusal
from penstock.process.questions.host_choice import Hosts
from penstock.process.questions.host_sets import fold
from penstock.process.questions.number_ranges import numbers_in, ranges

SETS = 200
needs_nodeset = pytest.mark.skipif(not shutil.which("nodeset"), reason="needs ClusterShell's nodeset")


def _random_set(chance: random.Random) -> list[str]:
    """Some hosts, as clusters name them: with and without leading zeros, with words around the number, and without a number."""
    count, form = chance.randrange(1, 40), chance.randrange(5)
    names = {
        0: lambda: f"gpu{chance.randrange(60)}",
        1: lambda: f"gpu{chance.randrange(120):03d}",
        2: lambda: f"gpu{chance.randrange(95, 105):0{chance.choice((2, 3))}d}",
        3: lambda: f"node-{chance.randrange(7, 13)}.cluster",
        4: lambda: chance.choice(["head", "login1", "login2", "a1", "a1b", "a2b", "2node"]),
    }
    return [names[form]() for _ in range(count)] + chance.choice([[], ["head"], ["login3", "login4"]])


def _nodeset(option: str, lines: list[str]) -> list[str]:
    """What ClusterShell makes of many sets."""
    program = (
        "import sys; from ClusterShell.NodeSet import NodeSet\n"
        f"show = {'str' if option == '-f' else 'lambda found: chr(32).join(found)'}\n"
        "for line in sys.stdin: print(show(NodeSet(line.strip())))"
    )
    python = "/usr/bin/python3"
    done = subprocess.run([python, "-c", program], input="\n".join(lines), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@needs_nodeset
def test_folding_is_that_of_nodeset_on_200_random_sets() -> None:
    chance = random.Random(21)
    sets = [_random_set(chance) for _ in range(SETS)]
    assert [fold(names) for names in sets] == _nodeset("-f", [",".join(names) for names in sets])


@needs_nodeset
def test_names_with_several_numbers_fold_to_the_same_set_as_nodeset_reads() -> None:
    """Which brackets are best for a grid of numbers may be answered in several ways; the hosts must be the same."""
    chance = random.Random(22)
    sets = [
        {f"r{chance.randrange(4)}n{chance.randrange(6):02d}" for _ in range(chance.randrange(1, 20))}
        for _ in range(SETS)
    ]
    read = _nodeset("-e", [fold(names) for names in sets])
    assert [set(line.split()) for line in read] == sets


@pytest.mark.skipif(not shutil.which("clubak"), reason="needs ClusterShell's clubak")
def test_equal_outputs_are_shown_in_the_blocks_of_clubak(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Method: 60 random answers of up to 40 hosts, of up to five different outputs; clubak gets the same lines as `clush` writes them."""
    chance = random.Random(23)
    outputs = ["one line", "two\nlines", "a\n\nb", "  indented\tand wide", "ümlaut · 1"]
    for _ in range(60):
        names = [f"gpu{number:02d}" for number in sorted(chance.sample(range(60), chance.randrange(1, 40)))]
        said = {name: chance.choice(outputs) for name in names}
        rows = {rank: HostRow(rank, name, "here", 1) for rank, name in enumerate(names)}
        parts = [
            Part(
                ranges(rank for rank, row in rows.items() if said[row.name] == text),
                head={"code": 0},
                body=text,
            )
            for text in dict.fromkeys(said.values())
        ]
        choice = HostChoice(hosts=None, ranks=None, where=None, patience_s=2.0)
        _show(Answer(Account(), parts), Hosts(Job(tmp_path), rows), "true", choice)
        lines = "".join(f"{name}:{line}\n" for name, text in said.items() for line in text.split("\n"))
        clubak = subprocess.run(["clubak", "-b"], input=lines, capture_output=True, text=True, check=True)
        assert _blocks(capfd.readouterr().out) == _blocks(clubak.stdout)


def _blocks(shown: str) -> dict[str, str]:
    """What stands below each set of hosts, in whatever order they come."""
    _, *pieces = shown.split("-" * 15 + "\n")
    return {label.strip(): text for label, text in zip(pieces[::2], pieces[1::2], strict=True)}


@given(st.sets(st.from_regex(r"[a-z]{1,3}[0-9]{1,3}(-[0-9]{1,2})?", fullmatch=True), min_size=1, max_size=30))
def test_what_is_folded_is_read_again_by_the_reader_of_host_lists(names: set[str]) -> None:
    assert sorted(expand(fold(names))) == sorted(names)


@given(st.sets(st.integers(0, 50), max_size=30))
def test_ranges_are_read_again(numbers: set[int]) -> None:
    assert numbers_in(ranges(numbers)) == sorted(numbers)


def test_an_account_says_who_did_not_answer_and_why() -> None:
    names = {7: "gpu07", 8: "gpu08", 9: "gpu09"}
    account = Account("0-1023", "0-6,9-1023", "7", [Refusal("8 tasks are under way already", "8")], names)
    line = "1,022 of 1,024 hosts · unheard: gpu07 · refused: gpu08 (8 tasks are under way already)"
    assert account.line() == line
    assert not account.is_whole
    assert Account("0", "0").line("ranks", lambda hosts: 8 * len(list(hosts))) == (
        "8 of 8 ranks · unheard: none · refused: none"
    )


def test_hosts_are_chosen_by_name_rank_and_state_and_what_is_not_there_is_named(tmp_path: Path) -> None:
    rows = {rank: HostRow(rank, f"gpu{rank:02d}", "here", 4, first_rank=4 * rank) for rank in range(3)}
    rows[2] = HostRow(2, "gpu02", "unheard", 4, first_rank=8)
    hosts = Hosts(Job(tmp_path), rows)
    assert hosts.choose() == [0, 1, 2]
    assert hosts.choose(names="gpu[00-01]") == [0, 1]
    assert hosts.choose(ranks="0,11") == [0, 2]
    assert hosts.choose(ranks="4-8", state="unheard") == [2]
    for wrong, word in (
        ({"names": "gpu[01-03]"}, "no host gpu03"),
        ({"ranks": "x"}, "--ranks must be"),
        ({"state": "asleep"}, "they are here, unheard"),
        ({"names": "gpu00", "state": "unheard"}, "no host is all of that"),
    ):
        with pytest.raises(UsageError) as problem:
            hosts.choose(**wrong)
        assert word in f"{problem.value} {problem.value.hint}"


def test_ranks_are_groups_of_alike_ones_within_80_columns() -> None:
    """Method: 2,048 ranks on 256 hosts, one of them over and one host a life behind."""
    base = {"depth": 0, "role": "trainer", "state": "S", "incarnation": 1, "exit": None, "step": 40}
    rows = [
        {**base, "rank": rank, "host": f"gpu{rank // 8:03d}", "host_rank": rank // 8} for rank in range(2048)
    ]
    rows[7311 % 2048] |= {"exit": {"code": 7}}
    for rank in range(16, 24):
        rows[rank] |= {"incarnation": 0, "step": 38}
    lines = groups_of_ranks(rows, "group")
    assert [(line[1], line[3], line[4], line[5]) for line in lines] == [
        ("1", "over: 7", "40", "1"),
        ("8", "runs", "38", "0"),
        ("2039", "runs", "40", "1"),
    ]
    assert lines[1][:3] == ("trainer 16-23", "8", "gpu002")
    by_host = groups_of_ranks(rows, "host")
    assert len(by_host) == 256
    assert by_host[2] == ("trainer 16-23", "8", "gpu002", "runs", "38", "0")
    for line in [*lines, *by_host]:
        assert sum(map(len, line)) + 3 * (len(line) - 1) <= 80, line
