"""Answers about batches: their facts, tokens, records, lanes, differences, and what runs have in their hands."""

from typing import TYPE_CHECKING, Any, Literal, NotRequired, TypedDict

from penstock.view.wire.alternatives import one_of


class Commands(TypedDict):
    """Command lines to copy: one opens the view, one prints the same as data."""

    command: str
    data_command: str


class AddressedCommands(Commands):
    """The same, beside the address of what they show."""

    address: str


class BatchIdentity(TypedDict):
    """Which batch it is."""

    step: int
    lane: str
    digest: str


class TokenBatchIdentity(BatchIdentity):
    """The same of tokens; ``cuts`` says what a training loop that showed it left out."""

    cuts: NotRequired[list[str]]


class BatchFacts(BatchIdentity, AddressedCommands):
    """What every batch has."""

    rows: int
    padding: int


class TokenizerFacts(TypedDict):
    """What turns text into tokens."""

    path: str
    style: str
    size: int


class SourceFacts(TypedDict):
    """A source of a batch."""

    alias: str
    version: str
    tokenizer: TokenizerFacts | None


class TokenBatchFacts(TokenBatchIdentity, BatchFacts):
    """A batch of tokens; ``loss_tokens`` is null where it has no loss mask."""

    kind: Literal["tokens"]
    length: int
    dtype: str
    loss_tokens: int | None
    columns: list[str]
    sources: list[SourceFacts]


class WindowFacts(TypedDict):
    """Which rows and tokens of a batch are there, each as first and end; ``cuts`` says in words what is not."""

    address: str
    rows: list[int]
    tokens: list[int]
    of_rows: int
    of_tokens: int
    cuts: list[str]
    sources: list[SourceFacts]


class TokenBatchHead(TokenBatchFacts):
    """The facts in front of the packed columns of a batch of tokens; ``kinds`` names the numbers of the column of that name."""

    window: WindowFacts
    kinds: list[str]


class OriginFacts(TypedDict):
    """Where a stretch of a row came from."""

    source: str
    version: str
    sample: int
    shard: str
    byte_range: tuple[int, int] | None
    token_span: tuple[int, int]
    row_span: tuple[int, int]
    epoch: int


class UndecodableSample(TypedDict):
    """A sample that could not be decoded, and its row of the batch."""

    row: int
    origin: OriginFacts
    reason: str


class RecordBatchFacts(BatchFacts):
    """A batch of records."""

    kind: Literal["records"]
    fields: list[str]
    undecodable: list[UndecodableSample]


if TYPE_CHECKING:
    BatchHead = TokenBatchHead | RecordBatchFacts
else:
    BatchHead = one_of("BatchHead", TokenBatchHead, RecordBatchFacts)


class PackedColumn(TypedDict):
    """A column behind the header: its bytes begin at ``at``, counted from the end of the header."""

    name: str
    dtype: str
    shape: list[int]
    at: int
    bytes: int


class PackedBatch(TypedDict):
    """The header of packed columns (``penstock.data.tap.columns``). Records have no columns, they are asked for by page."""

    facts: BatchHead
    columns: list[PackedColumn]


class TokenFacts(TypedDict):
    """One token, its exact bytes (in hexadecimal; null without a vocabulary), and where it came from."""

    row: int
    token: int
    id: int
    text: str
    bytes: str | None
    kind: str
    origin: list[OriginFacts]
    address: NotRequired[str]


class TokenDetail(TokenFacts):
    """Everything about one token: beside the facts its values in all columns of the batch, by name.

    Columns that only some recipes have are not declared; a number that JSON lacks travels as text.
    """

    tokens: int
    segments: NotRequired[int]
    positions: NotRequired[int]
    loss_mask: NotRequired[float]
    sources: int
    kinds: int


class FieldPreview(TypedDict):
    """A field of a row or record; ``cut`` says what the preview leaves out, ``type`` what browsers call a medium."""

    name: str
    kind: str
    preview: Any
    size: str
    cut: NotRequired[str]
    type: NotRequired[str]


class RecordRow(TypedDict):
    """A record of a batch."""

    row: int
    valid: bool
    fields: list[FieldPreview]
    origin: list[OriginFacts]


class RecordPage(TypedDict):
    """Some records of a batch that has ``of``."""

    rows: list[RecordRow]
    of: int


class LensRow(TypedDict):
    """A row of a lane: what tells it apart (empty for padding), and the first of its documents as source and sample."""

    content: str
    documents: list[tuple[str, int]]
    document_count: int


class LensLane(TypedDict):
    """What one lane of a step has."""

    step: int
    lane: str
    address: str
    digest: str
    rows: list[LensRow]


class LensRepeat(TypedDict):
    """Tokens of a sample that stand in two places, each as lane and row of the lane."""

    source: str
    sample: int
    tokens: int
    places: list[tuple[int, int]]


class UnequalRanks(TypedDict):
    """Ranks that read the same lane at the same step and have other bits, by digest."""

    lane: str
    step: int
    ranks: dict[str, list[str]]


class LensRanks(TypedDict):
    """Ranks that share lanes, each built anew, and those that differ."""

    count: int
    unequal: list[UnequalRanks]


class LaneLens(TypedDict):
    """All lanes of a step: whether they add up to it, and what stands in two rows (each as lane and row of the lane)."""

    step: int
    lanes: list[LensLane]
    digest: str
    adds_up: bool
    same_rows: list[list[tuple[int, int]]]
    same_rows_count: int
    repeats: list[LensRepeat]
    repeats_count: int
    ranks: LensRanks


class DifferenceSummary(TypedDict):
    """Sizes of both sides and, of batches of tokens, how much of what both have differs."""

    rows: list[int]
    length: NotRequired[list[int]]
    rows_differing: NotRequired[int]
    tokens_differing: NotRequired[int]
    masks_differing: NotRequired[int]


class FirstDifference(TypedDict):
    """The first place that differs: a token and its byte, or a field of a record."""

    row: int
    token: NotRequired[int]
    byte: NotRequired[int]
    field: NotRequired[str]


class BatchDifference(TypedDict):
    """Two batches: equal or not, how much differs, and samples (version and row) that only one of them has."""

    kind: Literal["tokens", "records"]
    equal: bool
    digests: list[str]
    summary: DifferenceSummary
    first: FirstDifference | None
    only: list[list[tuple[str, int]]]
    only_counts: list[int]
    both_count: int


class RecipeDifference(TypedDict):
    """Two recipes: fields that differ with both sides, and the first step whose batch does; null when all compared are equal."""

    fields: dict[str, list[str]]
    equal: bool
    compared_steps: int
    first_step: int | None


class StoredRow(AddressedCommands):
    """A row of a version as it is stored."""

    row: int
    shard: str
    place: int
    byte_range: tuple[int, int] | None
    fields: list[FieldPreview]


class TemplatedPiece(TypedDict):
    """A stretch of templated text, by characters: who says it, and whether it counts in the loss."""

    start: int
    stop: int
    text: str
    role: str
    trained: bool


class TemplatedText(TypedDict):
    """What the tokenizer was given; ``problem`` says why a template could not be rendered."""

    characters: int
    pieces: list[TemplatedPiece]
    problem: str


class SampleTokens(TypedDict):
    """The tokens of a sample: ``joined`` shows characters that several share whole; ``spans`` are the characters that each was made of."""

    ids: list[int]
    texts: list[str]
    joined: list[str]
    kinds: list[str]
    spans: list[tuple[int, int]] | None
    cut: str


class InputStretch(TypedDict):
    """Where a batch has some tokens of a sample."""

    row: int
    row_span: list[int]
    token_span: list[int]
    loss: int


class SampleStagesAnswer(TypedDict):
    """A sample in four stages; ``templated`` is null where tokens are stored."""

    source: str
    origin: OriginFacts
    raw: StoredRow
    templated: TemplatedText | None
    tokens: SampleTokens
    input: list[InputStretch]


class RoleShare(TypedDict):
    """Tokens that a role says, and how many of them count in the loss."""

    role: str
    tokens: int
    loss: int


class RoleBudget(TypedDict):
    """What the loss is spent on, by role; empty where no source is of conversations."""

    by_role: list[RoleShare]
    documents: int
    cut: str


class TapFacts(TypedDict):
    """What a reader has in its hands: ``alive`` is null where it runs on another machine, ``step`` before its first batch."""

    name: str
    pid: int
    alive: bool | None
    lane: str
    step: int | None
    digest: str
    age_s: float | None


class RankTap(TapFacts):
    """A rank's batch, compared with the one rebuilt here."""

    rebuilt: str
    equal: bool


class TapComparison(TypedDict):
    """What the ranks of a run have in their hands."""

    ranks: list[RankTap]
    unequal: list[UnequalRanks]


class RunTaps(TapComparison):
    """The same, and the names under which the training loop shows arrays."""

    shown: list[str]
