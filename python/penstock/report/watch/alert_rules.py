"""What alerts look at and when they fire, read from ``alerts.toml``; whatever it does not say is as in ``DEFAULTS``."""

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args

from penstock.errors import AlertsInvalid

FILE = "alerts.toml"
BYTES_MAX = 1 << 20
RULES_MAX = 200
Kind = Literal["threshold", "absence", "ratio", "slope"]
KINDS = get_args(Kind)
#: Of one rank each, and of the run.
RANK_SIGNALS = (
    "step",
    "step_s",
    "rss_bytes",
    "memory_peak_bytes",
    "memory_reserved_bytes",
    "not_finite",
    "lost_rows",
)
RUN_SIGNALS = ("mfu", "mfu_impossible", "goodput", "tokens_per_s")
SCALAR = "scalar."
#: How much better than its limit a value must be before an alert is over, unless ``clear`` says it.
_MARGIN = 0.1
_SECONDS_MAX = 30 * 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRule:
    """One alert."""

    name: str
    kind: Kind
    signal: str
    #: Bad beyond one of them: the value itself, its ratio to the run's median, or its slope for each hour.
    above: float | None = None
    below: float | None = None
    #: It fires when it was bad for so long, and is over when it was good for so long.
    for_s: float = 60.0
    clear_for_s: float = 30.0
    #: A value is good on the other side of this.
    clear: float | None = None
    #: Of absence: so many usual steps must have passed as well.
    usual_steps: float = 0.0
    #: Of a slope: over which time, and whether it is a share of the mean.
    window_s: float = 1800.0
    relative: bool = False
    #: Seconds that must have been watched before it may fire.
    after_s: float = 0.0
    enabled: bool = True

    @property
    def limit(self) -> float:
        """What it is compared with."""
        limit = self.above if self.above is not None else self.below
        return self.for_s if limit is None else limit

    def is_bad(self, value: float) -> bool:
        """Beyond its limit. What is not a number is beyond every limit."""
        if math.isnan(value):
            return True
        return value > self.above if self.above is not None else self.below is not None and value < self.below

    def is_good(self, value: float) -> bool:
        """Clearly inside of it."""
        if math.isnan(value):
            return False
        margin = _MARGIN * abs(self.limit)
        if self.above is not None:
            return value <= (self.above - margin if self.clear is None else self.clear)
        return self.below is not None and value >= (self.below + margin if self.clear is None else self.clear)


@dataclass(frozen=True, slots=True)
class AlertRules:
    """All alerts of a run, and who is told."""

    rules: tuple[AlertRule, ...]
    #: Started for each alert, without a shell; empty: nobody.
    command: tuple[str, ...] = ()
    timeout_s: float = 30.0
    #: Where they are from; empty: the defaults alone.
    file: str = ""


DEFAULTS = {
    rule.name: rule
    for rule in (
        AlertRule(name="stall", kind="absence", signal="step", for_s=60, usual_steps=10, clear_for_s=0),
        AlertRule(name="mfu_drop", kind="ratio", signal="mfu", below=0.7, clear=0.8, for_s=120, after_s=300),
        AlertRule(
            name="goodput", kind="threshold", signal="goodput", below=0.5, clear=0.55, for_s=300, after_s=1800
        ),
        AlertRule(
            name="memory_growth",
            kind="slope",
            signal="rss_bytes",
            above=0.1,
            for_s=600,
            after_s=1800,
            relative=True,
        ),
        AlertRule(name="nan", kind="threshold", signal="not_finite", above=0, for_s=0, clear_for_s=60),
        AlertRule(name="impossible", kind="threshold", signal="mfu_impossible", above=0, for_s=0),
    )
}
_FIELDS = {one.name: one for one in fields(AlertRule) if one.name != "name"}
_SECONDS = {"for_s", "clear_for_s", "window_s", "after_s"}


def rules_of(run: Path, beside: Path | None = None) -> AlertRules:
    """Those of the file in the run's directory, else of the one beside the job; the defaults where there is neither."""
    for folder in (run, beside):
        if folder is not None and (folder / FILE).is_file():
            return read_rules(folder / FILE)
    return AlertRules(tuple(DEFAULTS.values()))


def read_rules(path: Path) -> AlertRules:
    """Rules of a file; ``AlertsInvalid`` says which key is wrong, and what was expected."""
    try:
        with path.open("rb") as file:
            text = file.read(BYTES_MAX + 1)
        if len(text) > BYTES_MAX:
            raise AlertsInvalid(file=str(path), key="", reason=f"it has more than {BYTES_MAX} bytes")
        document = tomllib.loads(text.decode())
    except OSError as problem:
        raise AlertsInvalid(file=str(path), key="", reason=problem.strerror or str(problem)) from problem
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise AlertsInvalid(file=str(path), key="", reason=f"must be TOML: {problem}") from problem
    return _Reader(str(path)).rules(document)


@dataclass(frozen=True, slots=True)
class _Reader:
    """Knows the file that errors are about."""

    file: str
    known: frozenset[str] = field(default=frozenset({"notify", "alerts"}))

    def rules(self, document: Mapping[str, Any]) -> AlertRules:
        for key in document:
            if key not in self.known:
                self._refuse(key, f"unknown; there are {', '.join(sorted(self.known))}")
        notify, alerts = (self._table(document, key) for key in ("notify", "alerts"))
        if len(alerts) > RULES_MAX:
            self._refuse("alerts", f"at most {RULES_MAX} alerts, got {len(alerts)}")
        rules = dict(DEFAULTS)
        for name in alerts:
            rules[name] = self._rule(name, self._table(alerts, name, "alerts."))
        command, timeout_s = self._notify(notify)
        enabled = tuple(rule for rule in rules.values() if rule.enabled)
        return AlertRules(enabled, command, timeout_s, self.file)

    def _notify(self, notify: Mapping[str, Any]) -> tuple[tuple[str, ...], float]:
        for key in notify:
            if key not in ("command", "timeout_s"):
                self._refuse(f"notify.{key}", "unknown; there are command, timeout_s")
        command = notify.get("command", [])
        is_argv = isinstance(command, list) and all(
            isinstance(word, str) and "\0" not in word for word in command
        )
        if not is_argv or ("command" in notify and not (command and command[0])):
            self._refuse(
                "notify.command", f"must be a list of words, the program first, got {command!r:.100}"
            )
        timeout_s = self._number("notify.timeout_s", notify.get("timeout_s", 30.0))
        if not 0 < timeout_s <= 600:
            self._refuse("notify.timeout_s", f"must be above 0 and at most 600 seconds, got {timeout_s}")
        return tuple(command), timeout_s

    def _rule(self, name: str, table: Mapping[str, Any]) -> AlertRule:
        values: dict[str, Any] = {}
        for key, value in table.items():
            place = f"alerts.{name}.{key}"
            if key not in _FIELDS:
                self._refuse(place, f"unknown; there are {', '.join(_FIELDS)}")
            values[key] = self._value(place, key, value)
        if "above" in values and "below" in values:
            self._refuse(f"alerts.{name}", "either above or below, not both")
        default = DEFAULTS.get(name)
        if default is not None:
            other = {"above": "below", "below": "above"}
            changed = {other[key]: None for key in other if key in values}
            if changed and "clear" not in values:
                changed["clear"] = None
            rule = replace(default, **{**changed, **values})
        else:
            for key in ("kind", "signal"):
                if key not in values:
                    self._refuse(
                        f"alerts.{name}.{key}", "missing; an alert of your own needs kind and signal"
                    )
            rule = AlertRule(name=name, **values)
        return self._checked(rule)

    def _checked(self, rule: AlertRule) -> AlertRule:
        place = f"alerts.{rule.name}"
        if not rule.name or len(rule.name) > 100:
            self._refuse(place, "a name has 1 to 100 characters")
        has_limit = rule.above is not None or rule.below is not None
        if rule.kind == "absence" and has_limit:
            self._refuse(place, "absence has no above or below: for_s says how long")
        if rule.kind != "absence" and not has_limit:
            self._refuse(place, f"{rule.kind} needs above or below")
        if rule.kind != "absence" and rule.signal == "step":
            self._refuse(f"{place}.signal", "step goes with kind absence; step_s is how long steps take")
        if rule.kind == "absence" and rule.signal != "step" and not rule.signal.startswith(SCALAR):
            self._refuse(f"{place}.signal", "absence is of step or of scalar.NAME")
        if rule.clear is not None and rule.is_bad(rule.clear):
            self._refuse(f"{place}.clear", f"must not be beyond the limit {rule.limit}, got {rule.clear}")
        return rule

    def _value(self, place: str, key: str, value: Any) -> Any:
        if key == "kind":
            if value not in KINDS:
                self._refuse(place, f"must be one of {', '.join(KINDS)}, got {value!r:.100}")
            return value
        if key == "signal":
            known = (*RANK_SIGNALS, *RUN_SIGNALS)
            is_scalar = isinstance(value, str) and value.startswith(SCALAR) and len(value) > len(SCALAR)
            if value not in known and not is_scalar:
                self._refuse(place, f"must be one of {', '.join(known)} or scalar.NAME, got {value!r:.100}")
            return value
        if key in ("enabled", "relative"):
            if not isinstance(value, bool):
                self._refuse(place, f"must be true or false, got {value!r:.100}")
            return value
        number = self._number(place, value)
        if key in _SECONDS and not 0 <= number <= _SECONDS_MAX:
            self._refuse(place, f"must be 0 to {_SECONDS_MAX:.0f} seconds, got {number}")
        if key == "usual_steps" and number < 0:
            self._refuse(place, f"must not be negative, got {number}")
        return number

    def _number(self, place: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            self._refuse(place, f"must be a finite number, got {value!r:.100}")
        return float(value)

    def _table(self, document: Mapping[str, Any], key: str, before: str = "") -> Mapping[str, Any]:
        table: Mapping[str, Any] = document.get(key, {})
        if not isinstance(table, dict):
            self._refuse(before + key, f"must be a table, got {table!r:.100}")
        return table

    def _refuse(self, key: str, reason: str) -> None:
        raise AlertsInvalid(file=self.file, key=key, reason=reason)
