"""Who may look at the web views: the token, the cookie, the names, the origin, the methods, the prefix and the folders (V1)."""

import http.client
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest
from starlette.testclient import TestClient

from penstock.cli.main import main
from penstock.errors import UsageError
from penstock.view.web.access import access_for, checked_prefix, is_loopback
from penstock.view.web.server import create_app
from tests.view.exhibit import Exhibit
from tests.view.serving import client_of, serving, site_at

#: Sent as they stand, without the tidying that clients do.
OUTSIDE = [
    "/../../../../../../etc/passwd",
    "/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
    "/assets/..%2f..%2fserver.py",
    "/assets/../../server.py",
    "//etc/passwd",
    "/..%5c..%5cserver.py",
    "/api/../../server.py",
    "/api/events/..%2f..%2fsecret.pev",
]
PLACES = ["/", "/api/datasets", "/api/doctor", "/api/batch?address=recipe.toml", "/icon.svg", "/assets/x.js"]


@pytest.fixture
def stranger(exhibit: Exhibit) -> TestClient:
    """Somebody on the same loopback who was not given the address."""
    return TestClient(
        create_app(site_at(exhibit.folder), access_for("127.0.0.1", 1)), base_url="http://localhost"
    )


@pytest.mark.parametrize("path", PLACES)
@pytest.mark.parametrize("cookie", ["", "penstock-1=", "penstock-1=guess", "penstock-2=guess", "x;;=,=\x7f"])
def test_without_the_token_nothing_is_answered(stranger: TestClient, path: str, cookie: str) -> None:
    answer = stranger.get(path, headers={"cookie": cookie} if cookie else {})

    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers
    assert "penstock web" in answer.text


@pytest.mark.parametrize("query", ["token=", "token=guess", "token=guess&token=x", "&".join(["a=1"] * 100)])
def test_a_wrong_token_becomes_no_cookie(stranger: TestClient, query: str) -> None:
    answer = stranger.get(f"/?{query}")

    assert (answer.status_code, "set-cookie" in answer.headers) == (401, False)


def test_the_token_becomes_a_cookie_that_no_script_and_no_other_site_can_use(exhibit: Exhibit) -> None:
    access = access_for("127.0.0.1", 8090)
    client = TestClient(create_app(site_at(exhibit.folder), access), base_url="http://localhost")

    answer = client.get(f"/?token={access.token}")

    name, _, rest = answer.headers["set-cookie"].partition("=")
    value, *attributes = rest.split("; ")
    assert name == "penstock-8090"
    assert set(attributes) == {"HttpOnly", "SameSite=Strict"}
    assert value not in ("", access.token)
    assert answer.headers["cache-control"] == "no-store"
    assert client.get("/api/datasets").status_code == 200


def test_the_token_is_only_taken_where_the_page_begins(stranger: TestClient, exhibit: Exhibit) -> None:
    access = access_for("127.0.0.1", 1)
    client = TestClient(create_app(site_at(exhibit.folder), access), base_url="http://localhost")

    assert client.get(f"/api/datasets?token={access.token}").status_code == 401


def test_every_server_has_secrets_of_its_own() -> None:
    accesses = [access_for("127.0.0.1", 1) for _ in range(8)]

    secrets = {access.token for access in accesses} | {access.session for access in accesses}
    assert len(secrets) == 16
    assert min(map(len, secrets)) >= 43


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("localhost:9999", 200),
        ("LOCALHOST", 200),
        ("127.0.0.1:8090", 200),
        ("[::1]:8090", 200),
        ("evil.example", 403),
        ("localhost.evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("192.168.7.7", 403),
        ("", 403),
    ],
)
def test_a_name_that_is_not_ours_is_refused_even_with_the_cookie(
    exhibit: Exhibit, host: str, status: int
) -> None:
    """Goal: a foreign page whose name suddenly means our address gets nothing."""
    client = client_of(site_at(exhibit.folder))

    answer = client.get("/api/datasets", headers={"host": host})

    assert answer.status_code == status


def test_names_of_proxies_and_of_the_machine_are_given() -> None:
    access = access_for("0.0.0.0", 1, allow_hosts=["Hub.Example.org"])

    assert access.knows("hub.example.org:443")
    assert access.knows("10.1.2.3:8090")
    assert access.knows(os.uname().nodename)
    assert not access.knows("evil.example")
    assert not access_for("127.0.0.1", 1).knows("10.1.2.3")


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_other_sites_get_no_data_with_our_cookie(exhibit: Exhibit, site: str) -> None:
    """Another port of the same host counts as the same site for cookies; the browser says who asks."""
    client = client_of(site_at(exhibit.folder))

    assert client.get("/api/datasets", headers={"sec-fetch-site": site}).status_code == 403
    assert client.get("/api/datasets", headers={"sec-fetch-site": "same-origin"}).status_code == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
def test_nothing_but_reading_is_answered(exhibit: Exhibit, method: str) -> None:
    client = client_of(site_at(exhibit.folder))

    for path in PLACES:
        answer = client.request(method, path)
        assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")


def test_a_proxys_prefix_is_accepted_and_need_not_be_there(exhibit: Exhibit) -> None:
    access = access_for("127.0.0.1", 1, prefix="user/ada/proxy/8090/")
    client = client_of(site_at(exhibit.folder), access)

    assert access.prefix == "/user/ada/proxy/8090"
    assert client.get("/user/ada/proxy/8090/api/datasets").status_code == 200
    stripped = TestClient(create_app(site_at(exhibit.folder), access), base_url="http://localhost")
    stripped.get(f"/?token={access.token}")
    assert stripped.get("/api/datasets").status_code == 200
    assert client.get("/user/other/api/datasets").status_code == 401  # the cookie is of the prefix alone
    bare = client.get("/user/ada/proxy/8090?token=x", follow_redirects=False)
    assert (bare.status_code, bare.headers["location"]) == (307, "8090/?token=x")


@pytest.mark.parametrize("prefix", ["/a/../b", "/a//b", "/a?b", "/a b", "/a#b", "/ü", "/a%2f", "/a;b"])
def test_a_prefix_that_cannot_be_one_is_refused(prefix: str) -> None:
    with pytest.raises(UsageError):
        checked_prefix(prefix)


@pytest.mark.parametrize(
    "name",
    [
        "../secret.toml",
        "/etc/passwd",
        "/etc/passwd.toml",
        "link.toml",
        "linked/secret.toml",
        "raw/../../secret.toml",
        "..%2fsecret.toml",
        "missing.toml",
        "a\0b.toml",
        "x" * 5000 + ".toml",
        "run:/etc",
        "run:..",
    ],
)
def test_no_address_leads_out_of_the_folders(exhibit: Exhibit, tmp_path: Path, name: str) -> None:
    """Goal: files only under the given roots, links resolved; and nobody learns what else exists."""
    root = tmp_path / "root"
    (tmp_path / "secret.toml").write_text('secret = 1\n[[sources]]\nname = "web@1"\n')
    root.mkdir()
    (root / "link.toml").symlink_to(tmp_path / "secret.toml")
    (root / "linked").symlink_to(tmp_path)
    (root / "raw").mkdir()
    client = client_of(site_at(root))

    answer = client.get("/api/batch", params={"address": f"{name}#step=0"})

    assert answer.status_code == 422
    assert "secret = 1" not in answer.text
    assert client.get("/api/streams").json()["recipes"] == []


def test_a_recipe_below_the_folders_is_found_and_opened(exhibit: Exhibit) -> None:
    client = client_of(site_at(exhibit.folder))

    assert "recipe.toml" in client.get("/api/streams").json()["recipes"]
    assert client.get("/api/batch", params={"address": "recipe.toml#step=0"}).status_code == 200


def test_the_real_command_prints_an_address_that_works_once_the_token_is_given(exhibit: Exhibit) -> None:
    """Method: the command in a process of its own, asked over a plain connection."""
    with serving(exhibit.folder, "web@2/row/3") as (address, _):
        parts = urlsplit(address)
        assert parts.fragment == "/a/web@2/row/3"
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 0, timeout=30)
        connection.request("GET", "/api/datasets")
        refused = connection.getresponse()
        assert (refused.status, b"token" in refused.read()) == (401, True)
        connection.request("GET", f"/?{parts.query}")
        answer = connection.getresponse()
        answer.read()
        cookie = (answer.getheader("set-cookie") or "").partition(";")[0]
        for path in OUTSIDE:
            connection.putrequest("GET", path, skip_host=True)
            connection.putheader("Host", "localhost")
            connection.putheader("Cookie", cookie)
            connection.endheaders()
            answer = connection.getresponse()
            assert (answer.status, b"root:" in answer.read()) == (404, False), path
        connection.request("GET", "/api/datasets", headers={"cookie": cookie})
        document = json.loads(connection.getresponse().read())
        connection.close()

    assert {"chat", "code", "pictures", "web"} <= {dataset["name"] for dataset in document["datasets"]}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--port", "99999"], "cannot listen on 127.0.0.1 port 99999"),
        (["--bind", "203.0.113.7", "--port", "0"], "cannot listen on 203.0.113.7"),
        (["--prefix", "/a/../b", "--port", "0"], "is not a path of a proxy"),
        (["web@@3", "--port", "0"], "web@@3"),
        (["recipe.toml#stop=3", "--port", "0"], "stop=3"),
        (["--registry", "ftp://nowhere", "--port", "0"], "ftp"),
    ],
)
def test_what_cannot_be_served_is_said_in_a_sentence(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["web", "--no-open", *words]) == 2

    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert message in said
    assert "Traceback" not in said


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_the_command_ends_quietly_when_it_is_told_to(exhibit: Exhibit, sign: signal.Signals) -> None:
    with serving(exhibit.folder, "recipe.toml#step=2,lane=0/2") as (address, process):
        assert address.endswith("#/a/recipe.toml%23step=2,lane=0/2")
        process.send_signal(sign)
        process.wait(30)
        assert process.stderr is not None
        said = process.stderr.read()

    assert "Traceback" not in said


def test_a_server_that_others_can_reach_says_that_its_token_goes_in_clear(exhibit: Exhibit) -> None:
    command = [
        sys.executable,
        "-m",
        "penstock.cli.main",
        "web",
        "--port",
        "0",
        "--no-open",
        "--bind",
        "0.0.0.0",
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=exhibit.folder) as process:
        assert process.stderr is not None
        said = [process.stderr.readline() for _ in range(3)]
        process.kill()

    assert said[0].startswith("serving http://")
    assert said[2].startswith(
        "warning: the token and everything that is shown travel over the network in clear"
    )
    assert [is_loopback(bind) for bind in ("::", "10.0.0.7", "::1", "127.0.0.1", "localhost")] == [
        False,
        False,
        True,
        True,
        True,
    ]


def test_a_recipe_elsewhere_may_be_looked_at_when_it_is_named(exhibit: Exhibit, tmp_path: Path) -> None:
    """Method: the command stands in another folder; the file that it is given lies in the exhibit's."""
    named = f"{exhibit.folder}/recipe.toml#step=1"
    with serving(exhibit.folder, named, at=tmp_path) as (address, _):
        parts = urlsplit(address)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 0, timeout=30)
        connection.request("GET", f"/?{parts.query}")
        answer = connection.getresponse()
        answer.read()
        cookie = (answer.getheader("set-cookie") or "").partition(";")[0]
        statuses = []
        for name in (named, str(exhibit.folder.parent / "x.toml")):
            connection.request("GET", f"/api/batch?address={quote(name)}", headers={"cookie": cookie})
            response = connection.getresponse()
            response.read()
            statuses.append(response.status)
        connection.close()

    assert statuses == [200, 422]
