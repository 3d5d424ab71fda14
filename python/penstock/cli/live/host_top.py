"""``penstock top`` of a job of many hosts, and ``penstock simulate --watch``: the same screen over any source of hosts."""

import os
import shutil
import sys
import time
from collections.abc import Sequence
from threading import Event, Thread

from penstock.cli.hosts import host_document
from penstock.cli.hosts.host_rows import host_lines
from penstock.cli.job.keys import Keys
from penstock.cli.live.host_picture import cells_of, picture, plain_lines, worst_cell
from penstock.cli.live.host_view import ESCAPE, HostView, played, words_of
from penstock.cli.output import in_encoding, print_json, print_text
from penstock.errors import UsageError
from penstock.report.hosts.playback import Playback
from penstock.report.hosts.snapshot import HostSnapshot
from penstock.report.hosts.source import HostEvent, HostSource, RanksOfHost

#: How often the screen is drawn while a job is played.
FRAME_S = 0.1
#: What belongs to one key comes within this time.
_SEQUENCE_S = 0.05
#: Events that a screen may have room for.
EVENTS_SHOWN = 64
#: Between two questions about the ranks of the open host.
RANKS_S = 2.0
#: Between two looks when nobody answers, at most so long until the thread has ended.
_END_S = 0.2


def top_hosts(source: HostSource, *, every_s: float, once: bool, json: bool) -> int:
    """Show hosts until ``q`` is pressed or the job is over; in a pipe once."""
    if json or once or not sys.stdout.isatty() or _is_dumb():
        snapshot = source.look()
        if json:
            print_json(host_document(source.title, snapshot))
        else:
            _print_plain(source.title, snapshot)
        return 0
    _live(source, every_s, None)
    _print_plain(source.title, source.look())
    return 0


def watch_simulation(source: HostSource, *, speed: float) -> int:
    """Play an imagined job until ``q`` is pressed."""
    assert source.length_s is not None, "only what is imagined can be played"
    if _is_dumb():
        raise UsageError("--watch needs a terminal whose cursor can be moved", hint="add --web for a browser")
    _live(source, FRAME_S, Playback(source.length_s, speed=speed))
    return 0


def _is_dumb() -> bool:
    """Whether nothing on the terminal can be drawn twice."""
    return os.environ.get("TERM", "").lower() in ("dumb", "unknown")


def _print_plain(title: str, snapshot: HostSnapshot) -> None:
    for line in plain_lines(title, snapshot, host_lines(snapshot, shutil.get_terminal_size().columns)):
        print_text(in_encoding(line))


def _live(source: HostSource, every_s: float, playback: Playback | None) -> None:
    from rich.console import Console, Group
    from rich.live import Live

    console = Console()
    view, at = HostView(), time.monotonic()
    with (
        Keys() as keys,
        _Looks(source, every_s, playback) as looks,
        Live(console=console, screen=True, auto_refresh=False) as live,
    ):
        while not view.is_left:
            snapshot, screen = looks.newest, (console.size.width, console.size.height)
            now = time.monotonic()
            playback = None if playback is None else playback.after(now - at, snapshot.next_s)
            at = now
            looks.want(view.host, playback)
            snapshot = looks.newest
            lines = picture(
                source.title,
                snapshot,
                view,
                screen=screen,
                events=looks.events,
                ranks=looks.ranks,
                playback=playback,
            )
            for line in lines:
                line.plain = in_encoding(line.plain, console.encoding)
            live.update(Group(*lines[: screen[1]]), refresh=True)
            if snapshot.is_over and (playback is None or not keys.is_open):
                break
            for word in words_of(_pressed(keys, FRAME_S if playback is not None else min(every_s, 0.25))):
                cells = cells_of(view, snapshot, screen)
                view = view.after(word, cells, worst_cell(snapshot, cells) if word == "worst" else 0)
                playback = None if playback is None else played(playback, word, snapshot.next_s)


def _pressed(keys: Keys, patience_s: float) -> bytes:
    """Keys that were pressed. Sequences begin with the key that goes back, so their rest is waited for."""
    pressed = keys.pressed_within(patience_s)
    if pressed.endswith(ESCAPE):
        pressed += keys.pressed_within(_SEQUENCE_S)
    return pressed


class _Looks:
    """Looks at hosts beside the screen, which must not stand still while a leader is silent. What is played is looked at in place."""

    def __init__(self, source: HostSource, every_s: float, playback: Playback | None) -> None:
        self._source, self._every_s, self._is_played = source, every_s, playback is not None
        self.newest = source.look(0.0)
        self.ranks: RanksOfHost | None = None
        self.events: Sequence[HostEvent] = ()
        self._host: int | None = None
        self._wake, self._ended = Event(), False
        self._thread = Thread(target=self._work, name="penstock-host-looks", daemon=True)

    def __enter__(self) -> "_Looks":
        if not self._is_played:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(_END_S)

    def want(self, host: int | None, playback: Playback | None) -> None:
        """What is to be looked at next."""
        if playback is not None:
            self.newest = self._source.look(playback.position_s)
            self.events = self._source.events(self.newest.at_s)[-EVENTS_SHOWN:]
            self.ranks = None if host is None else self._source.ranks(host)
        elif host != self._host:
            self._host, self.ranks = host, None
            self._wake.set()

    def _work(self) -> None:
        asked_s, asked_host = 0.0, None
        while not self._ended:
            self.newest = self._source.look()
            self.events = self._source.events()[-EVENTS_SHOWN:]
            host = self._host
            if host is not None and (host != asked_host or time.monotonic() - asked_s >= RANKS_S):
                ranks = self._source.ranks(host)
                asked_s, asked_host = time.monotonic(), host
                if host == self._host:
                    self.ranks = ranks
            self._wake.wait(self._every_s)
            self._wake.clear()
