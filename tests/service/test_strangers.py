"""Who shares the machine: other users, and pages in a browser, reach the loopback and get nothing."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import penstock as ps
from penstock.data.service.credential import kept_path
from penstock.errors import ServiceDenied, ServiceUnusable
from tests.data.corpus import Corpus
from tests.service.servers import ServerProcess, address_of, get, serving

PLAN = "/v1/plan"


def test_a_server_wants_a_token_that_its_own_user_has(corpus: Corpus, home: Path) -> None:
    """Goal: being on the machine proves nothing. Method: a server with no options at all, asked by its user, by a
    process with another home, and by plain requests."""
    recipe = ps.Recipe.load(corpus.folder / "recipe.toml")
    expected = [batch.digest for batch in corpus.read(recipe, 3)]
    with ServerProcess(corpus.folder) as server:
        kept = kept_path(server.port)
        assert kept.is_relative_to(home)
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
        for host in ("127.0.0.1", "localhost"):
            with ps.open(f"penstock://{host}:{server.port}") as remote:
                assert [next(remote).digest for _ in range(3)] == expected
        status, _, body = get(("127.0.0.1", server.port), PLAN)
        assert (status, json.loads(body)["class"]) == (401, "ServiceDenied")
        elsewhere = {"PENSTOCK_HOME": str(home / "elsewhere")}
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(*next(iter(elsewhere.items())))
            with pytest.raises(ServiceDenied, match="wants a token") as raised:
                ps.open(f"penstock://{server.host}")
        assert "PENSTOCK_HOME" in str(raised.value.hint)
        code, said = server.ended()
    assert code == 0
    assert not kept.exists()
    assert "token" not in said


def test_a_server_that_starts_again_lets_its_clients_in_again(corpus: Corpus) -> None:
    """Goal: a new token is no end of a stream. Method: kill -9 in the middle of a stream, and start on the same port."""
    recipe = ps.Recipe.load(corpus.folder / "recipe.toml")
    expected = [batch.digest for batch in corpus.read(recipe, 200)]
    with ServerProcess(corpus.folder) as server, ps.open(f"penstock://{server.host}", threads=1) as remote:
        first = kept_path(server.port).read_text()
        digests = [next(remote).digest for _ in range(20)]
        server.kill()
        server.restart()
        digests += [next(remote).digest for _ in range(180)]
        assert kept_path(server.port).read_text() != first
    assert digests == expected


@pytest.mark.parametrize("damage", ["readable", "link", "empty", "line break"])
def test_a_kept_token_that_others_could_have_put_there_is_not_shown(corpus: Corpus, damage: str) -> None:
    with serving(corpus.registry, corpus.recipe("web@1", batch=6)) as server:
        kept = kept_path(server.address[1])
        if damage == "readable":
            kept.chmod(0o644)
        elif damage == "link":
            kept.rename(kept.with_name("other"))
            kept.symlink_to("other")
        else:
            kept.write_text({"empty": "", "line break": "a\r\nx: y"}[damage])
        with pytest.raises(ServiceDenied, match="wants a token"):
            ps.open(address_of(server))


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "localhost.evil.example", "10.0.0.1", "", "[::2]"]
)
def test_a_page_that_means_our_address_by_its_own_name_gets_nothing(corpus: Corpus, host: str) -> None:
    """Goal: DNS rebinding reads no batch. Method: an open server, and the Host header that a browser would send."""
    with serving(corpus.registry, corpus.recipe("web@1", batch=6), open=True) as server:
        assert get(server.address, PLAN)[0] == 200
        for path in (PLAN, "/v1/batch?lane=0&of=1&step=0", "/v1/statistics", "/metrics"):
            status, _, body = get(server.address, path, host=host)
            assert (status, json.loads(body)["class"]) == (403, "ServiceDenied"), path
        assert get(server.address, PLAN, host=f"LOCALHOST:{server.address[1]}")[0] == 200
        assert get(server.address, "/healthz", host=host)[0] == 200
        assert server.statistics()["denied"] == 4


def test_a_page_of_another_site_is_refused_by_what_its_browser_says(corpus: Corpus) -> None:
    with serving(corpus.registry, corpus.recipe("web@1", batch=6), open=True) as server:
        for site, expected in (("cross-site", 403), ("same-site", 403), ("none", 200), ("same-origin", 200)):
            assert get(server.address, PLAN, sec_fetch_site=site)[0] == expected


def test_a_server_has_the_names_that_it_was_given(corpus: Corpus) -> None:
    recipe = corpus.recipe("web@1", batch=6)
    with serving(corpus.registry, recipe, open=True, allow_hosts=("Data.Example",)) as server:
        assert get(server.address, PLAN, host="data.example:7070")[0] == 200
    # Near, names are checked even where a token is wanted; the token is a second door, not the only one.
    with serving(corpus.registry, recipe, token="right") as server:
        assert get(server.address, PLAN, host="evil.example", authorization="Bearer right")[0] == 403


def test_open_is_said_aloud_and_excludes_a_token(corpus: Corpus, tmp_path: Path) -> None:
    with ServerProcess(corpus.folder, "--open") as server:
        assert get(("127.0.0.1", server.port), PLAN)[0] == 200
        assert not kept_path(server.port).exists()
        _, said = server.ended()
    assert "every user of this machine can read these batches" in said
    both = [
        "data",
        "serve",
        str(corpus.folder / "recipe.toml"),
        "--open",
        "--token-file",
        str(tmp_path / "token"),
    ]
    ended = subprocess.run(
        [sys.executable, "-m", "penstock.cli.main", *both], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2
    assert "leave one of them out" in ended.stderr


def test_a_token_that_cannot_be_kept_is_an_error_with_ways_out(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "file"))
    with pytest.raises(ServiceUnusable, match="cannot be kept") as raised:
        serving(corpus.registry, corpus.recipe("web@1", batch=6))
    assert "--open" in str(raised.value.hint)


def test_the_token_of_this_machine_is_not_shown_to_others(home: Path) -> None:
    """Goal: a secret stays here. Method: what a client would show to addresses near and far."""
    path = kept_path(7070)
    near = ps.Service(address="penstock://localhost:7070,127.0.0.1:7070,[::1]:7070").options()
    assert near["credentials"] == [path] * 3
    far = ps.Service(address="penstock://10.0.0.1:7070,data:7070,localhost.example:7070").options()
    assert far["credentials"] == [None] * 3
    assert os.fspath(home) in os.fspath(path)
