"""Messages by hand are those of protobuf itself, and records that are filled in numpy are those that are made one by one."""

import struct

import numpy as np
import pytest
from google.protobuf import wrappers_pb2
from hypothesis import given
from hypothesis import strategies as st

from penstock.report.exports import protobuf_wire as wire
from penstock.report.exports.record_template import (
    HALF,
    MOMENT,
    WORD,
    RecordTemplate,
    Slot,
    digit_widths,
    varint_widths,
)
from penstock.report.exports.tensorboard_events import masked_crcs

INT64 = st.integers(-(2**63), 2**63 - 1)


@given(INT64, st.floats(), st.text())
def test_protobuf_reads_what_is_written_by_hand(number: int, value: float, words: str) -> None:
    assert wrappers_pb2.Int64Value.FromString(wire.integer(1, number)).value == number
    read = wrappers_pb2.DoubleValue.FromString(wire.double(1, value)).value
    assert struct.pack("<d", read) == struct.pack("<d", value)
    assert wrappers_pb2.StringValue.FromString(wire.text(1, words)).value == words
    (field,) = wire.fields(wire.text(7, words))
    assert field == (7, words.encode())


@given(st.binary(max_size=40))
def test_bytes_of_anybody_are_fields_or_a_value_error(data: bytes) -> None:
    try:
        read = list(wire.fields(data))
    except ValueError:
        return
    assert len(read) <= len(data)


def test_what_utf_8_cannot_hold_is_escaped() -> None:
    assert wrappers_pb2.StringValue.FromString(wire.text(1, "a\ud800")).value == "a\\ud800"


@given(st.lists(st.integers(2**56, 2**63 - 1), min_size=1, max_size=20))
def test_filled_records_are_those_made_one_by_one(moments: list[int]) -> None:
    column = np.array(moments, np.int64)
    rows = RecordTemplate(wire.tag(8, 0), MOMENT, wire.tag(3, 1), WORD).fill(len(moments), column, column)
    expected = [wire.integer(8, moment) + wire.fixed64(3, moment) for moment in moments]
    assert [row.tobytes() for row in rows] == expected


@given(st.integers(0, 2**53 - 1))
def test_widths_are_those_of_the_numbers(number: int) -> None:
    column = np.array([number])
    width = int(digit_widths(column)[0])
    assert RecordTemplate(Slot("digits", width)).fill(1, column).tobytes() == str(number).encode()
    width = int(varint_widths(column)[0])
    assert RecordTemplate(Slot("varint", width)).fill(1, column).tobytes() == wire.varint(number)
    short = column.astype(np.float32)
    assert RecordTemplate(HALF).fill(1, short).tobytes() == struct.pack("<f", float(short[0]))


@pytest.mark.parametrize(("data", "crc"), [(b"", 0x0), (b"123456789", 0xE3069283), (bytes(32), 0x8A9136AA)])
def test_checks_are_crc32c(data: bytes, crc: int) -> None:
    """Values of RFC 3720 and of the catalogue of CRCs, rotated as TensorFlow stores them."""
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    assert masked_crcs(np.frombuffer(data, np.uint8).reshape(1, -1)).tolist() == [masked]
