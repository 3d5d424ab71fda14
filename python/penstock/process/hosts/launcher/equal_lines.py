"""Lines of many hosts, equal ones as one line with ranges of ranks: ``[0-511,513-1023] epoch 3``. Pure: time comes in as an argument.

A line waits a tenth of a second for others like it. Lines of one rank stay in their order, and every line of every rank is in exactly one that
is shown (P5): a rank that writes the same line twice makes two. What waits has a limit; beyond it the oldest are shown sooner.
"""

import re
from collections import OrderedDict
from collections.abc import Iterator

from penstock.process.questions.host_sets import fold
from penstock.process.questions.number_ranges import ranges

#: How long a line waits for others like it.
WAIT_S = 0.1
#: Of all lines that wait: their bytes, and something for each.
WAITING_BYTES_MAX = 4 << 20
LINE_BYTES = 64
#: What hosts put before a line: a colour, and the rank, behind its role where there are several.
_NAMED = re.compile(rb"(\x1b\[\d+m)?\[ *(?:([^\]\x1b\n]*)-)?(\d{1,9})\] (\x1b\[0m)?")

#: Stream, role and text of a line; no role where no rank wrote it.
_Key = tuple[int, bytes | None, bytes]
#: A role and a rank, or a host.
_Speaker = tuple[bytes | None, int | str]


class _Group:
    """Equal lines."""

    __slots__ = ("due_s", "first", "number", "role", "speakers", "stream", "text")

    def __init__(self, number: int, due_s: float, key: "_Key", first: bytes) -> None:
        self.number, self.due_s = number, due_s
        self.stream, self.role, self.text = key
        #: The first of them, with its name and colour.
        self.first = first
        #: Ranks, or hosts of a line that no rank wrote.
        self.speakers: list[int | str] = []

    def line(self) -> bytes:
        """As it is shown."""
        if len(self.speakers) == 1:
            return self.first
        if self.role is None:
            hosts = fold(str(host) for host in self.speakers)
            return self.text.removesuffix(b"\n") + f" ({hosts})\n".encode()
        named = ranges(int(rank) for rank in self.speakers)
        # As sets of hosts are written: trainer-[0-7].
        label = self.role + f"-[{named}]".encode() if self.role else named.encode()
        prefix = _NAMED.match(self.first)
        before, after = (prefix[1], b"\x1b[0m") if prefix is not None and prefix[1] else (b"", b"")
        return before + b"[" + label + b"] " + after + self.text


class EqualLines:
    """What waits, in the order in which it will be shown."""

    def __init__(self) -> None:
        self._groups: OrderedDict[int, _Group] = OrderedDict()
        #: The newest group with this stream, role and text.
        self._newest: dict[_Key, _Group] = {}
        #: The number of the last group that has a line of this rank, or of this host.
        self._last: dict[_Speaker, int] = {}
        self._bytes = 0
        self._count = 0

    @property
    def due_s(self) -> float | None:
        """When something is to be shown at the latest; nothing while nothing waits."""
        return next(iter(self._groups.values())).due_s if self._groups else None

    @property
    def waiting_bytes(self) -> int:
        """How much waits, about."""
        return self._bytes

    def add(self, host: str, stream: int, line: bytes, now_s: float) -> None:
        """Take a line that a host wrote, with what the host put before it."""
        prefix = _NAMED.match(line)
        role: bytes | None
        speaker: int | str
        if prefix is None:
            role, speaker, text = None, host, line
        else:
            role, speaker, text = prefix[2] or b"", int(prefix[3]), line[prefix.end() :]
        group = self._group((stream, role, text), (role, speaker), line, now_s)
        group.speakers.append(speaker)
        self._last[role, speaker] = group.number
        self._bytes += LINE_BYTES

    def take(self, now_s: float) -> Iterator[tuple[int, bytes]]:
        """Streams and lines that have waited long enough, or have no room any more."""
        while self._groups:
            group = next(iter(self._groups.values()))
            if group.due_s > now_s and self._bytes <= WAITING_BYTES_MAX:
                return
            yield self._show(group)

    def take_all(self) -> Iterator[tuple[int, bytes]]:
        """All that waits: no more comes, or nobody waits."""
        while self._groups:
            yield self._show(next(iter(self._groups.values())))

    def _group(self, key: _Key, speaker: _Speaker, line: bytes, now_s: float) -> _Group:
        newest = self._newest.get(key)
        # In an older group, or twice in one, lines of a rank would lose their order or their number.
        if newest is not None and self._last.get(speaker, -1) < newest.number:
            return newest
        group = _Group(self._count, now_s + WAIT_S, key, line)
        self._count += 1
        self._groups[group.number] = self._newest[key] = group
        self._bytes += len(line) + LINE_BYTES
        return group

    def _show(self, group: _Group) -> tuple[int, bytes]:
        del self._groups[group.number]
        key = (group.stream, group.role, group.text)
        if self._newest.get(key) is group:
            del self._newest[key]
        self._bytes -= len(group.first) + LINE_BYTES * (1 + len(group.speakers))
        for speaker in group.speakers:
            if self._last.get((group.role, speaker)) == group.number:
                del self._last[group.role, speaker]
        return group.stream, group.line()
