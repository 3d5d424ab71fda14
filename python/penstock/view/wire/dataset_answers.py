"""Answers about registered data: datasets, versions, rows, columns, lineage, differences."""

from typing import TYPE_CHECKING, Literal, NotRequired, TypedDict

from penstock.view.wire.alternatives import one_of


class VersionSummary(TypedDict):
    """A version in one line."""

    address: str
    number: int
    digest: str
    format: str
    rows: int
    bytes: int
    shards: int
    fields: int
    created: str
    note: str
    derived: bool


class DatasetNewest(VersionSummary):
    """A dataset by its newest version; tags by name, with the number of the version that each is at."""

    name: str
    tags: dict[str, int]


class DatasetProblem(TypedDict):
    """A dataset that cannot be read, and why."""

    name: str
    problem: str


if TYPE_CHECKING:
    DatasetLine = DatasetNewest | DatasetProblem
else:
    DatasetLine = one_of("DatasetLine", DatasetNewest, DatasetProblem)


class DatasetList(TypedDict):
    """The datasets of the registry."""

    registry: str
    datasets: list[DatasetLine]
    left_out: int
    command: str


class StreamList(TypedDict):
    """Recipes and runs below the folders of the server; ``reasons`` says what was left out, and how many of each."""

    recipes: list[str]
    runs: list[str]
    roots: list[str]
    left_out: int
    reasons: dict[str, int]


class VersionList(TypedDict):
    """All versions of a dataset, newest first."""

    name: str
    versions: list[VersionSummary]
    tags: dict[str, int]
    left_out: int
    command: str


class SchemaField(TypedDict):
    """A field of a version's schema."""

    name: str
    kind: str
    optional: bool


class VersionDetail(VersionSummary):
    """A version without its rows."""

    name: str
    tags: list[str]
    owner: str
    licence: str
    roots: list[str]
    skipped: int
    schema: list[SchemaField]
    fields_left_out: int
    command: str
    rows_command: str


class ShardLine(TypedDict):
    """A shard: ``first`` is the version's row at which it begins, ``copied`` says that rows are read from a copy."""

    name: str
    rows: int
    bytes: int
    digest: str
    first: int
    copied: bool


class ShardPage(TypedDict):
    """Some shards of a version, from ``start`` on."""

    shards: list[ShardLine]
    start: int
    of: int


class LineagePlace(TypedDict):
    """A version in the graph; parents have negative levels. One that this registry lacks is not ``known``."""

    address: str
    digest: str
    level: int
    known: bool


class LineageGraph(TypedDict):
    """What a version came from and what was made from it; arrows go from parent to child."""

    places: list[LineagePlace]
    arrows: list[tuple[str, str]]
    left_out: int
    at: str
    command: str


class CellValue(TypedDict):
    """A value as it is shown.

    ``of`` is the whole length where less is shown, ``size`` the bytes of bytes and media, ``path`` where in the value the bytes are,
    for media inside of an object.
    """

    kind: str
    text: str
    of: NotRequired[int]
    items: NotRequired[int]
    size: NotRequired[int]
    path: NotRequired[str]
    dtype: NotRequired[str]
    shape: NotRequired[list[int]]


class RowLine(TypedDict):
    """A row in a table of them, cells in the order of the schema."""

    row: int
    cells: list[CellValue]


class RowPage(TypedDict):
    """Some rows of a version that has ``of``."""

    rows: list[RowLine]
    of: int


class FilteredPage(RowPage):
    """Rows that pass an expression; ``next`` is where to continue, null when the last row was looked at.

    ``failed`` rows could not be computed, the first of them for the ``reason``.
    """

    looked_at: int
    next: int | None
    failed: int
    reason: str


class RowField(CellValue):
    """A field of one row."""

    name: str
    field: int


class WholeRow(TypedDict):
    """One row with all of its fields, and where its bytes lie: first and end in the shard, null where they are not known."""

    row: int
    of: int
    fields: list[RowField]
    shard: str
    place: int
    bytes: list[int] | None


class ColumnBar(TypedDict):
    """A bar of a histogram, and the expression that keeps its rows."""

    label: str
    count: int
    where: str | None


class ColumnSpread(TypedDict):
    """How the values of a field are spread; numbers and lengths have ends and a median."""

    name: str
    of: Literal["nothing", "values", "numbers", "lengths"]
    missing: int
    bars: list[ColumnBar]
    not_finite: NotRequired[int]
    low: NotRequired[float]
    high: NotRequired[float]
    median: NotRequired[float]


class VersionSpread(TypedDict):
    """A histogram of every field, made of ``looked_at`` rows of all."""

    columns: list[ColumnSpread]
    columns_left_out: int
    looked_at: int
    rows: int


class VersionDifference(TypedDict):
    """What changed between two versions; rows are null when they were not compared."""

    before: str
    after: str
    equal: bool
    fields_added: list[str]
    fields_removed: list[str]
    fields_changed: dict[str, tuple[str, str]]
    shards_added: list[str]
    shards_removed: list[str]
    shards_changed: list[str]
    shards_equal: int
    rows_added: int | None
    rows_removed: int | None
    rows_changed: int | None
    command: str
