"""Records: what every step was, read back as they count, whatever was torn."""

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.data import join
from penstock.errors import RunDamaged
from penstock.run.journal import step_records as records
from penstock.run.journal.step_records import Records, StepRecord


def record(step: int, life: int, rank: int = 0) -> StepRecord:
    return StepRecord(
        step,
        f"{1000 * life + 100 * rank + step:032x}",
        step / 3,
        step / 7,
        1.5,
        64,
        f"{step + 1:032x}",
        {"python": step, "torch": life},
        ended=100.0 + step,
    )


def written(directory: Path, life: int, marks: list[tuple[int, int]], ranks: int = 1) -> None:
    """A life that went on from the first of each pair of steps up to the second."""
    for rank in range(ranks):
        writer = Records(directory, life, (rank, ranks), (rank, ranks))
        for first, stop in marks:
            writer.mark(first)
            for step in range(first, stop):
                writer.write(record(step, life, rank))
        writer.close()


def test_a_later_life_replaces_what_it_executes_again(tmp_path: Path) -> None:
    """Goal: what counts is the last execution. Method: lives that overlap, and one that goes back behind another's beginning."""
    written(tmp_path, 0, [(0, 10)])
    written(tmp_path, 1, [(5, 8)])
    written(tmp_path, 2, [(6, 9), (4, 7)])

    steps = records.read_rank(tmp_path, 0)

    assert list(steps.values()) == [record(step, 0) for step in range(4)] + [
        record(step, 2) for step in (4, 5, 6)
    ]
    assert {step: whole.incarnation for step, whole in records.read(tmp_path).items()} == {
        step: 0 if step < 4 else 2 for step in range(7)
    }


def test_the_last_step_is_found_without_reading_all(tmp_path: Path) -> None:
    assert records.last_step(tmp_path) == -1
    written(tmp_path, 0, [(0, 10)], ranks=2)
    assert records.last_step(tmp_path) == 9
    written(tmp_path, 1, [(5, 5)])
    assert records.last_step(tmp_path) == 4


def test_steps_of_all_ranks_have_the_digest_of_the_whole_batch(tmp_path: Path) -> None:
    written(tmp_path, 0, [(0, 4)], ranks=4)
    written(tmp_path, 1, [(2, 6)], ranks=2)

    whole = records.read(tmp_path)

    assert list(whole) == list(range(6))
    for step, ranks, life in ((1, 4, 0), (2, 2, 1), (5, 2, 1)):
        assert whole[step].batch == join([record(step, life, rank).batch for rank in range(ranks)])
        assert list(whole[step].ranks) == list(range(ranks))


@given(cut=st.integers(0, 81 * 12))
def test_a_torn_end_is_left_out(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    directory = tmp_path_factory.mktemp("torn")
    written(directory, 0, [(0, 4)])
    (path,) = (directory / records.FOLDER).iterdir()
    path.write_bytes(path.read_bytes()[:cut])

    steps = records.read_rank(directory, 0)

    assert steps == {step: record(step, 0) for step in range(max(0, min(4, (cut // 80 - 3) // 2)))}


def test_damage_in_the_middle_is_an_error(tmp_path: Path) -> None:
    written(tmp_path, 0, [(0, 4)])
    (path,) = (tmp_path / records.FOLDER).iterdir()
    data = bytearray(path.read_bytes())
    data[3 * 80 + 40] ^= 1
    path.write_bytes(data)
    with pytest.raises(RunDamaged, match="check does not match") as caught:
        records.read(tmp_path)
    assert caught.value.place == 3 * 80
    path.write_bytes(b"something else" * 20)
    with pytest.raises(RunDamaged, match="begins with"):
        records.read(tmp_path)


@given(st.floats(allow_nan=True))
def test_loss_bits_are_the_bits(loss: float) -> None:
    text = StepRecord(0, "", loss).loss_bits
    packed = struct.pack("<d", float.fromhex(text))
    assert packed == struct.pack("<d", loss) or loss != loss


@given(
    st.dictionaries(st.text("abcdefg", min_size=1, max_size=7), st.integers(0, (1 << 32) - 1), max_size=12)
)
def test_any_number_of_generators_comes_back(
    tmp_path_factory: pytest.TempPathFactory, stands: dict[str, int]
) -> None:
    directory = tmp_path_factory.mktemp("stands")
    writer = Records(directory, 0, (0, 1), (0, 1))
    writer.mark(0)
    writer.write(StepRecord(0, "", stands=stands, ended=12.5))
    writer.end(1)
    writer.close()

    (life,) = records.lives(directory)

    assert life.steps[0].stands == stands
    assert [(moment.kind, moment.step) for moment in life.moments] == [("mark", 0), ("step", 0), ("end", 1)]
    assert life.moments[1].at == 12.5
    assert life.born <= life.began <= life.moments[0].at
