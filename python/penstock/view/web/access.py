"""Who may look: the token, the cookie, the names, the methods; and the headers on every answer.

One layer around everything (`Guard`). Other people share the loopback of a machine, so being there proves nothing: whoever
asks must have been given the printed address, whose token becomes a cookie that no script can read and no other site can
use. A name that is not ours is refused, which is what stops a foreign page whose name suddenly means our address.
"""

import hashlib
import ipaddress
import secrets
import socket
from collections.abc import Iterable
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.errors import UsageError
from penstock.view.wire.answers import ErrorAnswer

PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; media-src 'self'; connect-src 'self'; "
    "object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
DATA_POLICY = "sandbox; default-src 'none'; frame-ancestors 'none'"
"""For answers that are data: even opened as a page of their own they can run nothing and ask nobody."""

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
_QUERY_BYTES_MAX = 32_768
ACCEPTED = "penstock.accepted"
"""What a scope may hold: told as soon as a request on its connection is accepted."""


@dataclass(frozen=True, kw_only=True)
class Access:
    """What a request needs to be answered. Token and session are different secrets; both end with the server."""

    #: Names by which we may be called, in lower case, without ports: a tunnel changes the port.
    hosts: frozenset[str]
    #: Bound to every address of the machine, so that any address (not any name) may be meant.
    any_address: bool = False
    #: The path under which a proxy shows us; accepted with and without, since proxies may strip it.
    prefix: str = ""
    #: Cookies are shared by all ports of a host, so that two servers need two names.
    cookie: str = "penstock"
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    session: str = field(default_factory=lambda: secrets.token_urlsafe(32))

    def knows(self, host: str) -> bool:
        """Whether a Host header names us."""
        name = _name_of(host)
        return name in self.hosts or (self.any_address and _is_address(name))


def access_for(bind: str, port: int, *, allow_hosts: Iterable[str] = (), prefix: str = "") -> Access:
    """Access for a server that listens on an address, and behind proxies that have other names."""
    every = bind in ("0.0.0.0", "::", "")  # noqa: S104 - asked for by the caller, and only compared
    names = {bind.lower(), *LOOPBACK_NAMES, *(host.lower() for host in allow_hosts)}
    if every or not is_loopback(bind):
        names.add(socket.gethostname().lower())
    return Access(
        hosts=frozenset(names), any_address=every, prefix=checked_prefix(prefix), cookie=f"penstock-{port}"
    )


def checked_prefix(prefix: str) -> str:
    """A proxy's path as we compare it: with a slash in front, without one at the end."""
    path = "/" + prefix.strip("/") if prefix.strip("/") else ""
    parts = path.split("/")[1:]
    if any(not part or part in (".", "..") for part in parts) or any(sign in path for sign in "?#%\\; "):
        raise UsageError(
            f"{prefix!r} is not a path of a proxy", hint="for example --prefix /user/ada/proxy/8090"
        )
    if not (path.isascii() and path.isprintable()):
        raise UsageError(f"the prefix {prefix!r} has characters that a URL escapes", hint="use plain letters")
    return path


class Guard:
    """The outermost layer: asks for method, name, origin and cookie, and puts the headers on every answer."""

    def __init__(self, app: ASGIApp, *, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, refuse, or pass on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = self._own_path(scope["path"])
        cookie = ""
        answer: ASGIApp | None = refusal(scope, path, self._access)
        if answer is None and path is not None:
            scope = {**scope, "path": path, "raw_path": path.encode("utf-8", "surrogateescape")}
            if ACCEPTED in scope:
                scope[ACCEPTED]()
            if path == "/" and _token_of(scope) is not None:
                cookie = f"{self._access.cookie}={self._access.session}; HttpOnly; SameSite=Strict"
        await (answer or self._app)(
            scope, receive, _with_headers(send, path or "", cookie, refused=answer is not None)
        )

    def _own_path(self, path: str) -> str | None:
        """The path without the proxy's; None for the prefix alone, which lacks its slash."""
        prefix = self._access.prefix
        if prefix and path == prefix:
            return None
        return path[len(prefix) :] if prefix and path.startswith(prefix + "/") else path


def refusal(scope: Scope, path: str | None, access: Access) -> Response | None:
    """Why a request is not answered, or None when it may pass. Says nothing that a stranger does not know."""
    headers = Headers(scope=scope)
    if scope["method"] not in ("GET", "HEAD"):
        answer = error_answer(405, f"{scope['method'][:20]} is refused: views only read")
        answer.headers["Allow"] = "GET, HEAD"
        return answer
    if not access.knows(headers.get("host", "")):
        hint = "a proxy's name has to be given: penstock web --allow-host NAME"
        return error_answer(403, "this server does not go by that name", hint)
    if path is None:
        query = scope.get("query_string", b"").decode("latin-1")
        return RedirectResponse(access.prefix.rpartition("/")[2] + "/" + (f"?{query}" if query else ""), 307)
    if path.startswith("/api/") and headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        return error_answer(403, "another site asks: data is only given to our own pages")
    if len(scope.get("query_string", b"")) > _QUERY_BYTES_MAX:
        return error_answer(414, "the question is too long")
    if path == "/" and (token := _token_of(scope)) is not None:
        return None if _same(token, access.token) else _no_token(path)
    return None if _same(_session_of(headers, access.cookie), access.session) else _no_token(path)


def error_answer(status: int, message: str, hint: str | None = None) -> JSONResponse:
    """A refusal or failure as pages read it."""
    answer: ErrorAnswer = {"error": {"message": message, "hint": hint}}
    return JSONResponse(answer, status)


def _no_token(path: str) -> Response:
    hint = "open the address that `penstock web` printed: it holds the token"
    if path.startswith("/api/"):
        return error_answer(401, "the token is missing or wrong", hint)
    return PlainTextResponse(f"The token is missing or wrong.\n\nHint: {hint}.\n", 401)


def _with_headers(send: Send, path: str, cookie: str, *, refused: bool) -> Send:
    async def send_safely(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers.update(HEADERS)
            headers["Content-Security-Policy"] = DATA_POLICY if path.startswith("/api/") else PAGE_POLICY
            fine = message["status"] in (200, 206, 304) and not cookie
            headers["Cache-Control"] = cache_rule(path) if fine else "no-store"
            if cookie:
                headers.append("Set-Cookie", cookie)
            if refused:
                headers["Connection"] = "close"
        await send(message)

    return send_safely


def cache_rule(path: str) -> str:
    """Bundle files carry a hash in their name and never change; data is never kept; the rest is asked for again."""
    if path.startswith("/api/"):
        return "no-store"
    return "private, max-age=31536000, immutable" if path.startswith("/assets/") else "no-cache"


def _token_of(scope: Scope) -> str | None:
    try:
        query = parse_qs(scope.get("query_string", b"").decode("latin-1"), max_num_fields=20)
    except ValueError:  # more fields than any page of ours has
        return None
    return query["token"][0] if "token" in query else None


def _session_of(headers: Headers, name: str) -> str:
    for line in headers.getlist("cookie"):
        try:
            jar = SimpleCookie(line)
        except CookieError:
            continue
        if name in jar:
            return jar[name].value
    return ""


def _same(token: str, secret: str) -> bool:
    """Compared as digests, so that neither the place of a difference nor the length shows in the time."""
    return secrets.compare_digest(
        hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest(),
        hashlib.sha256(secret.encode()).digest(),
    )


def _name_of(host: str) -> str:
    """The name in a Host header, without port and brackets, in lower case."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].rstrip(".").lower()


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(bind: str) -> bool:
    """Whether only programs of this machine can reach an address."""
    return bind == "localhost" or (_is_address(bind) and ipaddress.ip_address(bind).is_loopback)
