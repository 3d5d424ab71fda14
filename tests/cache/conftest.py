"""A version whose files are on a real web server, behind a proxy that counts, and ways to read it in other processes."""

import hashlib
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from penstock import Registry
from tests.faulty.nginx import nginx
from tests.faulty.proxy import Proxy

#: A reader that takes longer hangs.
PATIENCE_S = 60


@dataclass
class Far:
    """The version ``web`` through the proxy, ``direct`` without it."""

    registry: Path
    proxy: Proxy
    bytes: int
    digest: str
    cache: Path
    started: "list[subprocess.Popen[str]]" = field(default_factory=list)

    def environment(self, **changes: str) -> dict[str, str]:
        """Of a process that reads."""
        return {**os.environ, "PENSTOCK_CACHE": str(self.cache), **changes}

    def start(self, *how: str, dataset: str = "web", **changes: str) -> "subprocess.Popen[str]":
        """A reader."""
        command = [sys.executable, "-m", "tests.cache.reader", str(self.registry), dataset, *how]
        reader = subprocess.Popen(
            command,
            env=self.environment(**changes),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.started.append(reader)
        return reader

    def answer(self, reader: "subprocess.Popen[str]") -> dict[str, Any]:
        """What a reader said; it read the right bytes."""
        said, _ = reader.communicate(timeout=PATIENCE_S)
        assert reader.returncode == 0
        document: dict[str, Any] = json.loads(said.splitlines()[-1])
        assert set(document["digests"]) == {self.digest}
        counts: dict[str, Any] = document["counts"]
        return counts

    def read(self, *how: str, **changes: str) -> dict[str, Any]:
        """Start a reader and wait for it."""
        return self.answer(self.start(*how, **changes))

    def pieces(self) -> list[Path]:
        """Files of pieces in the cache."""
        return sorted(self.cache.glob("pieces/*/*"))


@dataclass(frozen=True)
class Served:
    """What the server has, once for all tests."""

    url: str
    digest: str
    bytes: int


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A file of five pieces on a web server."""
    folder = tmp_path_factory.mktemp("served")
    texts = [random.Random(row).randbytes(500).hex() for row in range(4_500)]
    lines = [json.dumps({"id": row, "text": text}) for row, text in enumerate(texts)]
    (folder / "far.jsonl").write_text("\n".join(lines) + "\n")
    digest = hashlib.sha256("".join(texts).encode()).hexdigest()
    with nginx(folder, tmp_path_factory.mktemp("nginx")) as url:
        yield Served(url, digest, (folder / "far.jsonl").stat().st_size)


@pytest.fixture
def far(served: Served, tmp_path: Path) -> Iterator[Far]:
    """A version on the server, and an empty cache."""
    with Proxy(served.url) as proxy:
        registry = Registry(tmp_path / "registry")
        for name, url in (("web", proxy.url), ("direct", served.url)):
            registry.register(name, [f"{url}/far.jsonl"])
        proxy.forget()
        far = Far(tmp_path / "registry", proxy, served.bytes, served.digest, tmp_path / "cache")
        yield far
        for reader in far.started:
            if reader.poll() is None:
                reader.kill()
            for stream in (reader.stdin, reader.stdout):
                if stream is not None:
                    stream.close()
            reader.wait(PATIENCE_S)


@pytest.fixture
def wait_until() -> Callable[[Callable[[], bool]], None]:
    """Waits for a condition, not for ever."""

    def wait(condition: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < end, "it never happened"
            threading.Event().wait(0.01)

    return wait
