"""Equal lines of many hosts as one: nothing is lost, doubled or put out of order (P5)."""

import re
from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from penstock.process.hosts.launcher.equal_lines import WAIT_S, WAITING_BYTES_MAX, EqualLines
from penstock.process.questions.number_ranges import numbers_in

WRITTEN = st.lists(
    st.tuples(
        st.integers(0, 11), st.sampled_from([1, 2]), st.sampled_from(["a", "b", "[3] c"]), st.floats(0, 0.06)
    ),
    max_size=60,
)


def _shown(lines: list[tuple[int, bytes]]) -> dict[tuple[int, int], list[str]]:
    """What each rank wrote to each stream, as it can be read from what is shown."""
    found: dict[tuple[int, int], list[str]] = defaultdict(list)
    for stream, line in lines:
        label, text = re.fullmatch(r"\[([^\]]*)\] (.*)\n", line.decode()).groups()  # type: ignore[union-attr]
        for rank in numbers_in(label):
            found[rank, stream].append(text)
    return found


@given(WRITTEN)
def test_what_each_rank_wrote_can_be_read_from_what_is_shown(
    written: list[tuple[int, int, str, float]],
) -> None:
    """Goal: P5. Method: any lines of twelve ranks at any moments; unfolded, the lines shown are the lines written, in the order of each rank."""
    waiting, shown, now_s = EqualLines(), [], 0.0
    expected: dict[tuple[int, int], list[str]] = defaultdict(list)
    for rank, stream, text, pause_s in written:
        now_s += pause_s
        shown += waiting.take(now_s)
        waiting.add(f"gpu{rank:02}", stream, f"[{rank:>2}] {text}\n".encode(), now_s)
        expected[rank, stream].append(text)
        assert waiting.due_s is not None
        assert waiting.due_s <= now_s + WAIT_S
    shown += waiting.take_all()

    assert _shown(shown) == expected
    assert waiting.waiting_bytes == 0
    assert waiting.due_s is None


def _folded(*lines: tuple[str, str]) -> list[str]:
    waiting = EqualLines()
    for host, line in lines:
        waiting.add(host, 1, line.encode(), 0.0)
    return [line.decode() for _, line in waiting.take_all()]


def test_equal_lines_are_one_with_ranges_and_others_stay_apart() -> None:
    said = [(f"gpu{rank // 8:02}", f"[{rank:>4}] epoch 3\n") for rank in range(1024) if rank != 512]

    assert _folded(*said, ("gpu64", "[ 512] nan\n")) == ["[0-511,513-1023] epoch 3\n", "[ 512] nan\n"]


def test_roles_and_colours_stay_and_lines_of_no_rank_name_their_hosts() -> None:
    assert _folded(
        ("a1", "\x1b[36m[trainer-0] \x1b[0mgo\n"),
        ("a2", "\x1b[33m[trainer-1] \x1b[0mgo\n"),
        ("a2", "\x1b[35m[ loader-0] \x1b[0mgo\n"),
        ("a1", "[penstock] waits for hosts\n"),
        ("a2", "[penstock] waits for hosts\n"),
        ("a2", "error: it ended\n"),
    ) == [
        "\x1b[36m[trainer-[0-1]] \x1b[0mgo\n",
        "\x1b[35m[ loader-0] \x1b[0mgo\n",
        "[penstock] waits for hosts (a[1-2])\n",
        "error: it ended\n",
    ]


def test_a_flood_of_different_lines_is_shown_at_once_and_stays_within_its_room() -> None:
    waiting, shown = EqualLines(), 0
    for number in range(80_000):
        waiting.add("gpu01", 1, f"[0] line {number}\n".encode(), 0.0)
        shown += sum(1 for _ in waiting.take(0.0))
        assert waiting.waiting_bytes <= WAITING_BYTES_MAX
    assert shown + sum(1 for _ in waiting.take_all()) == 80_000
