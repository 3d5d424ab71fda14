"""Memory of captures: made ready before it is needed, used again, and never more than was allowed."""

from pathlib import Path

import numpy as np
import pytest

import penstock as ps
from penstock.errors import SaveFailed
from penstock.state.save.arenas import Arenas


def test_arenas_are_prepared_and_never_more_than_allowed() -> None:
    arenas = Arenas(2)
    arenas.prepare(5000, [])
    first = arenas.take(5000, [], step=0, deadline_s=30)
    second = arenas.take(9000, [], step=0, deadline_s=30)
    assert len(first.memory) >= 5000
    assert len(second.memory) >= 9000
    arenas.prepare(20_000, [])
    with pytest.raises(SaveFailed, match="memory is limited"):
        arenas.take(10, [], step=1, deadline_s=0.05)
    arenas.give(first)
    assert arenas.take(20_000, [], step=2, deadline_s=30).busy
    arenas.close()


def test_memory_is_ready_for_the_first_save_after_a_resume(tmp_path: Path) -> None:
    """Goal: the first save finds its memory touched. Method: what was prepared before anything is saved is what the save uses."""
    with ps.Checkpoints(tmp_path) as ck:
        tree = {"a": np.zeros(1 << 16), "b": np.zeros(1 << 17)}
        ck.resume(tree)
        assert ck._arenas._preparing is not None
        ck._arenas._preparing.result(60)
        (arena,) = ck._arenas._arenas
        assert (len(arena.memory) >= 3 << 19, arena.busy, len(arena.movers)) == (True, False, 1)
        ck.save(1, tree).wait()
        assert ck._arenas._arenas == [arena]
