"""``penstock data serve``: an ordinary process in the foreground that makes batches for others until it is told to stop."""

import os
import secrets
import signal
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter

from penstock.cli.output import Json, command_app, print_json, say
from penstock.cli.progress import progress
from penstock.cli.registry_place import Place, open_registry
from penstock.data import Recipe
from penstock.data.feed.feed import check_lane
from penstock.data.feed.lane import Lane
from penstock.data.plan.plan import Plan, prepare
from penstock.data.plan.row_copies import with_row_copies
from penstock.data.recipe.skips import Skips
from penstock.data.service import DataServer, ServeOptions
from penstock.data.service.address import TOKEN_VARIABLE, host_port
from penstock.data.service.credential import is_loopback
from penstock.data.service.server import STOP_S
from penstock.errors import UsageError

#: How often the main thread looks up, so that signals are never missed.
_LOOK_S = 1.0

serve_app = command_app(
    "serve",
    "Serve a recipe's batches to other machines: any lane, any step, from any number of servers.",
    examples=(
        "  penstock data serve recipe.toml --bind 127.0.0.1:7070\n"
        "  penstock data serve recipe.toml --bind 0.0.0.0:7070 --token-file token --tls-cert cert.pem --tls-key key.pem"
    ),
)


@dataclass(frozen=True, kw_only=True)
class ServeAddress:
    """Where a server listens and whom it lets in."""

    #: Host and port to listen on; port 0 takes any free one.
    bind: Annotated[str, Parameter(help="HOST:PORT to listen on; port 0 takes a free one.")] = (
        "127.0.0.1:7070"
    )
    token_file: Annotated[
        Path | None,
        Parameter(
            help="File with the token that clients must show; written if it is not there (else $PENSTOCK_SERVICE_TOKEN)."
        ),
    ] = None
    open: Annotated[
        bool,
        Parameter(
            name=["--open", "--no-token"],
            negative=(),
            help="Ask for no token: everybody who reaches the server is let in.",
        ),
    ] = False
    allow_host: Annotated[
        list[str] | None,
        Parameter(
            help="A further name under which the server answers, for a tunnel or a proxy.", negative=()
        ),
    ] = None
    tls_cert: Annotated[Path | None, Parameter(help="Certificate (PEM), to serve over TLS.")] = None
    tls_key: Annotated[Path | None, Parameter(help="Key of the certificate (PEM).")] = None
    ready_file: Annotated[
        Path | None, Parameter(help="File that gets the address once the server answers.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """How much a server does at once."""

    threads: Annotated[int, Parameter(help="Threads that make batches.")] = max(
        1, min(8, os.cpu_count() or 1)
    )
    memory: Annotated[int, Parameter(help="MiB for batches that are made ahead.")] = 256
    lanes: Annotated[
        int | None, Parameter(help="Fail at the start if steps cannot be dealt to this many lanes.")
    ] = None
    skips: Annotated[Path | None, Parameter(help="Steps and samples to leave out (JSON).")] = None
    forget_after: Annotated[
        float, Parameter(help="Seconds after which a lane that nobody asks for is forgotten.")
    ] = 60.0
    requests: Annotated[int, Parameter(help="Requests at once; further ones are asked to try again.")] = 256


@serve_app.default
def serve(
    recipe: Path,
    *,
    listening: Annotated[ServeAddress | None, Parameter(name="*")] = None,
    bounds: Annotated[Bounds | None, Parameter(name="*")] = None,
    registry: Place = None,
    json: Json = False,
) -> int:
    """Measure and plan what is missing, then answer until SIGTERM or Ctrl-C; what is being sent is finished first.

    Parameters
    ----------
    recipe
        A recipe file (TOML).
    """
    where, much = listening or ServeAddress(), bounds or Bounds()
    host, port = host_port(where.bind)
    options = _options(where, much)
    with progress("preparing", "rows", quiet=json) as tell:
        plan = prepare(
            Recipe.load(recipe),
            open_registry(registry, recipe=recipe),
            lambda what, done, total: tell(done, total, what),
            skips=_skips(much.skips),
        )
        plan = with_row_copies(plan, "auto", plan.watch)
    if much.lanes is not None:
        check_lane(plan, Lane(0, of=much.lanes), 0)
    # Only now: while there is nothing to finish, a signal ends the process at once.
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stop.set())
    with DataServer(plan, host, port, options=options) as serving:
        _announce(plan, serving, where, json=json)
        while not stop.wait(_LOOK_S):
            pass
        sent = serving.close(STOP_S)
        if not json:
            say("stopped" if sent else f"stopped; something was still being sent after {STOP_S:.0f} s")
    return 0


def _options(where: ServeAddress, much: Bounds) -> ServeOptions:
    if much.threads < 1 or much.memory < 1 or much.requests < 1 or much.forget_after <= 0:
        raise UsageError("--threads, --memory, --requests and --forget-after are at least 1")
    if (where.tls_cert is None) != (where.tls_key is None):
        raise UsageError("--tls-cert and --tls-key belong together")
    tls = None
    if where.tls_cert is not None and where.tls_key is not None:
        tls = (where.tls_cert, where.tls_key)
    return ServeOptions(
        threads=much.threads,
        memory_bytes=much.memory << 20,
        token=_token(where),
        open=where.open,
        allow_hosts=tuple(where.allow_host or ()),
        tls=tls,
        forget_after_s=much.forget_after,
        requests_max=much.requests,
    )


def _token(where: ServeAddress) -> str | None:
    """The token that clients must show: from a file or from the environment; without either the server makes one up."""
    if where.open:
        if where.token_file is not None:
            raise UsageError(
                "--open wants no token, but --token-file gives one", hint="leave one of them out"
            )
        return None
    if where.token_file is not None:
        return _token_of(where.token_file)
    return os.environ.get(TOKEN_VARIABLE) or None


def _token_of(path: Path) -> str:
    """The token in a file, which is made if it is not there, for its owner's eyes only."""
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            new_token = secrets.token_urlsafe(32)
            file.write(new_token + "\n")
            return new_token
    except FileExistsError:
        pass
    except OSError as problem:
        raise UsageError(f"cannot write {path}: {problem.strerror}") from problem
    try:
        token = path.read_text().strip()
    except OSError as problem:
        raise UsageError(f"cannot read {path}: {problem.strerror}") from problem
    if not token:
        raise UsageError(f"{path} must hold a token, and is empty")
    return token


def _skips(path: Path | None) -> Skips | None:
    if path is None:
        return None
    try:
        document = msgspec.json.decode(path.read_bytes(), type=dict[str, list[tuple[int | str, int]]])
    except OSError as problem:
        raise UsageError(f"cannot read {path}: {problem.strerror}") from problem
    except msgspec.MsgspecError as problem:
        raise UsageError(f"{path} is not a list of skips: {problem}") from problem
    steps = tuple((int(first), stop) for first, stop in document.get("steps", []))
    samples = tuple((str(alias), row) for alias, row in document.get("samples", []))
    return Skips(steps, samples)


def _announce(plan: Plan, serving: DataServer, where: ServeAddress, *, json: bool) -> None:
    host, port = serving.address
    shown = f"[{host}]" if ":" in host else host
    address = f"{'penstocks' if where.tls_cert else 'penstock'}://{shown}:{port}"
    if where.ready_file is not None:
        staged = where.ready_file.with_name(where.ready_file.name + ".part")
        staged.write_text(address + "\n")
        staged.rename(where.ready_file)
    _explain(serving, where, host)
    if json:
        print_json({"address": address, "plan": serving.identity, "recipe": plan.recipe.digest})
    else:
        say(f"serving {address} (Ctrl-C ends it); penstock.open({address!r}, lane=…) reads it")
    sys.stdout.flush()


def _explain(serving: DataServer, where: ServeAddress, host: str) -> None:
    """What a person has to know about who gets in."""
    if serving.kept is not None and not is_loopback(host):
        say(f"token: {serving.kept.text}")
        say(f"(shown once; clients elsewhere take it from ${TOKEN_VARIABLE}; keep one with --token-file)")
    if where.open:
        reach = "every user of this machine" if is_loopback(host) else "everybody who reaches this machine"
        say(f"open: {reach} can read these batches")
    elif not is_loopback(host) and where.tls_cert is None:
        say("the token and the batches travel in the clear; --tls-cert and --tls-key secure them")
