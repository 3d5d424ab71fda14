"""The error tree is drawn where it says it is, and every error is reachable from its root."""

import inspect
import pickle

from penstock import errors


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
