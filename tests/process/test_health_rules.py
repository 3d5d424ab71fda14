"""Rules of the check of hosts: who meets whom, who is blamed, and who is an outlier. Pure, so tried on many random worlds."""

import random

import pytest

from penstock.process.health.blame import Blame, Measured, blame, cleared, open_questions
from penstock.process.health.outliers import outliers
from penstock.process.health.pairs import SECOND_ROUNDS, first_rounds, second_round


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 8, 9, 33, 1000])
def test_a_round_has_each_host_at_most_once_and_no_pair_meets_twice(count: int) -> None:
    rounds = first_rounds(range(count))
    met = [frozenset(pair) for one in rounds for pair in one]
    assert len(met) == len(set(met))
    assert len(rounds) <= 4, "rounds do not grow with hosts"
    for one in rounds:
        seated = [host for pair in one for host in pair]
        assert len(seated) == len(set(seated)) >= count - 1 - (count == 1)


def _meet(count: int, bad_hosts: set[int], bad_links: set[frozenset[int]]) -> list[Measured]:
    """What a check would measure in such a world."""

    def measured(one: int, two: int) -> Measured:
        good = not ({one, two} & bad_hosts) and frozenset((one, two)) not in bad_links
        return Measured(one, two, good)

    meetings = [measured(*pair) for one in first_rounds(range(count)) for pair in one]
    for _ in range(SECOND_ROUNDS):
        met = {meeting.pair for meeting in meetings}
        more = second_round(open_questions(meetings), cleared(meetings), met)
        meetings += [measured(*pair) for pair in more]
    return meetings


@pytest.mark.parametrize("seed", range(400))
def test_bad_hosts_are_named_and_their_partners_never(seed: int) -> None:
    """Goal: the culprit is named and not its partner. Method: random bad hosts and bad links, at most one link of a host."""
    chosen = random.Random(seed)
    count = chosen.randint(5, 60)
    order = chosen.sample(range(count), count)
    bad_hosts = set(order[: chosen.randint(0, max(1, count // 5))])
    rest = order[len(bad_hosts) :]
    links = chosen.randint(0, len(rest) // 3)
    bad_links = {frozenset(rest[2 * place : 2 * place + 2]) for place in range(links)}
    meetings = _meet(count, bad_hosts, bad_links)
    found = blame(meetings)
    assert set(found.hosts) == bad_hosts
    tested = {meeting.pair for meeting in meetings}
    assert {frozenset(link) for link in found.links} == bad_links & tested
    assert not found.undecided


def test_two_hosts_that_cannot_talk_are_both_undecided() -> None:
    assert blame([Measured(0, 1, False)]) == Blame(undecided=(0, 1))


def test_a_host_that_hears_one_other_only_is_blamed_for_its_bad_pairs() -> None:
    meetings = [Measured(2, 0, True), Measured(2, 5, False), Measured(2, 3, False)]
    meetings += [Measured(3, 0, True), Measured(5, 0, True), Measured(5, 1, True), Measured(3, 1, True)]
    assert blame(meetings) == Blame(hosts=(2,))


def test_a_pair_that_talks_when_it_meets_again_was_disturbed_and_is_good() -> None:
    assert blame([Measured(0, 1, False), Measured(1, 0, True)]) == Blame()


def test_an_outlier_is_worse_by_a_share_that_matters_and_by_many_deviations() -> None:
    usual = {f"gpu{number}": 100.0 + number / 10 for number in range(8)}
    assert outliers(usual, better="high", ratio_min=1.1) == {}
    found = outliers({**usual, "gpu7": 50.0}, better="high", ratio_min=1.1)
    assert list(found) == ["gpu7"]
    assert found["gpu7"].ratio == pytest.approx(2.0, rel=0.01)
    assert outliers({**usual, "gpu7": 200.0}, better="high", ratio_min=1.1) == {}
    assert list(outliers({**usual, "gpu7": 200.0}, better="low", ratio_min=1.1)) == ["gpu7"]
    assert list(outliers({**usual, "gpu7": 0.0}, better="high", ratio_min=1.1)) == ["gpu7"]


def test_noise_makes_no_outlier_and_fewer_than_five_hosts_have_no_verdict() -> None:
    equal = {f"gpu{number}": 100.0 for number in range(8)}
    assert outliers({**equal, "gpu0": 99.0}, better="high", ratio_min=1.1) == {}
    assert outliers({"a": 1.0, "b": 100.0, "c": 100.0, "d": 100.0}, better="high", ratio_min=1.1) == {}
    wide = {f"gpu{number}": 60.0 + 10 * number for number in range(9)}
    assert outliers(wide, better="high", ratio_min=1.1) == {}


@pytest.mark.parametrize("seed", range(100))
def test_noise_of_five_percent_names_nobody_and_a_slow_host_is_named(seed: int) -> None:
    chosen = random.Random(seed)
    values = {f"h{number}": chosen.gauss(100.0, 5.0) for number in range(chosen.randint(5, 64))}
    assert outliers(values, better="high", ratio_min=1.5) == {}
    values["h0"] = 45.0
    assert list(outliers(values, better="high", ratio_min=1.5)) == ["h0"]
