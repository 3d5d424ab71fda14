"""Cells of a terminal: each host in one of them, on any screen; and a table that is as wide as asked."""

import io

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from penstock.cli.hosts.host_rows import host_lines
from penstock.cli.live.host_picture import cells_of, picture, worst_cell
from penstock.cli.live.host_view import HostView, played, words_of
from penstock.process.hosts.host_names import expand
from penstock.process.questions.number_ranges import numbers_in
from penstock.report.hosts.cell_map import LETTERS, lay_out, letter_of
from penstock.report.hosts.host_groups import groups_of
from penstock.report.hosts.playback import SPEEDS, Playback
from penstock.report.hosts.snapshot import STATES, badness, worst
from penstock.report.hosts.source import HostEvent
from tests.report.hosts.imagined import STATE_LISTS, hosts_of, snapshot_of

SIZES = st.tuples(st.integers(20, 200), st.integers(8, 60))


@given(STATE_LISTS, st.integers(0, 12), st.integers(10, 120), st.integers(1, 30))
def test_each_host_stands_in_one_cell_within_the_screen_and_racks_stay_together(
    states: list[str], racks: int, width: int, height: int
) -> None:
    hosts = hosts_of(states, racks)
    cells = lay_out(hosts, range(len(hosts)), width=width, height=height)
    assert sorted(cells.order) == list(range(len(hosts)))
    shown = [place for cell in range(cells.cells) for place in cells.places(cell)]
    assert shown == list(cells.order)
    assert len(cells.rows) <= height
    wide = max(len(row.cells) + len(row.gaps) for row in cells.rows)
    assert cells.label_width + 1 + wide <= max(width, cells.label_width + 2)
    met = [hosts[place].rack for place in cells.order]
    assert [rack for at, rack in enumerate(met) if at == 0 or met[at - 1] != rack] == list(dict.fromkeys(met))


@given(STATE_LISTS, st.integers(1, 40), st.integers(1, 5))
def test_a_cell_of_several_hosts_shows_the_worst_and_letters_are_all_different(
    states: list[str], width: int, height: int
) -> None:
    snapshot = snapshot_of(hosts_of(states, 0))
    cells = lay_out(snapshot.hosts, range(len(states)), width=width, height=height)
    for cell in range(cells.cells):
        places = cells.places(cell)
        letter, state = letter_of(snapshot, places)
        assert state == worst(states[place] for place in places)
        assert letter == ("2" if state == "late" else LETTERS[state])
    assert len(set(LETTERS.values())) == len(STATES)


@given(STATE_LISTS, SIZES, st.lists(st.sampled_from("hjkl"), max_size=30))
def test_arrows_never_leave_the_map(states: list[str], screen: tuple[int, int], keys: list[str]) -> None:
    snapshot, view = snapshot_of(hosts_of(states, 5)), HostView()
    for word in words_of("".join(keys).encode()):
        cells = cells_of(view, snapshot, screen)
        view = view.after(word, cells, 0)
        assert 0 <= view.cell < cells.cells


@given(STATE_LISTS, SIZES, st.binary(max_size=20), st.booleans())
def test_the_picture_fits_any_screen_whatever_is_pressed(
    states: list[str], screen: tuple[int, int], keys: bytes, is_played: bool
) -> None:
    """Goal: 80 x 24 at any number of hosts. Method: random hosts, screens and bytes as keys; lines and columns are counted."""
    snapshot, view = snapshot_of(hosts_of(states, 7)), HostView()
    playback = Playback(100.0) if is_played else None
    events = [HostEvent(float(at), "host", f"gpu000{at} is gone\x1b[2J" + "x" * 300) for at in range(30)]
    for word in words_of(keys):
        cells = cells_of(view, snapshot, screen)
        view = view.after(word, cells, worst_cell(snapshot, cells))
        playback = None if playback is None else played(playback, word, 50.0)
    lines = picture("exp7", snapshot, view, screen=screen, events=events, playback=playback)
    assert len(lines) <= max(screen[1], 8)
    assert max(line.cell_len for line in lines) <= max(screen[0], 20)
    assert not any("\x1b" in line.plain for line in lines)


def test_enter_goes_down_to_one_host_and_escape_back_up() -> None:
    snapshot, screen, view = snapshot_of(hosts_of(["here"] * 99 + ["gone"], 0)), (30, 10), HostView()
    for word, zoomed, host in (
        ("worst", 0, None),
        ("open", 1, None),
        ("worst", 1, None),
        ("open", 1, 99),
        ("back", 1, None),
        ("back", 0, None),
    ):
        cells = cells_of(view, snapshot, screen)
        view = view.after(word, cells, worst_cell(snapshot, cells))
        assert (len(view.zoomed), view.host, view.is_left) == (zoomed, host, False), word
    assert view.after("back", cells_of(view, snapshot, screen), 0).is_left


def test_sequences_that_mean_nothing_are_passed_by_whole() -> None:
    assert words_of(b"\x1b[15~q") == ["back"]
    assert words_of(b"\x1b[A\x1bOBx\r") == ["up", "down", "open"]
    assert words_of(b"\x1b") == ["back"]
    assert words_of(b"\x1b[") == []


@given(STATE_LISTS, st.integers(60, 120))
def test_the_table_is_as_wide_as_asked_and_its_groups_have_all_hosts_and_ranks(
    states: list[str], width: int
) -> None:
    snapshot = snapshot_of(hosts_of(states, 9), voters=("gpu0000",))
    lines = host_lines(snapshot, width)
    assert max(map(len, lines)) <= width
    groups = groups_of(snapshot)
    names = [name for group in groups for name in expand(group.names)]
    assert sorted(names) == [host.name for host in snapshot.hosts]
    ranks = {number for group in groups for number in numbers_in(group.ranks)}
    assert ranks == {
        8 * place + rank for place, state in enumerate(states) if state != "spare" for rank in range(8)
    }
    if len(states) > 32:
        assert [badness(group.state) for group in groups] == sorted(badness(group.state) for group in groups)
        assert len(groups) <= 2 * len(STATES)


@given(
    st.floats(0, 500), st.floats(0.01, 2), st.one_of(st.none(), st.floats(0, 1000)), st.sampled_from(SPEEDS)
)
def test_playing_goes_forward_to_the_end_and_passes_nothing_by(
    position: float, elapsed: float, next_s: float | None, speed: float
) -> None:
    begun = Playback(1000.0, position, speed)
    now = begun.after(elapsed, next_s)
    assert position <= now.position_s <= 1000.0 or (next_s is not None and next_s < position)
    if next_s is not None and next_s > position + elapsed * speed:
        assert now.position_s <= next_s
    assert Playback(1000.0, position, speed, is_paused=True).after(elapsed, next_s).position_s == position


def test_colours_are_not_needed_to_read_it() -> None:
    snapshot = snapshot_of(hosts_of(["here", "late", "unheard", "expired", "spare"], 0))
    lines = picture("exp7", snapshot, HostView(), screen=(80, 24))
    console = Console(width=80, file=io.StringIO(), no_color=True, record=True)
    for line in lines:
        console.print(line)
    text = console.export_text()
    assert "gpu0000 .2?Xs" in text
    assert "X expired 1  ? unheard 1  1-9 late 1  . here 1  s spare 1" in text
