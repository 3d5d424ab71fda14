"""The error tree is drawn where it says it is, and every error is reachable from its root."""

import inspect

from penstock import errors


def test_the_drawing_names_every_error_once() -> None:
    classes = [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, Exception)]
    drawn = [line.split("── ")[1].split()[0] for line in (errors.__doc__ or "").splitlines() if "── " in line]
    assert sorted(drawn) == sorted(c.__name__ for c in classes if c is not errors.PenstockError)
    assert all(issubclass(c, errors.PenstockError) for c in classes)
