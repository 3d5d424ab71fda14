"""A measurement may keep several things per row, cover some rows only, and bear rows that nothing can be made of."""

import itertools
import json
import threading
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from penstock import Registry, Version, errors
from penstock.formats.contract import Row
from penstock.registry.columns.column import Column, Part, column_key
from penstock.registry.columns.measure import Computed, Limits, NothingToMeasure, measure_version
from tests.registry.conftest import WriteRows


class Digits:
    """The digits of a row's number, and which of them are odd."""

    name = "digits"
    dtype = "<u4"

    def __init__(self) -> None:
        self.threads: set[str] = set()

    @property
    def payloads(self) -> dict[str, str]:
        return {"digits": "<u2", "odd": "|u1"}

    def identity(self) -> dict[str, str]:
        return {"kind": "digits"}

    def read(self, row: Row) -> str:
        if not isinstance(row.get("id"), int):
            raise NothingToMeasure(f"{row.get('id')!r} has no digits")
        return str(row["id"])

    def compute(self, samples: list[str]) -> Computed:
        self.threads.add(threading.current_thread().name)
        digits = [[int(digit) for digit in sample] for sample in samples]
        odd = [[digit % 2 for digit in row] for row in digits]
        return [len(row) for row in digits], {"digits": digits, "odd": odd}

    def payload_bytes(self, version: Version) -> int:
        return version.rows * 10


def lists(version: Version, field: str) -> list[list[int]]:
    return [np.asarray(row[field]).tolist() for row in version]


def test_each_payload_is_a_version_of_its_own(
    registry: Registry, write_rows: WriteRows, tmp_path: Path
) -> None:
    write_rows("a.jsonl", 0, 1500)
    write_rows("b.jsonl", 1500, 200)
    version = registry.register("web", tmp_path / "raw")

    column = registry.measure("web", Digits())

    digits, odd = registry.payload(version, column), registry.payload(version, column, "odd")
    expected = [[int(digit) for digit in str(row)] for row in range(1700)]
    assert registry.values(column).tolist() == [len(row) for row in expected]
    assert lists(digits, "digits") == expected
    assert lists(odd, "odd") == [[digit % 2 for digit in row] for row in expected]
    assert (digits.rows, odd.rows) == (version.rows, version.rows)
    assert digits.about.derived_from == odd.about.derived_from == (version.digest,)
    assert digits.digest == registry.payload(version, column, "digits").digest
    with pytest.raises(errors.UsageError, match="keeps no even"):
        registry.payload(version, column, "even")
    assert registry.measure("web", Digits()) == column


def test_equal_payloads_of_several_shards_are_still_rows_of_their_own(
    local: Registry, tmp_path: Path
) -> None:
    """Which tokens count in the loss is often the same for all rows of many shards: one file, several shards."""
    for number in range(3):
        (tmp_path / f"{number}.jsonl").write_text('{"id": 1}\n{"id": 1}\n')
    version = local.register("web", [tmp_path / f"{number}.jsonl" for number in range(3)])
    odd = local.payload(version, local.measure("web", Digits()), "odd")
    assert lists(odd, "odd") == [[1]] * 6
    assert [np.asarray(odd[row]["odd"]).tolist() for row in (5, 0, 3)] == [[1]] * 3


def test_pieces_are_columns_of_their_own(registry: Registry, write_rows: WriteRows, tmp_path: Path) -> None:
    write_rows("a.jsonl", 0, 120)
    write_rows("b.jsonl", 120, 30)
    version = registry.register("web", tmp_path / "raw")
    whole = measure_version(registry, version, Digits())
    pieces = [(8, 12), (98, 130)]

    progress: list[tuple[int, int]] = []
    column = measure_version(
        registry, version, Digits(), pieces=pieces, watch=lambda done, total: progress.append((done, total))
    )

    rows = [*range(8, 12), *range(98, 130)]
    assert column.key != whole.key
    assert progress[-1] == (36, 36)
    assert [part.rows for part in column.parts] == [4, 32]
    assert registry.values(column).tolist() == [len(str(row)) for row in rows]
    digits = registry.payload(version, column)
    assert lists(digits, "digits") == [[int(digit) for digit in str(row)] for row in rows]
    # The newest version of the plain name still has all rows.
    assert registry.resolve(digits.name.removesuffix("/pieces")).rows == version.rows
    assert measure_version(registry, version, Digits(), pieces=pieces) == column
    other = measure_version(registry, version, Digits(), pieces=[(0, 5)])
    assert registry.payload(version, other).rows == 5


def test_keys_and_stored_forms_from_before_are_what_they_were() -> None:
    """Goal: columns that others measured are found and read. Method: a key and documents of the first form, as bytes."""
    identity = {"kind": "tokens", "field": "text"}
    assert column_key("b3:00", identity) == column_key("b3:00", identity, [])
    assert column_key("b3:00", identity) == "a14ac9e61ba5da114ad9bf8a3913a0fad0a1e8c8c9a74eda1340267f73f4586b"
    part = b'{"rows":3,"values":"b3:11","payload":""}'
    document = (
        b'{"form":1,"version":"b3:00","name":"verdict","dtype":"|u1","measure":{"kind":"verdict"},"parts":['
        + part
        + b'],"payload_version":""}'
    )
    column = msgspec.json.decode(document, type=Column)
    assert column == Column(1, "b3:00", "verdict", "|u1", {"kind": "verdict"}, [Part(3, "b3:11")])
    assert column.undecodable == []


@pytest.mark.parametrize("rows", [5000])
def test_one_shard_is_computed_by_several_threads_in_order(
    local: Registry, write_rows: WriteRows, rows: int
) -> None:
    version = local.register("web", write_rows("a.jsonl", 0, rows))
    measure = Digits()
    progress: list[int] = []
    column = measure_version(local, version, measure, watch=lambda done, total: progress.append(done))
    assert local.values(column).tolist() == [len(str(row)) for row in range(rows)]
    assert progress == sorted(progress)
    assert (len(progress), progress[-1]) == (5, rows)
    assert all(name.startswith("penstock-portion") for name in measure.threads)


def test_large_rows_are_measured_few_at_a_time(local: Registry, tmp_path: Path) -> None:
    """Goal: bounded memory. Method: rows of 2 MB, of which a portion must not have more than two."""
    lines = [json.dumps({"id": row, "text": "7 " * 1_000_000}) + "\n" for row in range(5)]
    (tmp_path / "a.jsonl").write_text("".join(lines))
    version = local.register("web", tmp_path / "a.jsonl")
    sizes = []

    class Sizes(Digits):
        def compute(self, samples: list[str]) -> Computed:
            sizes.append(len(samples))
            return super().compute(samples)

    assert local.values(measure_version(local, version, Sizes())).tolist() == [1] * 5
    assert max(sizes) <= 2
    assert sum(sizes) == 5


def write_bad(folder: Path, rows: int, bad: set[int]) -> Path:
    path = folder / "bad.jsonl"
    lines = [{"id": row if row not in bad else f"x{row}", "text": "row"} for row in range(rows)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def registered(local: Registry, folder: Path, bad: set[int]) -> Version:
    from penstock import Policy

    return local.register("web", write_bad(folder, 3000, bad), policy=Policy(mixed=True))


def test_rows_that_nothing_can_be_made_of_are_empty_and_listed(local: Registry, tmp_path: Path) -> None:
    bad = {0, 1023, 1024, 2999}
    version = registered(local, tmp_path, bad)
    with pytest.raises(errors.SampleUndecodable, match=r"web@1 row 0 .*'x0' has no digits") as raised:
        measure_version(local, version, Digits())
    assert (raised.value.sample, raised.value.shard) == (0, "bad.jsonl")

    column = measure_version(local, version, Digits(), limits=Limits(undecodable_max=4))

    assert [(entry.row, entry.reason) for entry in column.undecodable] == [
        (row, f"'x{row}' has no digits") for row in sorted(bad)
    ]
    values = local.values(column)
    digits = lists(local.payload(version, column), "digits")
    odd = lists(local.payload(version, column, "odd"), "odd")
    for row in range(3000):
        expected = [] if row in bad else [int(digit) for digit in str(row)]
        assert (values[row], digits[row], len(odd[row])) == (len(expected), expected, len(expected))
    # It is there now, but not for who does not bear it.
    with pytest.raises(errors.SampleUndecodable, match="row 0"):
        measure_version(local, version, Digits())
    with pytest.raises(errors.TooManyUndecodable, match="more than 3"):
        measure_version(local, version, Digits(), limits=Limits(undecodable_max=3))


def test_too_many_such_rows_are_an_error(local: Registry, tmp_path: Path) -> None:
    version = registered(local, tmp_path, set(range(0, 3000, 2)))
    with pytest.raises(errors.TooManyUndecodable, match=r"more than 1000 .* row 2000"):
        measure_version(local, version, Digits(), limits=Limits(undecodable_max=1000))


def test_damage_is_never_taken_for_a_bad_row(local: Registry, tmp_path: Path) -> None:
    version = registered(local, tmp_path, {5})
    path = tmp_path / "bad.jsonl"
    data = bytearray(path.read_bytes())
    data[2000] ^= 1
    path.write_bytes(data)
    with pytest.raises(errors.CorruptShard, match=r"bad\.jsonl"):
        measure_version(local, version, Digits(), limits=Limits(undecodable_max=1000))


def test_a_row_that_its_format_cannot_decode_is_one_of_them(local: Registry, tmp_path: Path) -> None:
    """Method: a reader that fails on some rows, as a decoder of media does, put in front of the real one."""
    version = registered(local, tmp_path, set())

    class Picky(type(version)):  # type: ignore[misc]
        def take(self, rows: Any) -> list[Row]:
            if any(row in (7, 2000) for row in rows):
                raise ValueError("not a picture")
            taken: list[Row] = super().take(rows)
            return taken

    picky = Picky(record=version.record, manifest=version.manifest, registry=local.store, roots=version.roots)
    column = measure_version(local, picky, Digits(), limits=Limits(undecodable_max=9))
    assert [entry.row for entry in column.undecodable] == [7, 2000]
    assert "ValueError: not a picture" in column.undecodable[0].reason
    assert local.values(column)[[6, 7, 8, 2000]].tolist() == [1, 0, 1, 0]


def test_a_failure_in_one_piece_ends_the_others_soon(local: Registry, write_rows: WriteRows) -> None:
    """Goal: an error is not held back by a large shard. Method: one that fails while another has portions without end."""
    version = local.register("web", write_rows("a.jsonl", 0, 4000))
    begun = itertools.count()

    class Failing(Digits):
        def compute(self, samples: list[str]) -> Computed:
            next(begun)
            raise errors.StoreFailed(verb="read", url="somewhere", reason="the disk is gone")

    with pytest.raises(errors.StoreFailed, match="disk is gone"):
        measure_version(local, version, Failing(), pieces=[(row, row + 1) for row in range(4000)])
    assert next(begun) < 200
