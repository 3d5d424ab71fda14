"""A run on many hosts refuses a directory that only rank 0's host sees (R2)."""

from pathlib import Path
from typing import Any

import pytest

from penstock.errors import PlaceNotShared
from penstock.run.directory import RunDirectory
from penstock.run.start import run_place
from penstock.run.start.run_place import life_token


class Rank:
    """A rank of two, as far as this needs one: what rank 0 shares is handed on through a list."""

    ranks = 2

    def __init__(self, rank: int, channel: list[bytes]) -> None:
        self.rank, self._channel = rank, channel

    def share(self, document: bytes) -> bytes:
        if self.rank == 0:
            self._channel.append(document)
        return self._channel[-1]


def stand(monkeypatch: pytest.MonkeyPatch, rank: int, hosts: int) -> None:
    variables = {
        "PENSTOCK_JOB": "x",
        "PENSTOCK_INCARNATION": "0",
        "RANK": str(rank),
        "WORLD_SIZE": "2",
        "LOCAL_RANK": "0",
        "GROUP_RANK": str(rank),
        "GROUP_WORLD_SIZE": str(hosts),
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def tokens(monkeypatch: pytest.MonkeyPatch, places: list[Path], *, hosts: int) -> list[str]:
    monkeypatch.setattr(run_place, "SHOW_S", 0.1)
    channel: list[bytes] = []
    result = []
    for rank, place in enumerate(places):
        place.mkdir(exist_ok=True)
        stand(monkeypatch, rank, hosts)
        state: Any = Rank(rank, channel)
        result.append(life_token(state, RunDirectory(place)))
    return result


def test_hosts_that_share_the_directory_have_one_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tokens(monkeypatch, [tmp_path / "run", tmp_path / "run"], hosts=2)
    assert first == second


def test_a_host_with_a_directory_of_its_own_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PlaceNotShared) as caught:
        tokens(monkeypatch, [tmp_path / "run0", tmp_path / "run1"], hosts=2)
    assert caught.value.host_rank == 1
    assert str(tmp_path / "run1") in caught.value.place


def test_one_host_leaves_nothing_in_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens(monkeypatch, [tmp_path / "run0", tmp_path / "run1"], hosts=1)
    assert list((tmp_path / "run0").iterdir()) == []
