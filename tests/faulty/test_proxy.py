"""The proxy does what it is told and nothing else; tests of everything that reads from afar stand on it."""

import hashlib
import random
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faulty.faults import Flip, Lose, Request, Rule, Status
from tests.faulty.nginx import nginx
from tests.faulty.proxy import Proxy

CONTENT = random.Random(4).randbytes(5_000_000)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("web")
    (folder / "a.bin").write_bytes(CONTENT)
    with nginx(folder, tmp_path_factory.mktemp("home")) as url:
        yield url


def fetch(url: str, part: tuple[int, int] | None = None, method: str = "GET") -> bytes:
    fields = {"Range": f"bytes={part[0]}-{part[1] - 1}"} if part else {}
    with urllib.request.urlopen(
        urllib.request.Request(url, headers=fields, method=method), timeout=30
    ) as answer:
        return bytes(answer.read())


def test_without_faults_bytes_pass_and_are_counted(server: str) -> None:
    with Proxy(server) as proxy:
        assert hashlib.sha256(fetch(f"{proxy.url}/a.bin")).digest() == hashlib.sha256(CONTENT).digest()
        assert fetch(f"{proxy.url}/a.bin", (10, 30)) == CONTENT[10:30]
        assert fetch(f"{proxy.url}/a.bin", method="HEAD") == b""
        assert proxy.bytes_of("/a.bin") == len(CONTENT) + 20
        assert [(one.request.method, one.request.range, one.status) for one in proxy.requests()] == [
            ("GET", None, 200),
            ("GET", (10, 30), 206),
            ("HEAD", None, 200),
        ]


def test_a_flipped_bit_is_one_of_the_object_wherever_the_answer_begins(server: str) -> None:
    with Proxy(server) as proxy:
        proxy.add(Flip(at=1_000, bit=3), times=2)
        assert fetch(f"{proxy.url}/a.bin", (0, 1_000)) == CONTENT[:1_000]
        for part in ((990, 1_010), (1_000, 2_000_000)):
            answer = fetch(f"{proxy.url}/a.bin", part)
            wrong = [at for at, byte in enumerate(answer) if byte != CONTENT[part[0] + at]]
            assert wrong == [1_000 - part[0]]
            assert answer[wrong[0]] == CONTENT[1_000] ^ 8
        assert fetch(f"{proxy.url}/a.bin", (990, 1_010)) == CONTENT[990:1_010]


def test_a_share_is_spread_evenly_and_repeatably() -> None:
    request = Request("GET", "/a", None)
    draws = []
    for _ in range(2):
        rule = Rule(Status(503), share=0.3)
        draws.append([rule.applies(request) for _ in range(20)])
    assert draws[0] == draws[1]
    assert sum(draws[0]) == 6
    other = Rule(Status(503), times=1, method="PUT", path="b")
    assert [other.applies(request), other.applies(Request("PUT", "/b?x", None))] == [False, True]


def test_a_fault_says_so_and_heals(server: str) -> None:
    with Proxy(server) as proxy:
        rule = proxy.add(Status(429, retry_after_s=7))
        with pytest.raises(urllib.error.HTTPError) as caught:
            fetch(f"{proxy.url}/a.bin")
        with caught.value as answer:
            assert (answer.code, answer.headers["Retry-After"]) == (429, "7")
        proxy.heal()
        proxy.add(Lose(), times=1)
        with pytest.raises(ConnectionError):
            fetch(f"{proxy.url}/a.bin")
        assert fetch(f"{proxy.url}/a.bin", (0, 5)) == CONTENT[:5]
        assert rule.happened == 1
        assert [one.fault for one in proxy.requests()] == [Status(429, retry_after_s=7), Lose(), None]


def test_what_does_not_start_says_why(tmp_path: Path) -> None:
    with (
        pytest.raises(RuntimeError, match="did not start"),
        nginx(tmp_path / "no\nfolder", tmp_path / "home"),
    ):
        pass
