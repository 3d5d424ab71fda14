"""Plans: what Python has measured, and the tables that are built from it."""

from pathlib import Path
from typing import TypeAlias, TypedDict

from typing_extensions import Buffer

from penstock._rust.shard import IndexValues
from penstock._rust.source import SourceValues

#: Source, index, the index's digest, rows, and (first byte, bytes of a row) where rows follow each other without gaps.
ShardValues: TypeAlias = tuple[SourceValues, IndexValues, str, int, tuple[int, int] | None]

class FeedPlan(TypedDict):
    """A recipe with everything measured."""

    sources: list[SourcePlan]
    mixture: TurnPlan
    #: Tokens of a row, by the first step that has so many.
    lengths: list[tuple[int, int]]
    #: Steps that are left out: first, and the one after the last.
    skips: list[tuple[int, int]]

class TurnPlan(TypedDict):
    """What decides whose turn it is."""

    seed: int
    #: Rows of a step, by the first step that has so many.
    batch: list[tuple[int, int]]
    #: Weights of the sources, by the first step that has them.
    weights: list[tuple[int, list[float]]]
    #: Those of the weights that move.
    ramps: list[RampPlan]
    shuffle: str
    exhaustion: str

class RampPlan(TypedDict):
    """Weights that move from a step of the weights on."""

    step: int
    until: int
    to: list[float]
    shape: str
    every: int

class SourcePlan(TypedDict):
    """One source of a recipe."""

    #: Those that are there; more are to come where ``expected`` says so.
    parts: list[PartPlan]
    #: How many parts there will be.
    expected: int
    phases: list[PhasePlan]
    item_bytes: int
    #: What padding is.
    pad: int
    #: Whether its parts say which tokens count in the loss.
    masked: bool
    policy: str
    epochs: int | None

class PartPlan(TypedDict):
    """A part of a source: all of it, or an era."""

    #: What its orders derive from.
    digest: str
    shards: list[ShardValues]
    #: Shards of bytes that say which tokens count in the loss.
    mask: list[ShardValues] | None
    #: What is put after every row, and how many stored tokens come before it at most.
    separator: tuple[int, int] | None
    #: Runs of rows: (row of the part, row of the version).
    rows: list[tuple[int, int]]
    #: One per phase; none where every stored row is a row.
    tables: list[SourceValues | None]

class PhasePlan(TypedDict):
    """A source under one length of rows."""

    #: Rows that the source has given before, the epoch that it goes on with, and the first part after the rest.
    first: int
    epoch: int
    part: int
    #: What the orders of the rest derive from, and its table.
    rest: tuple[str, SourceValues] | None

class PackingPlan(TypedDict):
    """How samples become packs."""

    length: int
    policy: str
    shuffle: str
    #: The digest that decides which samples share a block.
    source: str

class BrokenLegPlan(TypedDict):
    """What was delivered of a leg when the length of rows changes."""

    table: SourceValues
    #: What its orders derive from.
    source: str
    seed: int
    length: int
    epoch: int
    #: Rows.
    delivered: int

def build_table(
    path: Path, lengths: Buffer, kept: Buffer | None, starts: Buffer | None, packing: PackingPlan
) -> int:
    """Build a plan table from measured lengths (u32), verdicts (u8) and first planned tokens (u32); its packs per epoch."""

def build_rest(path: Path, broken: BrokenLegPlan, packing: PackingPlan) -> int:
    """Build the table of what a leg has not delivered of an epoch, packed anew; its packs."""

#: Epochs, the last phase that is planned (first row, epoch, packs of the rest, part), packs up to and including each part.
CourseValues: TypeAlias = tuple[int | None, tuple[int, int, int, int], list[int]]

#: Rows that a source has given, and where the next one lies: part (None for the rest), epoch, index.
StopValues: TypeAlias = tuple[int, int | None, int, int]

def stops_at(mixture: TurnPlan, sources: list[CourseValues], step: int) -> list[StopValues] | None:
    """Where each source stands before a step; None when the stream ends before it."""

def ramp_part(shape: str, every: int, length: int, at: int) -> float:
    """How far a ramp of ``length`` steps has come at one of them: 0 where it begins, 1 where it ends."""

def token_lengths(shards: list[ShardValues], item_bytes: int) -> bytes:
    """The length in tokens of every row of a version (u32), from its indexes."""

def held_out(version: str, rows: int, share: float) -> bytes:
    """1 for the rows of a version that are held out (u8): a fixed share of them, drawn by a key of the version."""

def first_position(batch: list[tuple[int, int]], step: int) -> int:
    """The first position of a step under a schedule of batches."""
