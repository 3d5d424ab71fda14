"""The web server for tests: in this process for questions over plain HTTP, and as the real command for browsers."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from starlette.testclient import TestClient

import penstock as ps
from penstock.view.web.access import Access, access_for
from penstock.view.web.server import create_app
from penstock.view.web.site import Site
from tests.view.answer_check import check_answer


def site_at(folder: Path, *, events: Path | None = None) -> Site:
    """A site that shows the registry, the files and the recordings of a folder."""
    return Site(
        registry=ps.Registry(folder / "registry"),
        events_directory=events or folder / "events",
        roots=(folder,),
    )


def client_of(site: Site, access: Access | None = None, *, broken: bool = False) -> TestClient:
    """A client that has exchanged the token for a cookie; with ``broken`` defects of ours become answers.

    Whatever it asks, the answer has to be what its route declares.
    """
    granted = access or access_for("127.0.0.1", 1)
    app = create_app(site, granted)
    client = TestClient(app, base_url="http://localhost", raise_server_exceptions=not broken)
    client.event_hooks["response"].append(check_answer)
    client.get(f"{granted.prefix}/?token={granted.token}")
    return client


@contextmanager
def serving(
    folder: Path, *options: str, at: Path | None = None
) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """The real command, showing a folder; its address with the token, and the process, ended on leaving."""
    command = [sys.executable, "-m", "penstock.cli.main", "web", "--port", "0", "--no-open", "--json"]
    # Short where it can be: commands on pages repeat it.
    registry = "registry" if at is None else str(folder / "registry")
    command += ["--registry", registry, "--events", str(folder / "events"), *options]
    environment = {**os.environ, "PENSTOCK_HOME": str(folder)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=at or folder, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, f"the server did not start: {process.stderr.read() if process.stderr else ''}"
            yield json.loads(line)["url"], process
        finally:
            process.kill()
