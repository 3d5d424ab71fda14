"""The token that a server keeps for its own user, so that nobody else on the machine can read its batches.

Other people, and pages in a browser, share the loopback of a machine: being there proves nothing. A server therefore makes
up a token for each life and writes it to ``$PENSTOCK_HOME/services/<host>/<port>``, which only its user may read. A client of
the same user finds it there by the port, for every request anew, because a server that starts again has another one.
"""

import contextlib
import ipaddress
import os
import secrets
import socket
import tempfile
from pathlib import Path

from penstock.errors import ServiceUnusable
from penstock.store.home import penstock_home


class KeptToken:
    """A token in a file of its user, from when the port is known until the server ends."""

    def __init__(self) -> None:
        self.text = secrets.token_urlsafe(32)
        self.path: Path | None = None

    def keep(self, port: int) -> None:
        """Write it where clients of the same user look; what an earlier server left there is replaced."""
        path = kept_path(port)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Files of this kind are made for their owner's eyes only.
            handle, staged = tempfile.mkstemp(dir=path.parent, prefix=f".{port}-")
            try:
                with os.fdopen(handle, "w") as file:
                    file.write(self.text + "\n")
                Path(staged).replace(path)
            except BaseException:
                Path(staged).unlink(missing_ok=True)
                raise
        except OSError as problem:
            hint = "set $PENSTOCK_HOME to a folder of yours, give a token with --token-file, or let everybody in with --open"
            raise ServiceUnusable(
                what=str(path), reason=f"the token cannot be kept there: {problem.strerror}", hint=hint
            ) from problem
        self.path = path

    def forget(self) -> None:
        """Remove the file, unless a later server on the same port has put its own there."""
        if self.path is None:
            return
        with contextlib.suppress(OSError):
            if self.path.read_text().strip() == self.text:
                self.path.unlink()
        self.path = None


def kept_path(port: int) -> Path:
    """Where the token of this user's server on a port of this host is kept; the home may be shared by hosts."""
    return penstock_home() / "services" / socket.gethostname() / str(port)


def is_loopback(host: str) -> bool:
    """Whether a name or an address means this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
