"""Joining the ranks: a rank that is there before rank 0 listens."""

import socket
import threading

import pytest

from penstock.torch.gang import wait_for_store


@pytest.fixture
def meeting(monkeypatch: pytest.MonkeyPatch) -> socket.socket:
    """Where ranks will meet: the place is taken, and nobody listens yet."""
    place = socket.socket()
    place.bind(("127.0.0.1", 0))
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(place.getsockname()[1]))
    return place


def test_a_rank_that_is_first_waits_until_rank_0_listens(meeting: socket.socket) -> None:
    """Goal: no refused connection for torch, which tries again only half a second later. Method: listen when the rank looks already."""
    answers: list[bool] = []
    with meeting:
        rank = threading.Thread(target=lambda: answers.append(wait_for_store(60)))
        rank.start()
        rank.join(0.1)
        assert answers == []

        meeting.listen()

        rank.join(60)
    assert answers == [True]


def test_where_nobody_ever_listens_the_wait_has_an_end(meeting: socket.socket) -> None:
    with meeting:
        assert not wait_for_store(0.05)


def test_without_a_place_to_meet_nothing_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MASTER_PORT", raising=False)
    assert not wait_for_store(60)
