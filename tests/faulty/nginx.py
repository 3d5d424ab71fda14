"""A real web server over a folder, for as long as a test needs it."""

import contextlib
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

_CONFIGURATION = """
{user}
daemon off;
worker_processes {workers};
pid {home}/pid;
error_log {home}/error.log warn;
events {{ worker_connections 512; }}
http {{
    access_log off;
    sendfile on;
    tcp_nopush on;
    keepalive_requests 100000;
    client_body_temp_path {home}/body;
    proxy_temp_path {home}/proxy;
    fastcgi_temp_path {home}/fastcgi;
    uwsgi_temp_path {home}/uwsgi;
    scgi_temp_path {home}/scgi;
    server {{
        listen 127.0.0.1:{port}{listening};
        root {folder};
    }}
}}
"""


@contextlib.contextmanager
def nginx(
    folder: Path, home: Path, *, workers: int = 1, certificate: tuple[Path, Path] | None = None
) -> Iterator[str]:
    """Serves a folder; its URL. ``home`` is for the server's own files; a certificate and its key make it https."""
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    if program is None:
        raise RuntimeError("nginx is not installed: apt-get install nginx (`make test` as root does it)")
    home.mkdir(parents=True, exist_ok=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    user = "user root;" if os.geteuid() == 0 else ""
    listening = ""
    if certificate is not None:
        listening = (
            f" ssl;\n        ssl_certificate {certificate[0]};\n        ssl_certificate_key {certificate[1]}"
        )
    text = _CONFIGURATION.format(
        user=user, workers=workers, home=home, port=port, folder=folder, listening=listening
    )
    (home / "nginx.conf").write_text(text)
    server = subprocess.Popen(
        [program, "-p", home, "-c", home / "nginx.conf", "-e", home / "error.log"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_listening(port, server, home)
        yield f"{'http' if certificate is None else 'https'}://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(30)


def _wait_listening(port: int, server: "subprocess.Popen[bytes]", home: Path) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and server.poll() is None:
        with contextlib.suppress(ConnectionError), socket.create_connection(("127.0.0.1", port), timeout=5):
            return
        threading.Event().wait(0.02)
    log = home / "error.log"
    raise RuntimeError(f"nginx did not start: {log.read_text() if log.exists() else 'no word from it'}")
