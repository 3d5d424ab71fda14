"""How the output of workers is carried to the person and kept."""

from dataclasses import dataclass
from typing import Literal

from penstock.errors import UsageError

SEGMENT_BYTES_MIN = 4096


@dataclass(frozen=True, kw_only=True)
class Output:
    """What the log pump is asked for. Logs are complete whatever ``pressure`` says."""

    #: A terminal for each worker instead of pipes.
    terminal: bool = False
    #: When the person's terminal is slow: ``wait`` holds workers back, ``drop`` leaves output out there and says so.
    pressure: Literal["wait", "drop"] = "wait"
    #: How large a segment of a log becomes; 0 for one without end.
    segment_bytes: int = 0
    #: How many segments of a log stay, the newest; 0 for all.
    segments_kept: int = 0

    def __post_init__(self) -> None:
        if self.segment_bytes != 0 and not SEGMENT_BYTES_MIN <= self.segment_bytes < 2**63:
            raise UsageError(
                f"segment_bytes must be 0 or at least {SEGMENT_BYTES_MIN}, got {self.segment_bytes}",
                hint="0 keeps each log in one file",
            )
        if not 0 <= self.segments_kept < 2**31:
            raise UsageError(f"segments_kept must be 0 or more, got {self.segments_kept}")
        if self.segments_kept and not self.segment_bytes:
            raise UsageError(
                f"segments_kept is {self.segments_kept}, but without segment_bytes a log has one segment",
                hint="give segment_bytes, too",
            )

    def of_job(self) -> dict[str, object]:
        """What the description of a job says about it."""
        return {
            "pressure": self.pressure,
            "segment_bytes": self.segment_bytes,
            "segments_kept": self.segments_kept,
        }
