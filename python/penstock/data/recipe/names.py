"""Names in recipes: that they are names, and which one was meant where one is spelt wrongly."""

import difflib
from collections.abc import Collection
from typing import Any

from penstock.errors import RecipeInvalid


def not_one_of(choice: object, known: Collection[str]) -> str:
    """Why a choice is refused."""
    return f"must be one of {', '.join(known)}, got {choice!r:.50}"


def suggestion(choice: object, known: Collection[str]) -> str:
    """A hint for a name that is not known."""
    names = ", ".join(known)
    by_lower_case = {name.lower(): name for name in known}
    near = difflib.get_close_matches(str(choice).strip().lower(), by_lower_case, n=1)
    return f"did you mean {by_lower_case[near[0]]!r}? known are {names}" if near else f"known are {names}"


def check_name(field: str, name: Any, *, may_be_empty: bool = False) -> None:
    """That what stands for a name is a text: anything else would be looked up in every row, and never be found."""
    if may_be_empty and name in (None, ""):
        return
    if not isinstance(name, str) or not name:
        raise RecipeInvalid(
            field=field, reason=f"must be a name as text, got {name!r:.100}", hint=f'{field} = "text"'
        )
