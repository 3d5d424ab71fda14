"""Which hosts measure each other when: each round is a set of pairs without a common host, so that no measurement disturbs another. Pure.

First rounds are those of a tournament (circle method), of which only a few are played: their number does not grow with hosts. In later rounds
hosts of bad pairs meet others that are known to be well.
"""

from collections.abc import Collection, Iterable, Sequence

#: Rounds that every host takes part in, whatever the number of hosts.
ROUNDS = 3
#: Rounds in which hosts of bad pairs meet others.
SECOND_ROUNDS = 3
#: Good partners with whom a host is to have failed before it is blamed.
PARTNERS_MIN = 2

Pair = tuple[int, int]


def first_rounds(hosts: Sequence[int], rounds: int = ROUNDS) -> list[list[Pair]]:
    """Pairs for each round. Of an odd number of hosts another one rests each time."""
    seats: list[int | None] = [*hosts, *([None] if len(hosts) % 2 else [])]
    count = len(seats)
    if count < 2:
        return []
    turns = min(rounds + (len(hosts) % 2), count - 1)
    # Rounds that lie far apart have partners that lie far apart: neighbours are often on one switch.
    chosen = sorted({turn * (count - 1) // turns for turn in range(turns)})
    return [_round(seats, turn) for turn in chosen]


def _round(seats: Sequence[int | None], turn: int) -> list[Pair]:
    circle = [*seats[1:]]
    circle = circle[turn:] + circle[:turn]
    table = [seats[0], *circle]
    meetings = zip(table[: len(table) // 2], reversed(table[len(table) // 2 :]), strict=True)
    return [(one, two) for one, two in meetings if one is not None and two is not None]


def second_round(
    suspects: Iterable[int], good: Collection[int], met: Collection[frozenset[int]]
) -> list[Pair]:
    """Each suspect with a host that is known to be well and that it has not met; each of those in one pair only."""
    free = sorted(good)
    pairs = []
    for suspect in sorted(suspects):
        partner = next((host for host in free if frozenset((suspect, host)) not in met), None)
        if partner is not None:
            free.remove(partner)
            pairs.append((suspect, partner))
    return pairs


def repeated(pairs: Iterable[Pair]) -> list[Pair]:
    """As many of some pairs as can meet at once."""
    busy: set[int] = set()
    chosen = []
    for one, two in pairs:
        if one not in busy and two not in busy:
            chosen.append((one, two))
            busy |= {one, two}
    return chosen
