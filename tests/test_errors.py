"""The error tree is drawn where it says it is, and every error is reachable from its root."""

import inspect
import pickle
import subprocess
import sys

from penstock import errors
from penstock.errors import transport as travelling


def test_the_drawing_names_every_error_once() -> None:
    classes = [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, Exception)]
    drawn = [line.split("── ")[1].split()[0] for line in (errors.__doc__ or "").splitlines() if "── " in line]
    assert sorted(drawn) == sorted(c.__name__ for c in classes if c is not errors.PenstockError)
    assert all(issubclass(c, errors.PenstockError) for c in classes)


def test_errors_travel_between_processes_with_their_fields() -> None:
    problem = errors.BadRow(shard="a.jsonl", line=3, offset=40, reason="no")
    copy = pickle.loads(pickle.dumps(problem))
    assert type(copy) is errors.BadRow
    assert str(copy) == str(problem)
    assert (copy.shard, copy.line, copy.offset, copy.hint) == ("a.jsonl", 3, 40, problem.hint)
    out_of_range = pickle.loads(pickle.dumps(errors.RowOutOfRange(row=9, rows=3)))
    assert (out_of_range.row, out_of_range.rows) == (9, 3)


def test_hints_stand_in_tracebacks_once() -> None:
    """Goal: whoever sees only a traceback is told what to do. Method: raise errors of every kind of hint in a real interpreter."""
    program = """
from penstock import errors
import pickle
class Late(errors.PenstockError):
    def __init__(self):
        super().__init__("late")
        self.hint = "first thought"
        self.hint = "hint after the message"
problems = [
    errors.UsageError("given", hint="hint of the caller"),
    errors.RunUnknown(directory="x"),
    Late(),
    pickle.loads(pickle.dumps(errors.UsageError("sent", hint="hint that travelled"))),
    errors.UsageError("without"),
]
raise ExceptionGroup("all", problems)
"""
    shown = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    ).stderr
    assert shown.count("hint: ") == 4
    for hint in (
        "hint of the caller",
        "hint after the message",
        "hint that travelled",
        errors.RunUnknown.hint,
    ):
        assert shown.count(f"hint: {hint}") == 1, hint


def test_a_hint_travels_and_the_command_line_says_it_once() -> None:
    sent = travelling.from_json(
        travelling.to_json(errors.UsageError("no", hint="do this")), "http://127.0.0.1:1"
    )
    assert sent.__notes__ == ["hint: do this", "raised by the data service at http://127.0.0.1:1"]
    for options in ([], ["--debug"]):
        shown = subprocess.run(
            [sys.executable, "-m", "penstock.cli.main", "runs", "show", "nowhere", *options],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        ).stderr
        assert shown.count(f"hint: {errors.RunUnknown.hint}") == 1, shown
