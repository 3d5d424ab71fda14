"""Who is let in: tokens, certificates, and plans that fit."""

import json
import os
import socket
import stat
import subprocess
import threading
from pathlib import Path

import pytest

import penstock as ps
from penstock.errors import (
    ServiceDenied,
    ServiceIncompatible,
    ServiceMismatch,
    ServiceUnavailable,
    ServiceUnusable,
)
from tests.data.corpus import Corpus
from tests.service.servers import ServerProcess, address_of, get, serving


def test_only_the_right_token_opens(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = ps.Recipe.load(corpus.folder / "recipe.toml")
    expected = [batch.digest for batch in corpus.read(recipe, 3)]
    with serving(corpus.registry, recipe, token="right") as server:
        for token, reason in ((None, "wants a token"), ("wrong", "wrong"), ("righ", "wrong")):
            with pytest.raises(ServiceDenied, match=reason):
                ps.open(ps.Service(address=address_of(server), token=token))
        for path in ("/v1/plan", "/v1/batch?lane=0&of=1&step=0", "/v1/statistics", "/metrics", "/v1/nothing"):
            status, headers, body = get(server.address, path)
            assert (status, headers["www-authenticate"]) == (401, "Bearer")
            assert json.loads(body)["class"] == "ServiceDenied"
        assert get(server.address, "/healthz")[0] == 200
        assert get(server.address, "/metrics", authorization="Bearer right")[0] == 200
        with ps.open(ps.Service(address=address_of(server), token="right")) as remote:
            assert [next(remote).digest for _ in range(3)] == expected
        monkeypatch.setenv("PENSTOCK_SERVICE_TOKEN", "right")
        with ps.open(address_of(server)) as remote:
            assert [next(remote).digest for _ in range(3)] == expected
        assert server.statistics()["denied"] >= 8
    assert "right" not in repr(ps.Service(address="penstock://a:1", token="right"))


def test_a_token_in_an_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(ServiceUnusable, match="does not belong") as raised:
        ps.Service(address="penstock://secret@host:7070")
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    "address",
    ["http://a:1", "penstock://", "penstock://a", "penstock://a:99999", "penstock://a:1,a:1"],
)
def test_addresses_that_make_no_sense_are_refused(address: str) -> None:
    with pytest.raises(ServiceUnusable):
        ps.open(address)


def test_beyond_loopback_a_token_is_wanted_and_kept_for_its_owner(corpus: Corpus, tmp_path: Path) -> None:
    """Goal: nobody serves to everybody by accident. Method: listen on all addresses, with a file that is not there yet."""
    token, ready = tmp_path / "token", tmp_path / "ready"
    options = ("--bind", "0.0.0.0:0", "--token-file", str(token), "--ready-file", str(ready))
    with ServerProcess(corpus.folder, *options) as server:
        assert stat.S_IMODE(os.stat(token).st_mode) == 0o600
        assert len(token.read_text().strip()) > 40
        assert ready.read_text().strip() == server.told["address"]
        with pytest.raises(ServiceDenied):
            ps.open(f"penstock://{server.host}")
        service = ps.Service(address=f"penstock://{server.host}", token=token.read_text().strip())
        with ps.open(service) as remote:
            assert next(remote).step == 0
        code, said = server.ended()
    assert code == 0
    assert token.read_text().strip() not in said
    # Without a file the token is made up, and told once.
    with ServerProcess(corpus.folder, "--bind", "0.0.0.0:0") as server:
        assert get(("127.0.0.1", server.port), "/v1/plan")[0] == 401
        with ps.open(f"penstock://{server.host}") as remote:
            assert next(remote).step == 0
        _, said = server.ended()
    assert said.startswith("token: ")
    assert "in the clear" in said


def certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """A certificate for loopback that is its own authority, and its key."""
    cert, key = folder / f"{name}.pem", folder / f"{name}.key"
    names = "subjectAltName=IP:127.0.0.1,DNS:localhost"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
    ]
    command += [
        "-keyout",
        str(key),
        "-out",
        str(cert),
        "-days",
        "2",
        "-subj",
        f"/CN={name}",
        "-addext",
        names,
    ]
    subprocess.run(
        [*command, "-addext", "basicConstraints=critical,CA:FALSE"], check=True, capture_output=True
    )
    return cert, key


def test_tls_is_checked_at_both_ends(corpus: Corpus, tmp_path: Path) -> None:
    """Goal: certificates count. Method: the right authority, a wrong one, the system's, and no TLS at all."""
    recipe = ps.Recipe.load(corpus.folder / "recipe.toml")
    tls, other = certificate(tmp_path, "one"), certificate(tmp_path, "other")
    expected = [batch.digest for batch in corpus.read(recipe, 40)]
    with serving(corpus.registry, recipe, tls=tls, token="right") as server:
        plain = address_of(server)
        secure = plain.replace("penstock://", "penstocks://")
        for host in (secure, secure.replace("127.0.0.1", "localhost")):
            with ps.open(ps.Service(address=host, authorities=tls[0], token="right")) as remote:
                assert [next(remote).digest for _ in range(40)] == expected
        for address, authorities in ((secure, other[0]), (secure, None), (plain, None)):
            service = ps.Service(
                address=address, authorities=authorities, token="right", limit_s=0.3, silence_max_s=1
            )
            with pytest.raises(ServiceUnavailable):
                ps.open(service)
    with pytest.raises(ServiceUnusable, match="no certificate"):
        serving(corpus.registry, recipe, tls=(tls[1], tls[1]))
    with pytest.raises(ServiceUnusable, match=r"missing\.pem"):
        ps.open(ps.Service(address="penstocks://a:1", authorities=tmp_path / "missing.pem"))


def test_servers_of_different_plans_are_refused(corpus: Corpus) -> None:
    """Goal: no stream is ever mixed of two. Method: another seed, other skips, and a server that is another one later."""
    recipe = corpus.recipe("web@1", batch=6)
    others = {
        "seed": (corpus.recipe("web@1", batch=6, seed=18), None),
        "skips": (recipe, ps.Skips(((5, 6),))),
    }
    with serving(corpus.registry, recipe) as one:
        for changed, skips in others.values():
            with serving(corpus.registry, changed, skips=skips) as two:
                with pytest.raises(ServiceMismatch) as raised:
                    ps.open(address_of(one, two))
                assert one.identity in raised.value.wanted
                assert two.identity in raised.value.served
    changed = others["seed"][0]
    with serving(corpus.registry, recipe) as one, serving(corpus.registry, changed) as two:
        port = two.address[1]
        two.close()
        with ps.open(ps.Service(address=f"penstock://127.0.0.1:{one.address[1]},127.0.0.1:{port}")) as remote:
            next(remote)
            from penstock.data.plan.plan import prepare
            from penstock.data.service import DataServer

            with DataServer(prepare(changed, corpus.registry), port=port):
                one.close()
                with pytest.raises(ServiceMismatch):
                    for _ in remote:
                        pass


def test_other_protocols_are_refused_in_words(corpus: Corpus) -> None:
    """Goal: versions that do not fit say so. Method: a request of another protocol, and a server that tells of another one."""
    recipe = corpus.recipe("web@1", batch=6)
    with serving(corpus.registry, recipe, open=True) as server:
        status, _, body = get(server.address, "/v1/plan", penstock_protocol="99")
        plan = json.loads(get(server.address, "/v1/plan")[2])
    assert (status, json.loads(body)["class"]) == (426, "ServiceIncompatible")
    later = json.dumps(plan | {"protocol": 99, "penstock": "9.0.0"}).encode()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            line, _ = listener.accept()
            with line:
                line.recv(1 << 16)
                line.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(later), later))

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(ServiceIncompatible, match=r"protocol 99 .*Penstock 9\.0\.0"):
            ps.open(f"penstock://127.0.0.1:{listener.getsockname()[1]}")
        thread.join()
