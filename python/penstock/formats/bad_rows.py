"""Bad rows found in Python: the first is an error, or they are listed up to the limit, as the Rust scanners do."""

from penstock.errors import BadRow, TooManyBadRows
from penstock.formats.contract import BadLine, Policy, RawFile


class BadRows:
    """What one scan leaves out."""

    def __init__(self, shard: str, policy: Policy, bad_lines: list[BadLine] | None = None) -> None:
        self._shard = shard
        self._limit = policy.skip_bad
        #: In the order found.
        self.found: list[BadLine] = list(bad_lines or [])

    def add(self, line: int, offset: int, reason: str, *, file: RawFile | None = None) -> None:
        """Leave out a row; ``file`` is the one it stands in, where that is not the shard itself."""
        if self._limit == 0:
            raise BadRow(shard=file.url if file else self._shard, line=line, offset=offset, reason=reason)
        said = reason if file is None else f"{file.name}: {reason}"
        if len(self.found) >= self._limit:
            raise TooManyBadRows(
                shard=self._shard, limit=self._limit, last=f"row {line} (byte {offset}): {said}"
            )
        self.found.append(BadLine(line, offset, said))
