"""Schedules: values that change at given steps, as pairs of a first step and what holds from it on."""

import operator
from collections.abc import Sequence
from typing import Any

from penstock.errors import RecipeInvalid


def is_whole(number: Any) -> bool:
    """Whether it is a whole number, of Python or of numpy."""
    try:
        operator.index(number)
    except TypeError:
        return False
    return not isinstance(number, bool)


def read_schedule(
    field: str, schedule: Any, kind: type | tuple[type, ...], *, hint: str
) -> tuple[tuple[int, Any], ...]:
    """Pairs whose steps begin at 0 and go up."""
    try:
        pairs = tuple((step, value) for step, value in schedule)
    except (TypeError, ValueError) as reason:
        raise RecipeInvalid(
            field=field, reason=f"must be a number or a schedule, got {schedule!r:.100}", hint=hint
        ) from reason
    for step, value in pairs:
        if type(step) is not int or not isinstance(value, kind) or isinstance(value, bool):
            raise RecipeInvalid(field=field, reason=f"[{step!r}, {value!r:.100}] cannot be read", hint=hint)
    steps = [step for step, _ in pairs]
    if not steps or steps[0] != 0 or steps != sorted(set(steps)):
        shown = f"its steps are {steps!s:.100}"
        raise RecipeInvalid(field=field, reason=shown, hint="begin at step 0 and go up")
    return pairs


def cut(schedule: Sequence[tuple[int, Any]], step: int | None) -> list[tuple[int, Any]]:
    """The part of a schedule that steps before ``step`` depend on."""
    return [entry for entry in schedule if step is None or entry[0] == 0 or entry[0] < step]
