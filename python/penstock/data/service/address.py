"""Where servers are, and how long they are waited for: ``penstock://host:port[,host:port]``, or ``penstocks://`` over TLS."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.data.service.credential import is_loopback, kept_path
from penstock.errors import ServiceUnusable

if TYPE_CHECKING:
    from penstock._rust.service import ClientPlan

#: What every client shows where it is not given a token; never in an address, which ends up in logs.
TOKEN_VARIABLE = "PENSTOCK_SERVICE_TOKEN"  # noqa: S105 - a name, no secret
_SCHEMES = {"penstock": False, "penstocks": True}
_SERVERS_MAX = 64


@dataclass(frozen=True, kw_only=True)
class Service:
    """The servers of a recipe, for ``penstock.open``."""

    address: str
    #: What the servers want to see; unless given, ``$PENSTOCK_SERVICE_TOKEN``, or what a server of ours keeps on this machine.
    token: str | None = field(default=None, repr=False)
    #: The authority that has signed the servers' certificates; those that the system trusts unless given.
    authorities: Path | str | None = None
    #: A server that says nothing for so long is taken for dead, and another one is asked.
    silence_max_s: float = 5.0
    #: After so long without a batch it is an error.
    limit_s: float = 120.0
    connect_timeout_s: float = 3.0

    def __post_init__(self) -> None:
        servers_of(self.address)
        for name in ("silence_max_s", "limit_s", "connect_timeout_s"):
            if not 0 < getattr(self, name) < 1e6:
                raise ServiceUnusable(
                    what=name, reason=f"must be between 0 and 1,000,000 seconds, got {getattr(self, name)}"
                )

    def options(self, *, first: int = 0) -> "ClientPlan":
        """As the Rust side takes it; ``first`` says which server is asked first."""
        tls, servers = servers_of(self.address)
        token = self.token if self.token is not None else os.environ.get(TOKEN_VARIABLE)
        if token is not None and not (token.isascii() and token.isprintable() and token):
            raise ServiceUnusable(what="token", reason="it has characters that no token has")
        return {
            "servers": servers,
            "credentials": [_credential(server, token) for server in servers],
            "tls": tls,
            "authorities": None if self.authorities is None else Path(self.authorities),
            "first": first,
            "connect_timeout_s": self.connect_timeout_s,
            "silence_max_s": self.silence_max_s,
            "limit_s": self.limit_s,
        }


def _credential(server: tuple[str, int], token: str | None) -> str | Path | None:
    """What a server is shown: a token, or the file where a server of our own user on this machine keeps one."""
    host, port = server
    if token is not None:
        return token
    return kept_path(port) if is_loopback(host) else None


def servers_of(address: str) -> tuple[bool, list[tuple[str, int]]]:
    """Whether connections are secured, and host and port of each server."""
    scheme, colon, rest = address.partition("://")
    if not colon or scheme not in _SCHEMES:
        raise ServiceUnusable(
            what="address", reason="it does not begin with penstock:// or penstocks://", hint=_FORM
        )
    if "@" in rest:
        # Not shown: what stands there may be a secret.
        raise ServiceUnusable(what="address", reason="a token does not belong into an address", hint=_FORM)
    servers = [host_port(server) for server in rest.rstrip("/").split(",")]
    if len(servers) > _SERVERS_MAX or len(set(servers)) < len(servers):
        raise ServiceUnusable(
            what="address", reason=f"up to {_SERVERS_MAX} servers, each once, can be named", hint=_FORM
        )
    return _SCHEMES[scheme], servers


def host_port(text: str) -> tuple[str, int]:
    """Host and port from ``host:port`` or ``[::1]:port``."""
    host, colon, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not (colon and bare and port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise ServiceUnusable(what="address", reason=f"{text!r:.80} is not of the form host:port", hint=_FORM)
    return bare, int(port)


_FORM = "penstock://host:port, or several as penstock://host:port,host:port"
