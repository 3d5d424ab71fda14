"""What bounds a server: queues, memory, deadlines, an orderly end; and requests that mean harm."""

import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

import penstock as ps
from tests.data.corpus import Corpus
from tests.service.servers import ROOT, ServerProcess, address_of, get, said_to, serving


def wait_until(holds: Callable[[], bool]) -> None:
    """Look until something holds, for at most 20 s."""
    pause = threading.Event()
    for _ in range(2000):
        if holds():
            return
        pause.wait(0.01)
    raise AssertionError("it never came to hold")


HOSTILE = {
    "no step": b"GET /v1/batch?lane=0&of=1 HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "huge step": b"GET /v1/batch?lane=0&of=1&step=99999999999999999999999 HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "last step": b"GET /v1/batch?lane=0&of=1&step=9223372036854775807 HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "negative": b"GET /v1/batch?lane=-1&of=1&step=0 HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "no such lane": b"GET /v1/batch?lane=7&of=7&step=0 HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "zero lanes": b"GET /v1/batch?lane=0&of=0&step=0 HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "uneven lanes": b"GET /v1/batch?lane=0&of=5&step=0 HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "text": b"GET /v1/batch?lane=a&of=b&step=c HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "twice": b"GET /v1/batch?lane=0&lane=1&of=1&step=0 HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "unknown": b"GET /v1/batch?lane=0&of=1&step=0&x=1 HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "bytes": b"GET /v1/batch?lane=\xff\xfe HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "other path": b"GET /../../etc/passwd HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "post": b"POST /v1/batch HTTP/1.1\r\nhost: localhost\r\ncontent-length: 4\r\n\r\nabcd",
    "delete": b"DELETE /v1/plan HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "endless body": b"POST /v1/plan HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nffffffff\r\n",
    "no such source": b"GET /v1/origin?source=9&sample=0 HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "no such sample": b"GET /v1/origin?source=0&sample=999999999 HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
    "many headers": b"GET / HTTP/1.1\r\n" + b"".join(b"a%d: b\r\n" % n for n in range(500)) + b"\r\n",
    "long header": b"GET /v1/plan HTTP/1.1\r\nhost: localhost\r\nx: " + b"y" * 100_000 + b"\r\n\r\n",
    "long path": b"GET /" + b"z" * 100_000 + b" HTTP/1.1\r\n\r\n",
}


def test_requests_that_mean_harm_are_refused_and_the_server_goes_on(corpus: Corpus) -> None:
    """Goal: no request crashes a server, or gets more than an error. Method: each one over a connection of its own, then a good one."""
    recipe = corpus.recipe("web@1", batch=6)
    expected = corpus.read(recipe, 1)[0].digest
    with serving(corpus.registry, recipe, head_timeout_s=0.3, open=True) as server:
        statuses = {}
        for name, request in HOSTILE.items():
            closing = request.replace(b"host: localhost\r\n", b"host: localhost\r\nconnection: close\r\n", 1)
            first = said_to(server.address, closing).split(b"\r\n", 1)[0]
            statuses[name] = first[9:12].decode() or "closed"
        assert get(server.address, "/healthz")[0] == 200
        with ps.open(address_of(server)) as remote:
            assert next(remote).digest == expected
    assert all(status == "closed" or 400 <= int(status) < 500 for status in statuses.values()), statuses
    assert [statuses[name] for name in ("other path", "post", "uneven lanes", "text")] == [
        "404",
        "405",
        "422",
        "400",
    ]


def test_a_slow_head_and_an_idle_connection_are_cut_off(corpus: Corpus) -> None:
    """Goal: no connection is held for nothing. Method: half a head, and none at all; both are closed by the server."""
    recipe = corpus.recipe("web@1", batch=6)
    with serving(corpus.registry, recipe, head_timeout_s=0.3, open=True) as server:
        for begun in (b"GET /v1/plan HT", b""):
            with socket.create_connection(server.address, timeout=20) as line:
                line.sendall(begun)
                assert b"200 OK" not in line.recv(100)
        # A client outlives connections that were closed because they were idle.
        with ps.open(address_of(server), threads=1) as remote:
            first = next(remote)
            wait_until(lambda: server.statistics()["connections"] == 0)
            assert next(remote).step == first.step + 1
            assert remote.statistics().batches == 2


def test_a_client_that_takes_nothing_is_given_up(corpus: Corpus) -> None:
    recipe = corpus.recipe("web@1", batch=512, length=4096)
    with serving(corpus.registry, recipe, write_timeout_s=0.2, open=True) as server:
        with socket.create_connection(server.address) as line:
            line.sendall(b"GET /v1/batch?lane=0&of=1&step=0 HTTP/1.1\r\nhost: localhost\r\n\r\n")
            wait_until(lambda: server.statistics()["cut"] == 1)
        wait_until(lambda: server.statistics()["sending_bytes"] == 0)


def test_more_requests_than_the_limit_are_told_to_come_again(corpus: Corpus) -> None:
    """Goal: back-pressure. Method: a server for one request at a time, with clients that ask at once; all get their batches."""
    recipe = corpus.recipe("web@1", batch=64, length=512)
    expected = [batch.digest for batch in corpus.read(recipe, 60)]
    digests: dict[int, list[str]] = {}
    with serving(corpus.registry, recipe, requests_max=1, open=True) as server:

        def read(number: int) -> None:
            with ps.open(address_of(server), threads=4) as remote:
                digests[number] = [next(remote).digest for _ in range(60)]

        threads = [threading.Thread(target=read, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert server.statistics()["busy"] > 0
    assert list(digests.values()) == [expected] * 3


def test_a_full_queue_answers_503_with_a_time(corpus: Corpus) -> None:
    """Goal: nobody waits in an endless queue. Method: a server for one request, asked twice at once; those refused are counted."""
    recipe = ps.Recipe.load(corpus.folder / "recipe.toml")
    with serving(corpus.registry, recipe, requests_max=1, open=True) as server:
        held = http.client.HTTPConnection(*server.address)
        busy = 0
        for _ in range(200):
            held.request("GET", "/v1/batch?lane=0&of=1&step=0")
            status, headers, body = get(server.address, "/v1/statistics")
            answer = held.getresponse()
            answer.read()
            # Whichever came second was refused.
            busy += [status, answer.status].count(503)
            if status == 503:
                assert headers["retry-after"] == "1"
                assert json.loads(body)["class"] == "ServiceBusy"
        held.close()
        assert server.statistics()["busy"] == busy


def test_clients_of_one_lane_share_what_was_made(corpus: Corpus) -> None:
    recipe = corpus.recipe("web@1", batch=6)
    with serving(corpus.registry, recipe, open=True) as server:
        with ps.open(address_of(server)) as one, ps.open(address_of(server)) as two:
            for _ in range(100):
                assert next(one).digest == next(two).digest
            sent, produced = (server.statistics()[name] for name in ("batches_sent", "batches_made"))
        assert sent >= 200
        assert produced < sent


def test_memory_of_a_client_that_was_killed_is_freed(corpus: Corpus) -> None:
    """Goal: nothing is kept for the dead. Method: SIGKILL a client in the middle; its lane is forgotten after the time for that."""
    program = (
        "import sys, penstock as ps\n"
        "feed = ps.open(sys.argv[1], lane=ps.Lane(1, of=2))\n"
        "print(next(feed).step, flush=True)\n"
        "sys.stdin.read()\n"
    )
    recipe = corpus.recipe("web@1", batch=64, length=512)
    with serving(corpus.registry, recipe, forget_after_s=0.5, open=True) as server:
        command = [sys.executable, "-c", program, address_of(server)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen(command, cwd=ROOT, **pipes) as client:
            assert client.stdout is not None
            assert client.stdout.readline() == b"0\n"
            assert server.statistics()["shelf_bytes"] > 0
            client.kill()
        names = ("shelf_bytes", "lanes", "connections", "sending_bytes")
        wait_until(lambda: all(server.statistics()[name] == 0 for name in names))


def test_memory_is_bounded_however_many_lanes_ask(corpus: Corpus) -> None:
    recipe = corpus.recipe("web@1", batch=64, length=512)
    limit = 1 << 20
    with serving(corpus.registry, recipe, memory_bytes=limit, open=True) as server:
        for step in range(3):
            for lane in range(32):
                assert get(server.address, f"/v1/batch?lane={lane}&of=32&step={step}")[0] == 200
                assert server.statistics()["shelf_bytes"] <= limit
        assert server.statistics()["lanes"] == 32


def test_sigterm_finishes_what_is_being_sent_and_exits_cleanly(corpus: Corpus) -> None:
    """Goal: an orderly end. Method: SIGTERM while a large answer is half read; all of it comes, and nothing new is let in."""
    folder = corpus.folder / "large"
    folder.mkdir()
    (folder / "recipe.toml").write_text(
        'seed = 1\nbatch = 2048\n[[sources]]\nname = "web@1"\n[[stages]]\nkind = "tokenize"\n'
        f'tokenizer = "{corpus.tokenizer}"\n[[stages]]\nkind = "pack"\nlength = 4096\n'
    )
    (folder / "registry").symlink_to(corpus.folder / "registry")
    with ServerProcess(folder) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        connection.request("GET", "/v1/batch?lane=0&of=1&step=0")
        answer = connection.getresponse()
        begun = answer.read(1 << 20)
        server.send(signal.SIGTERM)
        wait_until(lambda: not listens(server.port))
        rest = answer.read()
        connection.close()
        code = server.process.wait(timeout=30)
    assert len(begun) + len(rest) == int(answer.headers["content-length"])
    assert code == 0


def listens(port: int) -> bool:
    """Whether somebody accepts connections there."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except (ConnectionRefusedError, ConnectionResetError):
        # Reset: it stopped to listen before it accepted.
        return False
    return True


def test_metrics_and_statistics_say_the_same(corpus: Corpus) -> None:
    recipe = corpus.recipe("web@1", batch=6)
    with serving(corpus.registry, recipe, open=True) as server:
        for step in range(5):
            get(server.address, f"/v1/batch?lane=0&of=1&step={step}")
        statistics = json.loads(get(server.address, "/v1/statistics")[2])
        status, headers, text = get(server.address, "/metrics")
    lines = dict(line.rsplit(" ", 1) for line in text.decode().splitlines() if not line.startswith("#"))
    assert (status, headers["content-type"]) == (200, "text/plain; version=0.0.4")
    assert float(lines["penstock_service_batches_sent_total"]) == statistics["batches_sent"] == 5
    assert all(name.startswith("penstock_service_") for name in lines)


def test_serve_says_what_is_wrong_before_it_serves(corpus: Corpus) -> None:
    """Goal: bad input is a sentence. Method: a port that is taken, half of TLS, lanes that cannot be."""
    recipe = str(corpus.folder / "recipe.toml")
    base = [sys.executable, "-m", "penstock.cli.main", "data", "serve", recipe]
    base += ["--registry", str(corpus.folder / "registry")]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        bad = {
            "cannot be listened on": ["--bind", f"127.0.0.1:{taken.getsockname()[1]}"],
            "belong together": ["--tls-cert", "cert.pem"],
            "24 rows cannot be dealt to 7 lanes": ["--lanes", "7"],
        }
        for reason, options in bad.items():
            ended = subprocess.run([*base, *options], cwd=ROOT, capture_output=True, text=True, check=False)
            assert ended.returncode == 2
            assert reason in ended.stderr
            assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    "question", ["epochs?step=3", "recurrence", "has?lane=0&of=1&step=5", "origin?source=0&sample=1"]
)
def test_questions_are_answered_as_json(corpus: Corpus, question: str) -> None:
    recipe = corpus.recipe("web@1", batch=6)
    with serving(corpus.registry, recipe, open=True) as server:
        status, headers, body = get(server.address, f"/v1/{question}")
    assert (status, headers["content-type"]) == (200, "application/json")
    assert json.loads(body) not in (None, [])
