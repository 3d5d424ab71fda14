"""What an export has done, in numbers, and what it could not write."""

from dataclasses import dataclass, field
from typing import Any

#: Refusals that are told one by one; others are counted.
_TOLD_MAX = 20


@dataclass
class ExportTally:
    """Of one call."""

    steps: int = 0
    moments: int = 0
    bytes: int = 0
    refused_count: int = 0
    #: The first values that the form cannot hold: field, step, value and reason.
    refused: list[dict[str, Any]] = field(default_factory=list)

    def refuse(self, name: str, step: int, value: float | str, reason: str, count: int = 1) -> None:
        """Values were left out because the form cannot hold them."""
        self.refused_count += count
        if len(self.refused) < _TOLD_MAX:
            self.refused.append({"field": name, "step": step, "value": str(value), "reason": reason})
