"""Errors of the data service: servers that make batches for others, and their clients."""

from collections.abc import Mapping

from penstock.errors.root import PenstockError


class ServiceError(PenstockError):
    """Something about a data service."""

    exit_code = 1


class ServiceUnavailable(ServiceError):
    """No server gave an answer within the limit."""

    hint = "is `penstock data serve` running there, and reachable from here?"

    def __init__(self, *, servers: Mapping[str, str], tries: int, waited_s: float) -> None:
        #: Each server and what it said last.
        self.servers = dict(servers)
        self.tries, self.waited_s = tries, waited_s
        said = "; ".join(f"{server}: {words}" for server, words in self.servers.items())
        super().__init__(f"no server answered after {tries} tries in {waited_s:.1f} s: {said}")


class ServiceDenied(ServiceError):
    """A server wants a token, and this is not the one."""

    hint = (
        "give the server's token with penstock.Service(…, token=…) or $PENSTOCK_SERVICE_TOKEN; a server of your own on this machine is found "
        "by itself when both have the same $PENSTOCK_HOME"
    )
    exit_code = 2

    def __init__(self, *, reason: str) -> None:
        self.reason = reason
        super().__init__(f"the data service does not let us: {reason}")


class ServiceMismatch(ServiceError):
    """A server serves another plan than the one that was asked for."""

    hint = "serve the same recipe, versions and skips on all servers"

    def __init__(self, *, wanted: str, served: str) -> None:
        self.wanted, self.served = wanted, served
        super().__init__(f"the server serves plan {served}, but plan {wanted} was asked for")


class ServiceIncompatible(ServiceError):
    """Client and server are of versions that do not fit."""

    hint = "run the same version of Penstock at both ends"

    def __init__(self, *, reason: str) -> None:
        self.reason = reason
        super().__init__(f"client and server do not fit: {reason}")


class ServiceBusy(ServiceError):
    """A server has too much to do; its clients ask again."""

    def __init__(self, *, reason: str) -> None:
        self.reason = reason
        super().__init__(f"the server is busy: {reason}")


class ServiceRequestInvalid(ServiceError):
    """A request makes no sense."""

    exit_code = 2

    def __init__(self, *, reason: str) -> None:
        self.reason = reason
        super().__init__(f"the request makes no sense: {reason}")


class ServiceUnusable(ServiceError):
    """A server or a client cannot be set up with what was given."""

    exit_code = 2

    def __init__(self, *, what: str, reason: str, hint: str | None = None) -> None:
        self.what, self.reason = what, reason
        if hint is not None:
            self.hint = hint
        super().__init__(f"{what}: {reason}")
