"""Faults of writing and of credentials, against a real S3 server (moto) behind a proxy that breaks answers."""

import http.client
import http.server
import os
import random
import re
import threading
import urllib.parse
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock._rust import store_counts
from penstock.errors import StoreDenied, StoreFailed, StoreThrottled
from penstock.store import Limits
from penstock.store.remote import RemoteStore
from tests.faulty.faults import Drop, Lose, Reset, Status, Truncate
from tests.faulty.proxy import Proxy

QUICK: dict[str, Any] = {"tries": 4, "pause_s": 0.001, "pause_max_s": 0.01, "read_s": 20, "total_s": 60}
PART = 5 << 20


@pytest.fixture
def proxy(s3_bucket: str) -> Iterator[Proxy]:
    assert s3_bucket
    with Proxy(os.environ["AWS_ENDPOINT_URL"]) as proxy:
        yield proxy


@pytest.fixture
def place(s3_bucket: str) -> str:
    return f"{s3_bucket}/{uuid.uuid4().hex}"


def through(proxy: Proxy, place: str, **limits: Any) -> RemoteStore:
    return RemoteStore(place, options={"aws_endpoint_url": proxy.url}, limits=Limits(**{**QUICK, **limits}))


def test_a_lost_answer_does_not_lose_the_race(proxy: Proxy, place: str) -> None:
    """Goal: who made an object knows it. Method: the server writes it and the answer is lost; the next try finds the name taken."""
    store = through(proxy, place)
    proxy.add(Lose(), times=1, method="PUT")
    assert store.put_if_absent("ours", b"mine") is True
    assert [one.status for one in proxy.requests("ours", "PUT")] == [None, 412]
    assert store.put_if_absent("theirs", b"another") is True
    proxy.add(Drop(), times=1, method="PUT")
    assert store.put_if_absent("theirs", b"mine") is False
    assert store.get("theirs") == b"another"


def test_a_large_object_arrives_whole_through_faults(proxy: Proxy, place: str, tmp_path: Path) -> None:
    """Goal: parts are sent again one by one. Method: four parts, of which several fail in several ways."""
    content = random.Random(3).randbytes(3 * PART + 1234)
    (tmp_path / "file").write_bytes(content)
    store = through(proxy, place, part_bytes=PART)
    proxy.add(Status(503), times=2, method="PUT")
    proxy.add(Reset(), times=1, method="PUT")
    proxy.add(Lose(), times=1, method="POST", path="uploadId=")
    assert store.put_file_if_absent("large", tmp_path / "file") is True
    assert store.put_file_if_absent("large", tmp_path / "file") is False
    proxy.add(Truncate(after=1 << 20), times=2, method="GET")
    assert store.get_range("large", 0, len(content)) == content
    view = memoryview(content)
    assert store.put_buffers("again", [view[:PART], view[PART : 2 * PART + 1], view[2 * PART + 1 :]]) == len(
        content
    )
    assert store.get("again") == content


def test_an_upload_that_fails_leaves_nothing(proxy: Proxy, place: str) -> None:
    """Goal: no parts stay behind. Method: one part fails for ever; ask the server for uploads that were begun."""
    store = through(proxy, place, part_bytes=PART)
    rule = proxy.add(Status(503), method="PUT", path="partNumber=2")
    with pytest.raises(StoreThrottled) as caught:
        store.put_buffers("never", [memoryview(bytes(3 * PART))])
    assert (caught.value.range, caught.value.tries, rule.happened) == ((PART, 2 * PART), 4, 4)
    bucket = place.removeprefix("s3://").partition("/")[0]
    with urllib.request.urlopen(f"{os.environ['AWS_ENDPOINT_URL']}/{bucket}?uploads", timeout=30) as answer:
        assert not re.findall(r"<Key>[^<]*never</Key>", answer.read().decode())
    assert [entry.name for entry in store.entries()] == []


def test_listing_goes_on_after_a_fault(proxy: Proxy, place: str) -> None:
    store = through(proxy, place)
    for number in range(5):
        store.put_if_absent(f"x/{number}", b"")
    proxy.add(Status(500), times=2, method="GET", path="list-type=2")
    assert [entry.name for entry in store.entries("x")] == [f"x/{number}" for number in range(5)]


def profile(home: Path, key: str, endpoint: str) -> None:
    (home / ".aws").mkdir(exist_ok=True)
    lines = f"[profile lab]\nregion = us-east-1\nendpoint_url = {endpoint}\n"
    (home / ".aws" / "config").write_text(lines)
    keys = f"[lab]\naws_access_key_id = {key}\naws_secret_access_key = secret\n"
    (home / ".aws" / "credentials").write_text(keys)


def test_credentials_that_ran_out_are_read_again_once(
    proxy: Proxy, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a profile that somebody renews goes on working. Method: a refusal, with and without new keys in the file."""
    for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_PROFILE", "lab")
    profile(tmp_path, "OLD", proxy.url)
    store = RemoteStore(place, limits=Limits(**QUICK))
    assert store.put_if_absent("a", b"x") is True
    proxy.add(Status(400, text="<Error><Code>ExpiredToken</Code></Error>"), times=1)
    with pytest.raises(StoreDenied, match="ExpiredToken"):
        store.get("a")
    profile(tmp_path, "NEW", proxy.url)
    proxy.heal()
    proxy.add(Status(403), times=1)
    before = store_counts()["credentials_reread"]
    assert store.get("a") == b"x"
    assert store_counts()["credentials_reread"] == before + 1
    profile(tmp_path, "NEWER", proxy.url)
    proxy.heal()
    proxy.add(Status(403))
    proxy.forget()
    with pytest.raises(StoreDenied) as caught:
        store.get("a")
    assert (caught.value.tries, len(proxy.requests())) == (2, 2)


def test_a_profile_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_PROFILE", "gone")
    with pytest.raises(StoreDenied, match="no profile `gone`"):
        RemoteStore("s3://bucket")


class Unquoting(http.server.BaseHTTPRequestHandler):
    """Passes requests on to a real S3 server, and leaves the quotes of entity tags out of listings, as Azure lists them."""

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        server = http.client.HTTPConnection(urllib.parse.urlsplit(os.environ["AWS_ENDPOINT_URL"]).netloc)
        server.request(self.command, self.path, body, dict(self.headers))
        answer = server.getresponse()
        content = answer.read()
        if b"<ListBucketResult" in content:
            content = (
                content.replace(b"&quot;", b"").replace(b'ETag>"', b"ETag>").replace(b'"</ETag', b"</ETag")
            )
        self.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                self.send_header(name, value)
        length = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(content))
        self.send_header("Content-Length", length or "0")
        self.end_headers()
        self.wfile.write(content)
        server.close()

    do_GET = do_HEAD = do_PUT = do_POST = _pass_on  # noqa: N815 - as the library calls them

    def log_message(self, *_: object) -> None:
        """Nothing is said."""


def test_tags_are_the_same_in_listings_and_in_answers(place: str) -> None:
    """Goal: what was listed is not taken for changed when it is read. Method: a store that lists tags without quotes."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Unquoting) as relay:
        threading.Thread(target=relay.serve_forever, daemon=True).start()
        try:
            store = RemoteStore(place, options={"aws_endpoint_url": f"http://127.0.0.1:{relay.server_port}"})
            assert store.put_if_absent("a.jsonl", b'{"id": 1}\n')
            described = store.describe("a.jsonl")
            assert described.stamp.startswith('"')
            assert list(store.entries()) == store.entries_beginning("a")[0] == [described]
        finally:
            relay.shutdown()


def test_a_name_that_no_store_can_have_is_an_error(place: str) -> None:
    with pytest.raises(StoreFailed, match=r"a/\.\./b"):
        RemoteStore(place).get("a/../b")
