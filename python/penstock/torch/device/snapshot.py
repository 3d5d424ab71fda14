"""A second copy of what is saved, on the device itself, where that has ample room.

To the host a state takes longer than a step, and the optimizer may not step before it is copied; on the device it takes milliseconds. So the state is first copied
there, in the order of training's own work, and reaches the host from the copy while training goes on. The memory is kept between saves: taking
it from training's own pool would cost more than it saves.
"""

from typing import NamedTuple

import torch

from penstock.torch.device.driver import Driver

#: Of what a snapshot takes, so much must be free beside it, and so much of the whole device.
_SPARE_TIMES = 2
_SPARE_SHARE = 10


class Stretch(NamedTuple):
    """Bytes of a tensor, and where they go in pinned memory."""

    source: int
    host: int
    length: int
    #: Whether this begins a segment of pinned memory, which a copy may not cross into.
    begins_segment: bool = False


class Snapshot:
    """Memory of one device for one capture."""

    def __init__(self, device: torch.device, launch: Driver) -> None:
        self._device, self._launch = device, launch
        self._address, self._bytes = 0, 0
        #: When the last one has left for the host, so that the memory may be written to again.
        self._gone: torch.cuda.Event | None = None

    def has_room(self, bytes_: int) -> bool:
        """Whether so much can be copied here; takes the memory if it is not there yet."""
        if bytes_ <= self._bytes:
            return True
        self.release()
        free, total = torch.cuda.mem_get_info(self._device)
        if free < (1 + _SPARE_TIMES) * bytes_ + total // _SPARE_SHARE:
            return False
        self._address = self._launch.allocate(bytes_)
        self._bytes = bytes_ if self._address else 0
        return bool(self._address)

    def copy(
        self, stretches: list[Stretch], stream: torch.cuda.Stream, side: torch.cuda.Stream
    ) -> torch.cuda.Event:
        """Copy on the device in the order of a stream, then to the host on another; the moment at which the sources may be written to."""
        if self._gone is not None:
            stream.wait_event(self._gone)
        at, handle = self._address, stream.cuda_stream
        runs: list[list[int]] = []
        for stretch in stretches:
            self._launch.within(at, stretch.source, stretch.length, handle)
            if runs and runs[-1][0] + runs[-1][2] == stretch.host and not stretch.begins_segment:
                runs[-1][2] += stretch.length
            else:
                runs.append([stretch.host, at, stretch.length])
            at += stretch.length
        taken = torch.cuda.Event()
        taken.record(stream)
        side.wait_event(taken)
        for host, source, length in runs:
            self._launch.to_host(host, source, length, side.cuda_stream)
        self._gone = torch.cuda.Event()
        self._gone.record(side)
        return taken

    def release(self) -> None:
        """Give the memory back."""
        if self._address:
            if self._gone is not None:
                self._gone.synchronize()
            self._launch.free(self._address)
        self._address, self._bytes, self._gone = 0, 0, None
