"""The cursor: where a stream goes on, and what it depends on; under 1 KiB, and all that resuming needs.

A cursor names the recipe up to its step (``prefix``) and the measured columns behind it (``plan``), so it is accepted by any
recipe that is equal up to there and refused by every other. It carries a check, so a hand-edited one is refused too.
"""

from dataclasses import asdict, dataclass
from typing import Any

import msgspec

from penstock._rust import digest
from penstock.errors import CursorForeign

FORM = 1
BYTES_MAX = 1024


@dataclass(frozen=True, slots=True)
class Cursor:
    """A resume point: the next step to be delivered."""

    step: int
    #: Rows delivered before that step, over all lanes.
    position: int
    #: Digest of the recipe up to the step, with versions by digest.
    prefix: str
    #: Digest of the columns and tables that the order follows from.
    plan: str
    #: Digest of the steps that were left out before it, empty when there were none.
    skips: str = ""

    def __post_init__(self) -> None:
        for number in (self.step, self.position):
            if type(number) is not int or not 0 <= number < 1 << 63:
                raise CursorForeign(
                    cursor=f"{self.prefix}",
                    recipe="",
                    reason=f"step and position must be whole numbers of 64 bits from 0 on, got {number!r:.50}",
                )

    def to_json(self) -> str:
        """The cursor as text; the same cursor gives the same text."""
        return msgspec.json.encode(self._checked(), order="deterministic").decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> "Cursor":
        """A cursor from its text, refused when it was changed."""
        if not isinstance(text, str | bytes):
            reason = f"it must be text, got {type(text).__name__}"
            raise CursorForeign(cursor="", recipe="", reason=reason)
        if len(text) > BYTES_MAX:
            raise CursorForeign(cursor="", recipe="", reason=f"it is longer than {BYTES_MAX} bytes")
        try:
            document: dict[str, Any] = msgspec.json.decode(text, type=dict[str, Any])
            form, check = document.pop("form"), document.pop("check")
            cursor = cls(**document)
        except (msgspec.MsgspecError, KeyError, TypeError, UnicodeError) as reason:
            raise CursorForeign(cursor="", recipe="", reason=f"it cannot be read ({reason})") from reason
        if form != FORM:
            raise CursorForeign(
                cursor=cursor.prefix, recipe="", reason=f"it has form {form}, known is {FORM}"
            )
        if check != cursor._checked()["check"]:
            raise CursorForeign(
                cursor=cursor.prefix, recipe="", reason="its check does not match, so it was changed"
            )
        return cursor

    def _checked(self) -> dict[str, Any]:
        document = {"form": FORM, **asdict(self)}
        return {**document, "check": digest(msgspec.json.encode(document, order="deterministic"))[3:19]}
