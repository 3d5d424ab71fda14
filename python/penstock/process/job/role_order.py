"""Which roles come before which: circles, and the order in which roles can start."""

from collections.abc import Mapping, Sequence


def cycle(after: Mapping[str, Sequence[str]]) -> list[str]:
    """Names that wait for each other, the first one again at the end; empty when all can start."""
    waiting = dict(after)
    while True:
        free = [name for name, before in waiting.items() if not any(other in waiting for other in before)]
        if not free:
            break
        for name in free:
            del waiting[name]
    if not waiting:
        return []
    # Everybody who is left waits for somebody who is left, so going on from one to the next must come back.
    path = [next(iter(waiting))]
    while True:
        following = next(other for other in waiting[path[-1]] if other in waiting)
        if following in path:
            return [*path[path.index(following) :], following]
        path.append(following)


def waves(after: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Names that can start together, one list after the other; there must be no circle."""
    done: set[str] = set()
    rounds: list[list[str]] = []
    while len(done) < len(after):
        free = [name for name, before in after.items() if name not in done and done.issuperset(before)]
        assert free, "roles are checked for circles before"
        rounds.append(free)
        done.update(free)
    return rounds
