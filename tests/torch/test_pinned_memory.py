"""Host memory of copies is found and cut as pinning asks for; what needs a device is checked by ``benchmarks.gpu.copies``."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.torch.device import pinned_memory as pinning
from penstock.torch.device.pinned_memory import Arena, Arenas


@given(first=st.integers(0, 5 * pinning.SEGMENT_BYTES), length=st.integers(1, 4 * pinning.SEGMENT_BYTES))
def test_no_part_crosses_from_one_segment_into_the_next(first: int, length: int) -> None:
    parts = list(Arena(memoryview(bytearray(8))).cut(first, length))
    assert parts[0][0] == 0
    assert sum(size for _, size in parts) == length
    for begin, size in parts:
        assert (first + begin) // pinning.SEGMENT_BYTES == (first + begin + size - 1) // pinning.SEGMENT_BYTES
    assert [begin for begin, _ in parts[1:]] == [begin + size for begin, size in parts[:-1]]


def test_memory_that_nobody_pinned_is_used_as_it_is() -> None:
    """Method: memory that may be written to, and memory that may not, as tensors over the same bytes."""
    writable = bytearray(range(9))
    for memory in (memoryview(writable)[2:7], memoryview(bytes(writable))[2:7]):
        ((begin, tensor),) = Arenas().pieces(memory)
        assert (begin, tensor.tolist()) == (0, [2, 3, 4, 5, 6])
        assert Arenas().places(memory) is None
    ((_, tensor),) = Arenas().pieces(memoryview(writable)[2:7])
    tensor[0] = 99
    assert writable[2] == 99
