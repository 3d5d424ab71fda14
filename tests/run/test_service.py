"""A run whose batches are made by a service: the same bits, the same decisions, whatever happens to the servers."""

import math
import signal
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import pytest

import penstock as ps
from penstock.data.plan.plan import prepare
from penstock.data.recipe.document import written
from penstock.data.service import DataServer, ServeOptions
from penstock.errors import ServiceMismatch
from penstock.run import Policy, Run, Spike
from penstock.run.journal import journal
from tests.run.comparing import first_difference
from tests.run.small import Fault, make, train
from tests.service.servers import ServerProcess, address_of
from tests.torch.stream import Stream

STEPS = 16


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers keep their tokens in the test's own folder."""
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))


def far(stream: Stream, out: Path, address: str, policy: Policy) -> Run:
    return ps.Run(out, recipe=stream.recipe(), registry=address, policy=policy, seed=3)


def policy(**more: object) -> Policy:
    return Policy(save_every=4, stop_at=STEPS, digest_every=1, **more)  # type: ignore[arg-type]


def test_a_run_over_a_service_equals_one_over_the_registry(stream: Stream, tmp_path: Path) -> None:
    """Goal: R1 over a service. Method: a server that is killed in the middle, a second one, a life that reads the
    registry again; compared with an undisturbed run over the registry."""
    near, _ = train(make(stream, tmp_path / "near", policy()))
    (stream.folder / "recipe.json").write_bytes(msgspec.json.encode(written(stream.recipe())))
    serve = partial(ServerProcess, stream.folder, recipe="recipe.json")
    with serve() as one, serve() as two:
        address = f"penstock://{one.host},{two.host}"

        def kill(step: int) -> None:
            if step == 6:
                one.send(signal.SIGKILL)
            if step == 9:
                raise Fault("between two lives")

        with pytest.raises(Fault):
            train(far(stream, tmp_path / "far", address, policy()), at=kill)
        train(far(stream, tmp_path / "far", address, Policy(save_every=4, stop_at=13, digest_every=1)))
    state, executed = train(make(stream, tmp_path / "far", policy()))
    assert executed == [13, 14, 15]
    assert np.array_equal(state["weights"], near["weights"])
    assert first_difference(tmp_path / "near", tmp_path / "far") == ""
    starts = [entry.facts["origin"] for entry in journal.read(tmp_path / "far") if entry.kind == "start"]
    assert starts == [address, address, stream.registry.url]


def test_decisions_of_a_run_hold_over_a_service(stream: Stream, tmp_path: Path) -> None:
    """Goal: R2 over a service. Method: a spike takes steps out, so that the run's skips are no longer the server's."""
    spike = policy(spike=Spike(k=20, window=8, least=4, then="rollback", back=1), non_finite="skip")
    bad = {10: 1e6, 13: math.nan}
    near, order = train(make(stream, tmp_path / "near", spike), bad=bad)
    with DataServer(prepare(stream.recipe(), stream.registry)) as server:
        state, executed = train(far(stream, tmp_path / "far", address_of(server), spike), bad=bad)
    assert executed == order
    assert np.array_equal(state["weights"], near["weights"])
    assert ps.SkipJournal(tmp_path / "far/skips.jsonl").read().steps == ((9, 11),)


def test_a_service_of_another_recipe_is_refused(stream: Stream, tmp_path: Path) -> None:
    other = prepare(stream.recipe(seed=18), stream.registry)
    with (
        DataServer(other, options=ServeOptions(open=True)) as server,
        pytest.raises(ServiceMismatch, match=other.recipe.digest),
    ):
        train(far(stream, tmp_path, address_of(server), policy()))
