"""A batch of records: fields over the rows of a lane, with the same step, digest and origins as a batch of tokens."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock import _rust
from penstock.data.feed.batch import Batch
from penstock.data.feed.undecodable import Fault

if TYPE_CHECKING:
    from penstock.data.plan.plan import Plan


class RecordBatch(Batch):
    """A mapping of field to the values of the rows: one numpy array where they fit together, else a list.

    ``valid`` is 1 for rows that count and 0 for padding, samples that cannot be decoded and samples that the skips mask.
    """

    finished = True

    def __init__(
        self,
        rust_batch: _rust.FeedBatch,
        plan: "Plan",
        fields: Mapping[str, Any],
        *,
        digest: int,
        size_bytes: int,
        faults: Sequence[Fault] = (),
    ) -> None:
        super().__init__(rust_batch, plan)
        self._fields = dict(fields)
        self._digest = digest
        self._size_bytes = size_bytes
        self.faults = tuple(faults)

    @property
    def rows(self) -> int:
        """Rows of the lane."""
        return self._rust_batch.rows

    @property
    def size_bytes(self) -> int:
        """Bytes of its values."""
        return self._size_bytes

    @property
    def digest(self) -> str:
        """A hash of positions and values; those of all lanes of a step add up to the step's (see ``join``)."""
        return f"{self._digest:032x}"

    def __getitem__(self, field: str) -> Any:
        return self._fields[field]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __repr__(self) -> str:
        return f"<RecordBatch step {self.step}, {self.rows} rows of {', '.join(self._fields)}, {self.digest[:12]}>"
