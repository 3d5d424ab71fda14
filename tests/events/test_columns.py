"""Recordings as arrays say what their events say, wherever a file is cut or flipped."""

import random
from pathlib import Path

import numpy as np
import pytest

from penstock import events
from penstock.errors import NotAnEventFile
from penstock.events.columns import OPEN, POINT, read_table
from penstock.report.recording import KindTally, summaries_of


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """Points and spans of many kinds, inside of each other; some never end."""
    chance, path = random.Random(1), tmp_path / "run.pev"
    kinds = [f"kind.{number}" for number in range(9)]
    with events.recording(path):
        open_spans: list[events.Span] = []
        for number in range(3000):
            what = chance.random()
            if what < 0.3:
                events.record(chance.choice(kinds), number=number, text="é" * chance.randint(0, 9))
            elif what < 0.7 or not open_spans:
                open_spans.append(events.span(chance.choice(kinds), number=number))
            else:
                open_spans.pop(chance.randrange(len(open_spans))).__exit__(None, None, None)
            if number % 100 == 0:
                events.flush()
    return path


def check_equal(path: Path) -> int:
    """Order, values, losses and tear are those of the objects; how many there are."""
    table, read = read_table(path), events.read(path)
    whole = list(read)
    tally = KindTally()
    for event in whole:
        tally.add(event)
    durations = [
        OPEN if event.open else POINT if event.duration_ns is None else event.duration_ns for event in whole
    ]
    assert [table.kinds[number] for number in table.kind.tolist()] == [event.kind for event in whole]
    assert table.time_ns.tolist() == [event.time_ns for event in whole]
    assert table.duration_ns.tolist() == durations
    assert table.thread.tolist() == [event.thread for event in whole]
    assert (table.lost, table.torn_bytes, table.closed) == (read.lost, read.torn_bytes, read.closed)
    assert table.process == read.process
    assert summaries_of([table]) == tally.summaries()
    return len(table)


def test_arrays_and_objects_are_the_same_wherever_a_file_is_cut_or_flipped(
    recording: Path, tmp_path: Path
) -> None:
    """Goal: one truth about a file. Method: whole, cut and flipped at random places; every column, order and count beside the objects."""
    whole = recording.read_bytes()
    assert check_equal(recording) > 1500
    damaged = tmp_path / "damaged.pev"
    for place in random.Random(2).sample(range(1000, len(whole)), 40):
        for content in (whole[:place], whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :]):
            damaged.write_bytes(content)
            check_equal(damaged)


def test_kinds_of_several_recordings_are_summed_and_chosen_by_their_beginning(recording: Path) -> None:
    table = read_table(recording)
    (one,) = summaries_of([table], "kind.3")
    (two,) = summaries_of([table, table], "kind.3")
    assert (two.count, two.open_count, two.max_ns) == (2 * one.count, 2 * one.open_count, one.max_ns)
    assert one.count == int((table.kind == table.kinds.index("kind.3")).sum())
    assert summaries_of([table], "nothing") == []
    assert table.duration_ns.dtype == np.int64


def test_something_else_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "notes.pev"
    path.write_text("just some notes, longer than a header")
    with pytest.raises(NotAnEventFile, match=r"notes\.pev"):
        read_table(path)
