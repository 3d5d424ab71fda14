"""Job files: several roles in TOML, read into the same description that a command line makes.

Every key has one reader in a table; what is not in the table is refused, with the line and what was probably meant. Values of the caller's
environment get into a job only where a file says so, and secrets never: the agent inherits the environment, so they need not be written.
"""

import difflib
import re
import shlex
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from penstock.errors.process import JobFileInvalid, JobInvalid
from penstock.errors.root import UsageError
from penstock.events.redaction import is_secret_name
from penstock.process.job import command as commands
from penstock.process.job import units
from penstock.process.job.spec import Budget, Hang, JobSpec, Policy, Role, Slots
from penstock.process.job.toml_lines import Places

#: A value that stands for "as whoever starts the job has it"; it is passed on and not written down.
INHERITED = "$env"
FILE_BYTES_MAX = 1 << 20
#: Fields of the description that are called otherwise in a file.
_CALLED = {
    "backoff_s": "backoff",
    "backoff_max_s": "backoff_max",
    "stop_grace_s": "grace",
    "save_grace_s": "grace_save",
    "failure_grace_s": "failure_grace",
    "same_failure_max": "same_failure",
    "hang.least_s": "hang.least",
    "hang.silence_s": "hang.silence",
    "hang.stopped_s": "hang.stopped",
    "slots.memory_bytes": "slots.memory",
}
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")

Change = tuple[tuple[str, ...], Any]


def change(text: str) -> Change:
    """What ``--set roles.trainer.ranks=4`` says: a path and a value, which is TOML if it can be, else text."""
    path, equals, value = text.partition("=")
    keys = tuple(path.strip().split("."))
    if not equals or not all(keys):
        raise UsageError(f"--set must be PATH=VALUE, got {text}", hint="as in --set roles.trainer.ranks=4")
    try:
        return keys, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return keys, value


def load(
    path: Path, changes: Sequence[Change], *, environment: Mapping[str, str], options: Mapping[str, Any]
) -> JobSpec:
    """The job of a file. ``options`` are fields of the description that the command line sets for the whole job."""
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise JobFileInvalid(path=path, place="", reason=f"is larger than {FILE_BYTES_MAX} bytes")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        raise JobFileInvalid(path=path, place="", reason=f"cannot be read: {reason}") from problem
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise _not_toml(path, problem) from problem
    for keys, value in changes:
        _set(document, keys, value)
    return _File(path, Places(text), environment).job(document, options)


def _not_toml(path: Path, problem: Exception) -> JobFileInvalid:
    words, _, where = str(problem).partition(" (at ")
    line = re.search(r"line (\d+)", where)
    return JobFileInvalid(
        path=path,
        place="",
        line=int(line[1]) if line else None,
        reason=f"is not TOML: {words[:1].lower()}{words[1:]}",
    )


def _set(document: dict[str, Any], keys: tuple[str, ...], value: Any) -> None:
    table = document
    for key in keys[:-1]:
        inner = table.setdefault(key, {})
        if not isinstance(inner, dict):
            raise UsageError(f"--set {'.'.join(keys)}: {key} is not a table")
        table = inner
    table[keys[-1]] = value


@dataclass(frozen=True)
class _File:
    """A file that is being read."""

    path: Path
    places: Places
    environment: Mapping[str, str]

    def wrong(self, place: str, reason: str, hint: str | None = None) -> JobFileInvalid:
        """An error with its place."""
        line = self.places.line(place)
        return JobFileInvalid(path=self.path, place=place, line=line, reason=reason, hint=hint)

    def job(self, document: dict[str, Any], options: Mapping[str, Any]) -> JobSpec:
        self.known("", document, ("job", "roles"))
        job = self.table("job", document.get("job", {}))
        roles = self.table("roles", document.get("roles", {}))
        fields = self.fields("job", job, _JOB)
        if not roles:
            raise self.wrong("roles", "there is none", "add a table like [roles.trainer] with a command")
        directory = fields.pop("directory", Path.cwd())
        try:
            read = [
                self.role(name, self.table(f"roles.{name}", table), directory)
                for name, table in roles.items()
            ]
            # What the command line says counts last.
            return JobSpec(**{**fields, **options, "roles": read, "directory": directory})
        except JobInvalid as problem:
            called = _CALLED.get(problem.field, problem.field)
            owner = f"roles.{problem.role}" if problem.role is not None else "job"
            place = "roles" if owner == "job" and called == "roles" else f"{owner}.{called}"
            raise self.wrong(place, problem.reason, problem.hint) from problem

    def role(self, name: str, table: dict[str, Any], directory: Path) -> Role:
        place = f"roles.{name}"
        fields = self.fields(place, table, _ROLE)
        if "command" not in fields:
            raise self.wrong(place, "there is no command to run", 'add command = ["python", "train.py"]')
        try:
            command = commands.executable(
                fields.pop("command"),
                python=self.environment.get("PYTHON_EXEC"),
                directory=fields.get("directory", directory),
            )
        except UsageError as problem:
            raise self.wrong(f"{place}.command", str(problem), problem.hint) from problem
        restarts = fields.pop("restarts", 0)
        budget = replace(Budget.of(restarts), **fields.pop("budget", {}))
        policy = Policy(budget=budget, **{key: fields.pop(key) for key in _POLICY if key in fields})
        zygote, preload = fields.pop("zygote", "auto"), fields.pop("preload", [])
        role = Role(name=name, command=command, policy=policy, **fields)
        try:
            return commands.warmed(role, zygote, preload, directory=directory)
        except UsageError as problem:
            raise self.wrong(f"{place}.zygote", str(problem), problem.hint) from problem

    def fields(self, place: str, table: dict[str, Any], readers: "Mapping[str, _Reader]") -> dict[str, Any]:
        self.known(place, table, tuple(readers))
        values: dict[str, Any] = {}
        for key, value in table.items():
            field, read = readers[key]
            values[field] = read(self, f"{place}.{key}", value)
        return values

    def known(self, place: str, table: Mapping[str, Any], keys: Sequence[str]) -> None:
        for key in table:
            if key not in keys:
                close = difflib.get_close_matches(key, keys, n=1)
                hint = f"did you mean {close[0]}?" if close else f"known keys are {', '.join(keys)}"
                raise self.wrong(f"{place}.{key}" if place else key, "there is no such key", hint)

    def table(self, place: str, value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self.wrong(place, f"must be a table, got {_said(value)}")
        return value

    def text(self, place: str, value: Any) -> str:
        if not isinstance(value, str):
            raise self.wrong(place, f"must be text, got {_said(value)}")
        return value

    def truth(self, place: str, value: Any) -> bool:
        if not isinstance(value, bool):
            raise self.wrong(place, f"must be true or false, got {_said(value)}")
        return value

    def count(self, place: str, value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.wrong(place, f"must be a whole number, got {_said(value)}")
        return value

    def ranks(self, place: str, value: Any) -> int:
        if isinstance(value, str):
            try:
                return commands.rank_count(value, visible=self.environment.get("CUDA_VISIBLE_DEVICES"))
            except UsageError as problem:
                raise self.wrong(place, str(problem), problem.hint) from problem
        return self.count(place, value)

    def seconds(self, place: str, value: Any) -> float:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        seconds = units.second_count(value) if isinstance(value, str) else None
        if seconds is None:
            raise self.wrong(place, f"must be a time, got {_said(value)}", 'as in 10, 1.5 or "5m"')
        return seconds

    def bytes(self, place: str, value: Any) -> int:
        if isinstance(value, str) and (size := units.byte_count(value)) is not None:
            return size
        if isinstance(value, str):
            raise self.wrong(place, f"must be a size, got {_said(value)}", 'as in 1048576 or "8G"')
        return self.count(place, value)

    def words(self, place: str, value: Any) -> list[str]:
        """A list of words, or a line that is split as a shell would, without expanding anything."""
        if isinstance(value, str):
            try:
                return shlex.split(value)
            except ValueError as problem:
                raise self.wrong(place, f"cannot be split into words: {problem}") from problem
        if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
            raise self.wrong(place, f"must be a list of words, got {_said(value)}")
        return value

    def names(self, place: str, value: Any) -> list[str]:
        return [value] if isinstance(value, str) else self.words(place, value)

    def place(self, place: str, value: Any) -> Path:
        """A directory; from the file's own on, if it is relative."""
        directory = (self.path.parent / self.expanded(place, self.text(place, value))).absolute()
        if not directory.is_dir():
            raise self.wrong(place, f"there is no directory {directory}")
        return directory

    def variables(self, place: str, value: Any) -> dict[str, str]:
        variables: dict[str, str] = {}
        for name, text in self.table(place, value).items():
            here = f"{place}.{name}"
            if text == INHERITED:
                if name not in self.environment:
                    raise self.wrong(here, "is not set where the job is started", f"`export {name}=…` before")
                continue
            if is_secret_name(name):
                raise self.wrong(
                    here, "a secret does not belong into a file", f'{name} = "{INHERITED}" passes it on'
                )
            if isinstance(text, bool):
                text = "1" if text else "0"
            if not isinstance(text, str | int | float):
                raise self.wrong(here, f"must be text or a number, got {_said(text)}")
            variables[name] = self.expanded(here, str(text))
        return variables

    def expanded(self, place: str, text: str) -> str:
        def value(match: "re.Match[str]") -> str:
            name = match[1]
            if is_secret_name(name):
                raise self.wrong(
                    place,
                    f"${{{name}}} is a secret and would be written down",
                    f'{name} = "{INHERITED}" passes it on',
                )
            if name not in self.environment:
                raise self.wrong(place, f"${{{name}}} is not set where the job is started")
            return self.environment[name]

        return _VARIABLE.sub(value, text)

    def slots(self, place: str, value: Any) -> Slots:
        return Slots(**self.fields(place, self.table(place, value), _SLOTS))

    def budget(self, place: str, value: Any) -> dict[str, int]:
        return self.fields(place, self.table(place, value), _BUDGET)

    def hang(self, place: str, value: Any) -> Hang | None:
        """A table, or false for no hangs at all."""
        if value is False:
            return None
        return Hang(**self.fields(place, self.table(place, value), _HANG))

    def number(self, place: str, value: Any) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self.wrong(place, f"must be a number, got {_said(value)}")
        return float(value)


_Reader = tuple[str, Callable[[_File, str, Any], Any]]
_JOB: dict[str, _Reader] = {
    "name": ("name", _File.text),
    "directory": ("directory", _File.place),
    "isolate": ("isolate", _File.truth),
    "cgroup": ("cgroup", _File.truth),
    "pressure": ("pressure", _File.text),
    "segment_bytes": ("segment_bytes", _File.bytes),
    "segments_kept": ("segments_kept", _File.count),
}
_SLOTS: dict[str, _Reader] = {
    "cpus": ("cpus", _File.count),
    "gpus": ("gpus", _File.count),
    "memory": ("memory_bytes", _File.bytes),
    "ports": ("ports", _File.count),
}
_BUDGET: dict[str, _Reader] = {
    cause: (cause, _File.count) for cause in ("crash", "memory", "hang", "preemption", "host")
}
_HANG: dict[str, _Reader] = {
    "factor": ("factor", _File.number),
    "least": ("least_s", _File.seconds),
    "silence": ("silence_s", _File.seconds),
    "stopped": ("stopped_s", _File.seconds),
}
_ROLE: dict[str, _Reader] = {
    "command": ("command", _File.words),
    "kind": ("kind", _File.text),
    "ranks": ("ranks", _File.ranks),
    "host": ("host", _File.count),
    "after": ("after", _File.names),
    "environment": ("environment", _File.variables),
    "directory": ("directory", _File.place),
    "master_port": ("master_port", _File.count),
    "slots": ("slots", _File.slots),
    "spares": ("spares", _File.count),
    "terminal": ("terminal", _File.truth),
    "stdin": ("stdin", _File.count),
    "restart": ("restart", _File.text),
    "restarts": ("restarts", _File.count),
    "budget": ("budget", _File.budget),
    "refill_steps": ("refill_steps", _File.count),
    "backoff": ("backoff_s", _File.seconds),
    "backoff_max": ("backoff_max_s", _File.seconds),
    "same_failure": ("same_failure_max", _File.count),
    "grace": ("stop_grace_s", _File.seconds),
    "grace_save": ("save_grace_s", _File.seconds),
    "failure_grace": ("failure_grace_s", _File.seconds),
    "hang": ("hang", _File.hang),
    "zygote": ("zygote", _File.text),
    "preload": ("preload", _File.names),
}
_POLICY = (
    "restart",
    "refill_steps",
    "backoff_s",
    "backoff_max_s",
    "same_failure_max",
    "stop_grace_s",
    "save_grace_s",
    "failure_grace_s",
    "hang",
)


def _said(value: Any) -> str:
    """A value in an error: short, with its kind."""
    kinds = {
        bool: "a truth value",
        int: "a number",
        float: "a number",
        str: "text",
        list: "a list",
        dict: "a table",
    }
    text = repr(value)
    return f"{text if len(text) <= 40 else text[:37] + '…'} ({kinds.get(type(value), type(value).__name__)})"
