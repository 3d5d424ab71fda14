"""Where a run is exported to, and in which form: ``tensorboard:DIR``, ``parquet:DIR``, ``perfetto:FILE``, ``otlp:URL``."""

from dataclasses import dataclass
from typing import Literal, cast, get_args
from urllib.parse import urlsplit

from penstock.errors import UsageError

Kind = Literal["tensorboard", "parquet", "perfetto", "otlp"]
_KINDS = get_args(Kind)
_HINT = "tensorboard:DIR, parquet:DIR, perfetto:FILE or otlp:URL"


@dataclass(frozen=True, slots=True)
class ExportTarget:
    """A form and a place."""

    kind: Kind
    place: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.place}"


def target_of(text: str) -> ExportTarget:
    """Read what was asked for."""
    kind, colon, place = text.partition(":")
    if kind not in _KINDS or not colon or not place:
        raise UsageError(f"--to must say a form and a place, got {text!r}", hint=_HINT)
    if "\0" in place:
        raise UsageError(f"--to must name a place without NUL, got {text!r}", hint=_HINT)
    if kind == "otlp":
        _check_url(place)
    return ExportTarget(cast(Kind, kind), place)


def _check_url(url: str) -> None:
    example = "otlp:http://localhost:4318"
    try:
        parts = urlsplit(url)
        port_is_sound = parts.port != 0
    except ValueError as reason:
        raise UsageError(f"--to otlp: must have a URL, got {url!r}: {reason}", hint=example) from reason
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_is_sound:
        raise UsageError(f"--to otlp: must have an http or https URL, got {url!r}", hint=example)
    if parts.username is not None or parts.password is not None:
        raise UsageError(
            "--to otlp: must not have a name or a password in its URL, which would stand in lists of processes",
            hint="set OTEL_EXPORTER_OTLP_HEADERS, as in authorization=Basic%20…",
        )
