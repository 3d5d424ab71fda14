"""``penstock web``: the browser view."""

import importlib.util
import os
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from penstock.cli.output import Json, command_app, print_json, say
from penstock.errors import UsageError

app = command_app(
    "web",
    "Open the browser view of recordings and of this machine.",
    examples="  penstock web\n  penstock web --port 8100 --events runs/exp1/events",
)


def _home() -> Path:
    return Path(os.environ.get("PENSTOCK_HOME", Path.home() / ".penstock"))


@app.default
def web(
    *,
    host: Annotated[
        str, Parameter(help="Address to listen on. Other than loopback, anyone there can look.")
    ] = "127.0.0.1",
    port: Annotated[int, Parameter(help="Port to listen on.")] = 8090,
    events: Annotated[
        Path | None, Parameter(help="Directory of recordings (default: $PENSTOCK_HOME/events).")
    ] = None,
    json: Json = False,
) -> int:
    """Serve until interrupted. Views never write."""
    if importlib.util.find_spec("starlette") is None or importlib.util.find_spec("uvicorn") is None:
        raise UsageError("the browser view is not installed", hint="pip install 'penstock[view]'")
    from penstock.view.web.server import serve

    def announce(url: str) -> None:
        if json:
            print_json({"url": url})
        else:
            say(f"serving {url} (Ctrl-C ends it)")

    serve(host, port, events or _home() / "events", announce=announce)
    return 0
