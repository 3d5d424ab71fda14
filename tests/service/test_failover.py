"""D1 and D6 of services: servers are killed, hang and come back while a client reads: nothing is lost and nothing comes twice."""

import os
import signal
from collections.abc import Iterator

import pytest

import penstock as ps
from penstock.errors import ServiceUnavailable
from tests.data.corpus import Corpus
from tests.service.proxy import Fault, Proxy
from tests.service.servers import ServerProcess, address_of, serving


@pytest.fixture(scope="module")
def servers(corpus: Corpus) -> Iterator[list[ServerProcess]]:
    """Two servers of one recipe, each a process."""
    ps.open(ps.Recipe.load(corpus.folder / "recipe.toml"), registry=corpus.registry).close()
    with ServerProcess(corpus.folder) as one, ServerProcess(corpus.folder) as two:
        yield [one, two]


def address(servers: list[ServerProcess]) -> str:
    return "penstock://" + ",".join(server.host for server in servers)


def test_killing_servers_in_turn_loses_and_repeats_nothing(
    corpus: Corpus, servers: list[ServerProcess]
) -> None:
    """Goal: fail over is exact. Method: SIGKILL one server after the other while a client reads, restart each on its port, and
    compare the digests of all steps with a local feed's."""
    recipe = ps.Recipe.load(corpus.folder / "recipe.toml")
    expected = [(batch.step, batch.digest) for batch in corpus.read(recipe, 400, lane=ps.Lane(1, of=3))]
    steps = []
    service = ps.Service(address=address(servers), silence_max_s=2.0)
    with ps.open(service, lane=ps.Lane(1, of=3)) as remote:
        for step in range(400):
            if step % 100 == 50:
                victim = servers[step // 100 % 2]
                victim.kill()
                if step < 300:
                    victim.restart()
            batch = next(remote)
            steps.append((batch.step, batch.digest))
        assert remote.line["moved"] >= 1
    assert steps == expected
    for server in servers:
        if server.process.poll() is not None:
            server.restart()


def test_a_server_that_hangs_is_left_within_the_limit(corpus: Corpus, servers: list[ServerProcess]) -> None:
    """Goal: a stopped process delays, and does no more. Method: SIGSTOP the one that is read from."""
    recipe = ps.Recipe.load(corpus.folder / "recipe.toml")
    expected = [batch.digest for batch in corpus.read(recipe, 300)]
    service = ps.Service(address=address(servers), silence_max_s=0.5, limit_s=20)
    with ps.open(service) as remote:
        digests = [next(remote).digest]
        servers[0].send(signal.SIGSTOP)
        digests += [next(remote).digest for _ in range(299)]
        servers[0].send(signal.SIGCONT)
        line = remote.line
    assert digests == expected
    assert line["moved"] >= 1
    assert line["failures"] >= 1


def test_when_nobody_answers_the_error_names_servers_and_their_last_words(corpus: Corpus) -> None:
    recipe = ps.Recipe.load(corpus.folder / "recipe.toml")
    with serving(corpus.registry, recipe) as one, serving(corpus.registry, recipe) as two:
        service = ps.Service(address=address_of(one, two), limit_s=0.5)
        with ps.open(service) as remote:
            next(remote)
            one.close()
            two.close()
            with pytest.raises(ServiceUnavailable) as raised:
                for _ in remote:
                    pass
            with pytest.raises(ServiceUnavailable):
                next(remote)
        assert set(raised.value.servers) == {f"127.0.0.1:{server.address[1]}" for server in (one, two)}
        assert "nobody listens there" in str(raised.value)
        assert raised.value.tries >= 2


@pytest.mark.parametrize("fault", ["flip", "truncate", "reset", "stall"])
def test_answers_that_are_damaged_on_the_way_are_fetched_again(corpus: Corpus, fault: Fault) -> None:
    """Goal: no wrong bit gets through. Method: a proxy damages the first answers; all digests are compared."""
    recipe = corpus.recipe("web@1", length=512, batch=16)
    expected = [batch.digest for batch in corpus.read(recipe, 20)]
    with (
        serving(corpus.registry, recipe, open=True) as server,
        Proxy(server.address, fault, times=3) as proxy,
    ):
        service = ps.Service(address=proxy.address, silence_max_s=0.5)
        with ps.open(service) as remote:
            assert [next(remote).digest for _ in range(20)] == expected
            assert remote.line["failures"] >= 1
            assert (remote.line["damaged"] > 0) == (fault == "flip")
        assert proxy.done <= 0


def test_a_feed_is_not_used_in_the_child_of_a_fork(corpus: Corpus) -> None:
    """Goal: a fork gets an error and never hangs. Method: fork by hand, and ask in the child."""
    recipe = ps.Recipe.load(corpus.folder / "recipe.toml")
    with serving(corpus.registry, recipe) as server, ps.open(address_of(server)) as remote:
        next(remote)
        child = os.fork()
        if child == 0:
            try:
                next(remote)
            except ps.errors.FeedClosed:
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert next(remote).step == 1
