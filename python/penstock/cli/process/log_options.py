"""Options of ``penstock run`` about output."""

from dataclasses import dataclass
from typing import Annotated, Literal

from cyclopts import Parameter

from penstock.process.output import Output


@dataclass(frozen=True, kw_only=True)
class LogOptions:
    """How the output of ranks is carried and kept."""

    tty: Annotated[
        bool, Parameter(negative=(), help="A terminal for each rank: bars, colours; stderr joins stdout.")
    ] = False
    on_pressure: Annotated[
        Literal["wait", "drop"],
        Parameter(help="When the terminal is slow: ranks wait, or it misses output (logs never do)."),
    ] = "wait"
    segment_bytes: Annotated[
        int, Parameter(help="Continue a log in another file after so many bytes; 0 never does.")
    ] = 0
    segments_kept: Annotated[int, Parameter(help="How many files of a log stay, the newest; 0: all.")] = 0

    def to_output(self) -> Output:
        """As a job has it."""
        return Output(
            terminal=self.tty,
            pressure=self.on_pressure,
            segment_bytes=self.segment_bytes,
            segments_kept=self.segments_kept,
        )
