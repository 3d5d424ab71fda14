"""How often what fails: a TOML file with a table for each cause.

A rate is given per 1,000 GPU-days or per 1,000 host-days, or as events that were counted on so many GPUs or hosts in so many days.
"""

import json
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from penstock.errors import ProfileInvalid
from penstock.process.job.units import second_count

#: What a cause may take: the process of a rank, a host, a rack, or nothing by force, where people stop the job.
LOSES = ("rank", "host", "rack", "job")
_RATES = ("per_1000_gpu_days", "per_1000_host_days", "events")
_FIELDS = ("name", *_RATES, "loses", "repair", "detect")
_TOP = ("name", "days", "gpus", "hosts", "cause")
_BUILT_IN = "penstock.process.simulation"


@dataclass(frozen=True, kw_only=True)
class Cause:
    """One cause of interruptions, and how often it comes."""

    name: str
    #: Events in 1,000 GPU-days or in 1,000 host-days; one of them is set.
    per_1000_gpu_days: float | None = None
    per_1000_host_days: float | None = None
    loses: str = "rank"
    #: Until a lost host is back; a rank with a repair time takes its host with it.
    repair_s: float = 0.0
    #: From the fault to the end of the process, where it differs from that of other causes.
    detect_s: float | None = None
    #: How many events the rate rests on, where they were counted.
    events: float | None = None

    def per_day(self, *, hosts: int, gpus_per_host: int) -> float:
        """Events that are expected in a day."""
        if self.per_1000_gpu_days is not None:
            return self.per_1000_gpu_days / 1000 * hosts * gpus_per_host
        return (self.per_1000_host_days or 0.0) / 1000 * hosts


@dataclass(frozen=True, kw_only=True)
class FaultProfile:
    """All causes."""

    name: str
    causes: tuple[Cause, ...]
    #: What it rests on, in words.
    origin: str = ""

    def to_toml(self) -> str:
        """As a file that people can change."""
        lines = [f"# {self.origin}"] if self.origin else []
        lines.append(f"name = {json.dumps(self.name)}")
        for cause in self.causes:
            lines += ["", "[[cause]]", f"name = {json.dumps(cause.name)}"]
            for rate in _RATES[:2]:
                value = getattr(cause, rate)
                if value is not None:
                    lines.append(f"{rate} = {value:.6g}")
            lines.append(f"loses = {json.dumps(cause.loses)}")
            if cause.repair_s:
                lines.append(f'repair = "{cause.repair_s:g}s"')
            if cause.detect_s is not None:
                lines.append(f'detect = "{cause.detect_s:g}s"')
        return "\n".join(lines) + "\n"


def built_in_profiles() -> list[str]:
    """Names of those that come with Penstock."""
    files = resources.files(_BUILT_IN).iterdir()
    return sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml"))


def read_profile(name: str) -> FaultProfile:
    """A built-in profile, or that of a file."""
    known = built_in_profiles()
    if name in known:
        text = (resources.files(_BUILT_IN) / f"{name}.toml").read_bytes()
        return parse_profile(text, place=name)
    try:
        content = Path(name).read_bytes()
    except OSError as problem:
        reason = f"cannot be read: {problem.strerror or problem}"
        hint = f"a TOML file, or one of {', '.join(known)}; `penstock simulate --show-profile llama3` prints one to begin with"
        raise ProfileInvalid(place=name, reason=reason, hint=hint) from problem
    return parse_profile(content, place=name)


def parse_profile(content: bytes, *, place: str) -> FaultProfile:
    """The profile that a text describes."""
    try:
        document = tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise ProfileInvalid(place=place, reason=f"is not TOML: {problem}") from problem
    _known_keys(place, document, _TOP, "")
    causes = document.get("cause")
    if not isinstance(causes, list) or not causes or not all(isinstance(one, dict) for one in causes):
        raise ProfileInvalid(place=place, reason="has no cause", hint="each cause is a table [[cause]]")
    all_causes = tuple(_cause(place, one, document) for one in causes)
    names = [cause.name for cause in all_causes]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ProfileInvalid(place=place, cause=twice[0], field="name", reason="stands there twice")
    return FaultProfile(name=str(document.get("name", Path(place).stem)), causes=all_causes)


def _cause(place: str, table: Mapping[str, Any], document: Mapping[str, Any]) -> Cause:
    name = table.get("name")
    if not isinstance(name, str) or not name:
        raise ProfileInvalid(place=place, field="name", reason="is missing: every cause has a name")
    _known_keys(place, table, _FIELDS, name)
    rates = [rate for rate in _RATES if rate in table]
    if len(rates) != 1:
        reason = f"needs one rate, has {len(rates)}"
        raise ProfileInvalid(place=place, cause=name, reason=reason, hint=f"one of {', '.join(_RATES)}")
    value = _number(place, name, rates[0], table[rates[0]])
    loses = table.get("loses", "rank")
    if loses not in LOSES:
        reason = f"must be one of {', '.join(LOSES)}, got {loses!r}"
        raise ProfileInvalid(place=place, cause=name, field="loses", reason=reason)
    repair_s = _time(place, name, "repair", table["repair"]) if "repair" in table else 0.0
    if loses == "job" and repair_s:
        reason = "a stop that is planned takes no host, so nothing is repaired"
        raise ProfileInvalid(place=place, cause=name, field="repair", reason=reason)
    per_1000 = dict.fromkeys(_RATES[:2])
    if rates[0] == "events":
        unit, rate = _counted(place, name, value, document)
        per_1000[unit] = rate
    else:
        per_1000[rates[0]] = value
    return Cause(
        name=name,
        per_1000_gpu_days=per_1000["per_1000_gpu_days"],
        per_1000_host_days=per_1000["per_1000_host_days"],
        loses=loses,
        repair_s=repair_s,
        detect_s=_time(place, name, "detect", table["detect"]) if "detect" in table else None,
        events=value if rates[0] == "events" else None,
    )


def _counted(place: str, cause: str, events: float, document: Mapping[str, Any]) -> tuple[str, float]:
    """The rate that events mean which were counted."""
    units = [unit for unit in ("gpus", "hosts") if unit in document]
    if "days" not in document or len(units) != 1:
        hint = "days = 54 and gpus = 16384 stand above the first cause"
        reason = "needs days and gpus, or days and hosts, on which events were counted"
        raise ProfileInvalid(place=place, cause=cause, field="events", reason=reason, hint=hint)
    days, number = (_number(place, "", key, document[key]) for key in ("days", units[0]))
    if not days or not number:
        raise ProfileInvalid(
            place=place, field="days" if not days else units[0], reason="must be more than 0, got 0"
        )
    return (
        "per_1000_gpu_days" if units[0] == "gpus" else "per_1000_host_days"
    ), events / days / number * 1000


def _number(place: str, cause: str, field: str, value: Any) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not is_number or value < 0:
        raise ProfileInvalid(
            place=place, cause=cause, field=field, reason=f"must be a number, 0 or more, got {value!r}"
        )
    return float(value)


def _time(place: str, cause: str, field: str, value: Any) -> float:
    seconds = second_count(str(value)) if isinstance(value, str | int | float) else None
    if seconds is None:
        reason = f'must be a time, as in "90s", "10m" or "24h", got {value!r}'
        raise ProfileInvalid(place=place, cause=cause, field=field, reason=reason)
    return seconds


def _known_keys(place: str, table: Mapping[str, Any], known: tuple[str, ...], cause: str) -> None:
    unknown = sorted(set(table) - set(known))
    if unknown:
        hint = f"known are {', '.join(known)}"
        raise ProfileInvalid(place=place, cause=cause, field=unknown[0], reason="is not known", hint=hint)
