"""``penstock web``: the browser view."""

import importlib.util
import os
import sys
import webbrowser
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from penstock.cli.output import Json, command_app, print_json, say
from penstock.cli.registry_place import Place
from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.report.hosts.source import HostSource
    from penstock.view.address import Address, RunsAddress
    from penstock.view.web.site import Site

app = command_app(
    "web",
    "Look at data, batches, recordings and this machine in a browser.",
    examples=(
        "  penstock web\n"
        "  penstock web 'recipe.toml#step=41207,lane=3/8'\n"
        "  penstock web web@3/row/17 --port 8100 --no-open\n"
        "  penstock web --bind 0.0.0.0 --prefix /user/ada/proxy/8090 --allow-host hub.example.org"
    ),
)


#: Said where the server can be reached from other machines.
IN_CLEAR = (
    "the token and everything that is shown travel over the network in clear: whoever can listen there can read both. "
    "Bind to 127.0.0.1 and come through `ssh -L 8090:127.0.0.1:8090 HOST`, or put a proxy with TLS in front"
)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class WebAddress:
    """Where the server listens, and by which names it is called."""

    bind: Annotated[str, Parameter(help="Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, Parameter(help="Port to listen on; 0 takes any that is free.")] = 8090
    prefix: Annotated[str, Parameter(help="Path under which a proxy shows this server.")] = ""
    allow_host: Annotated[
        tuple[str, ...], Parameter(negative=(), help="Another name of this server, such as the proxy's.")
    ] = ()


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class WebScope:
    """What may be looked at."""

    root: Annotated[
        tuple[Path, ...],
        Parameter(negative=(), help="Folder below which recipes and runs are opened (default: this one)."),
    ] = ()
    events: Annotated[
        Path | None, Parameter(help="Directory of recordings (default: $PENSTOCK_HOME/events).")
    ] = None


def _home() -> Path:
    from penstock.store.home import penstock_home

    return penstock_home()


@app.default
def web(
    address: str = "",
    *,
    listening: WebAddress = WebAddress(),  # noqa: B008 - frozen
    shown: WebScope = WebScope(),  # noqa: B008 - frozen
    registry: Place = None,
    open_browser: Annotated[
        bool, Parameter(name="--open", negative="--no-open", help="Open a browser if there is a screen.")
    ] = True,
    json: Json = False,
) -> int:
    """Serve until interrupted. Views never write; the printed address holds the token that is needed to look.

    Parameters
    ----------
    address
        What to show first: web@3, web@3/row/17, recipe.toml#step=41207, run:DIR, or all runs below a folder: runs:FOLDER.
    """
    _check_installed()
    from penstock.cli.registry_place import open_registry
    from penstock.view.address import RecipeAddress, in_url, parse, parse_runs
    from penstock.view.web.access import checked_prefix
    from penstock.view.web.site import Site

    checked_prefix(listening.prefix)
    shown_first = (parse_runs(address) or parse(address)) if address else None
    recipe = shown_first.path if isinstance(shown_first, RecipeAddress) else None
    site = Site(
        registry=open_registry(registry, recipe=recipe),
        events_directory=shown.events or _home() / "events",
        roots=shown.root or _roots(shown_first),
        option="" if registry is None else registry.words(),
        home=_home(),
    )
    page = in_url(shown_first) if shown_first is not None else ""
    _serve(site, listening, page, open_browser=open_browser, json=json)
    return 0


def serve_simulation(source: "HostSource", speed: float) -> int:
    """Serve an imagined job as it is played, until interrupted."""
    _check_installed()
    from penstock.cli.registry_place import open_registry
    from penstock.view.web.content.hosts import SIMULATION, PlayedJob
    from penstock.view.web.site import Site

    site = Site(
        registry=open_registry(None),
        events_directory=_home() / "events",
        roots=_roots(None),
        home=_home(),
        played=PlayedJob(source=source, speed=speed),
    )
    _serve(site, WebAddress(port=0), f"#/hosts/{SIMULATION}", open_browser=True, json=False)
    return 0


def _check_installed() -> None:
    if importlib.util.find_spec("starlette") is None or importlib.util.find_spec("uvicorn") is None:
        raise UsageError("the browser view is not installed", hint="pip install 'penstock[view]'")


def _serve(site: "Site", listening: WebAddress, page: str, *, open_browser: bool, json: bool) -> None:
    from penstock.view.web.access import access_for, is_loopback
    from penstock.view.web.server import listen, serve

    warning = "" if is_loopback(listening.bind) else IN_CLEAR

    def announce(url: str) -> None:
        if json:
            print_json({"url": url} | ({"warning": warning} if warning else {}))
            sys.stdout.flush()
        else:
            say(
                f"serving {url}\nThe address holds the token: whoever has it can look. Ctrl-C ends the server."
            )
        if warning:
            say(f"warning: {warning}")
        if open_browser and not json and _has_screen():
            webbrowser.open(url)

    serve(
        site,
        listen(listening.bind, listening.port),
        lambda port: access_for(
            listening.bind, port, allow_hosts=listening.allow_host, prefix=listening.prefix
        ),
        announce=announce,
        page=page,
    )


def _roots(address: "Address | RunsAddress | None") -> tuple[Path, ...]:
    """Where the reader stands and, if the address names a file elsewhere, the folder of that."""
    from penstock.view.address import RecipeAddress, RunAddress, RunsAddress

    here = Path.cwd()
    if isinstance(address, RecipeAddress):
        return (here, (here / address.path).resolve().parent)
    if isinstance(address, RunAddress):
        return (here, (here / address.run).resolve())
    if isinstance(address, RunsAddress):
        return (here, (here / address.folder).resolve())
    return (here,)


def _has_screen() -> bool:
    """Whether a browser would appear before the reader, and not inside this terminal."""
    drawn = sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    return sys.stderr.isatty() and drawn
