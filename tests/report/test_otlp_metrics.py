"""Points as OpenTelemetry means them, to a real receiver, which may be busy, refuse or be away."""

from pathlib import Path

import pytest

from penstock import errors
from penstock.report.exports.otlp_request import TRIES_MAX, Receiver
from tests.report.export_readers import HOSTILE, Capture, export, loss_of, recorded
from tests.report.receiver import receiver


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_otlp_points_are_exact_and_sums_only_grow(tmp_path: Path, capsys: Capture) -> None:
    """Goal: gauges, sums and attributes as OpenTelemetry means them. Method: a real HTTP receiver that says 503 first."""
    run = tmp_path / "run"
    recorded(run, [range(7), range(4, 12)])
    with receiver() as received:
        received.statuses = [503]
        answer = export(run, f"otlp:{received.url}", capsys)
        again = export(run, f"otlp:{received.url}", capsys)
    assert (answer["steps"], again["steps"], again["moments"]) == (30, 0, 0)
    assert set(received.paths) == {"/v1/metrics"}

    points = list(received.points())
    steps = [
        (facts["penstock.life"], facts["penstock.rank"], point.as_int)
        for facts, name, point in points
        if name == "penstock.step"
    ]
    lives = [(life, step) for life, steps in ((0, range(7)), (1, range(4, 12))) for step in steps]
    assert sorted(steps) == sorted((life, rank, step) for life, step in lives for rank in range(2))
    logged = [(facts, point) for facts, name, point in points if name == "penstock.logged"]
    assert {facts["name"] for facts, _ in logged} == {"loss", HOSTILE}
    losses = [
        point.as_double for facts, point in logged if facts["name"] == "loss" and facts["penstock.rank"]
    ]
    assert losses[:5] == [loss_of(step, 1) for step in range(5)]
    tokens = [
        point.as_int
        for facts, name, point in points
        if name == "penstock.tokens" and (facts["penstock.life"], facts["penstock.rank"]) == (1, 1)
    ]
    assert tokens == [101 * count for count in range(1, 9)]
    assert all(
        point.start_time_unix_nano < point.time_unix_nano
        for _, name, point in points
        if name == "penstock.tokens"
    )
    moments = {facts["kind"]: point.as_int for facts, name, point in points if name == "penstock.moments"}
    assert moments == {"life": 2}


def test_a_receiver_that_does_not_take_points_is_an_error_with_its_words(tmp_path: Path) -> None:
    run = tmp_path / "run"
    recorded(run, [range(3)], 1)
    with receiver() as received:
        pauses: list[float] = []
        to = Receiver(received.url, {"authorization": "secret"}, pauses.append)
        received.statuses = [503] * TRIES_MAX
        with pytest.raises(errors.ReceiverFailed, match=f"asked {TRIES_MAX} times: HTTP 503 planted"):
            to.send(b"")
        assert len(pauses) == TRIES_MAX - 1
        assert received.headers[0]["authorization"] == "secret"
        received.statuses = [400]
        with pytest.raises(errors.ReceiverFailed, match="asked once: HTTP 400"):
            to.send(b"")
        received.rejected = 7
        with pytest.raises(errors.ReceiverFailed, match="rejected 7 points: planted"):
            to.send(b"")
    with pytest.raises(errors.ReceiverFailed, match="ConnectionRefusedError"):
        to.send(b"")
