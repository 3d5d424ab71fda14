"""One request to a receiver of OpenTelemetry metrics, by HTTP. Tried again within limits; nothing is followed to elsewhere."""

import gzip
import http.client
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from penstock.errors import ReceiverFailed
from penstock.report.exports import protobuf_wire as wire

#: Path of metrics, unless the URL has one.
PATH = "/v1/metrics"
#: Tries of one request, seconds that one may take, and seconds between two of them: the first, and at most.
TRIES_MAX, TIMEOUT_S, PAUSE_S, PAUSE_MAX_S = 6, 30.0, 0.5, 30.0
#: What says: not now.
_PASSING = frozenset({429, 502, 503, 504})
_ANSWER_MAX = 1 << 20
_WORDS_MAX = 200


@dataclass
class Receiver:
    """Where metrics go to."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    pause: Callable[[float], None] = time.sleep

    def send(self, body: bytes) -> None:
        """Hand a request over; ``ReceiverFailed`` when it was not taken as a whole."""
        reason = ""
        for attempt in range(TRIES_MAX):
            try:
                status, answer, wait_s = self._ask(body)
            except (OSError, http.client.HTTPException) as problem:
                reason, wait_s = f"{type(problem).__name__}: {problem}", None
            else:
                if 200 <= status < 300:
                    self._check(answer, attempt + 1)
                    return
                words = " ".join(answer[:_WORDS_MAX].decode("utf-8", "replace").split())
                reason = f"HTTP {status} {words}".strip()
                if status not in _PASSING:
                    raise ReceiverFailed(url=self.url, reason=reason, tries=attempt + 1)
            if attempt + 1 < TRIES_MAX:
                pause_s = PAUSE_S * 2**attempt * random.uniform(0.75, 1.25)
                self.pause(min(PAUSE_MAX_S, pause_s if wait_s is None else wait_s))
        raise ReceiverFailed(url=self.url, reason=reason, tries=TRIES_MAX)

    def _ask(self, body: bytes) -> tuple[int, bytes, float | None]:
        parts = urlsplit(self.url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(parts.hostname or "", parts.port, timeout=TIMEOUT_S)
        path = (parts.path if parts.path.strip("/") else PATH) + (f"?{parts.query}" if parts.query else "")
        headers = {
            "Content-Type": "application/x-protobuf",
            "Content-Encoding": "gzip",
            "User-Agent": "penstock",
            **self.headers,
        }
        try:
            connection.request("POST", path, gzip.compress(body, 5, mtime=0), headers)
            response = connection.getresponse()
            return (
                response.status,
                response.read(_ANSWER_MAX),
                _seconds(response.headers.get("Retry-After")),
            )
        finally:
            connection.close()

    def _check(self, answer: bytes, tries: int) -> None:
        """A receiver may take a part and say so; then the rest is lost to it, which is an error."""
        try:
            partial = next((value for number, value in wire.fields(answer) if number == 1), b"")
            facts = dict(wire.fields(partial)) if isinstance(partial, bytes) else {}
        except ValueError:
            return
        rejected, words = facts.get(1, 0), facts.get(2, b"")
        if isinstance(rejected, int) and rejected > 0:
            said = words.decode("utf-8", "replace") if isinstance(words, bytes) else ""
            reason = f"it rejected {rejected} points: {said[:_WORDS_MAX]}"
            raise ReceiverFailed(url=self.url, reason=reason, tries=tries)


def _seconds(text: str | None) -> float | None:
    """What a receiver asks for, in seconds; dates are not asked for by any that we know."""
    return float(text) if text is not None and text.strip().isdigit() else None
