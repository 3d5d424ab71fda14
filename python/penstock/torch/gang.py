"""The ranks of a run: joining them, and the two things they have to say to each other between steps."""

import atexit
import contextlib
import logging
import os
import socket
import sys
from collections.abc import Sequence
from datetime import timedelta

import torch
from torch import distributed

from penstock.errors import UsageError
from penstock.state.ranks.clock import Clock
from penstock.state.ranks.launcher import place_of

#: How long a collective may take before it is an error.
TIMEOUT_S = 600.0
#: Of what rank 0 shares: decisions, lists of skips.
_SHARED_BYTES_MAX = 1 << 30
#: Of an exchange: the length of what is given, and its beginning.
_HEAD_BYTES, _LENGTH_BYTES = 192, 8
#: A rank that waits longer for the others says so; how long it waits is the group's own limit.
PATIENCE_S = 60.0
#: How long a rank looks for the one that listens before it leaves that to torch, and how often.
STORE_PATIENCE_S, STORE_LOOK_S = 30.0, 0.005
_log = logging.getLogger("penstock.torch")


def join(backend: str | None = None, *, timeout_s: float = TIMEOUT_S) -> torch.device:
    """Join the ranks that ``penstock run``, torchrun, srun or mpirun started, and return this rank's device; alone, just return it.

    The group is ended with the process. ``backend``: ``nccl`` where there are enough devices, else ``gloo``.
    """
    place = place_of()
    rank, ranks, local = place.rank, place.ranks, place.local
    count = torch.cuda.device_count()
    if backend == "nccl" and local >= count:
        raise UsageError(f"rank {rank} is number {local} on its host, which has {count} devices")
    on_device = count > local and backend != "gloo"
    device = torch.device("cuda", local) if on_device else torch.device("cpu")
    if on_device:
        torch.cuda.set_device(device)
    if ranks > 1 and not distributed.is_initialized():
        if rank > 0:
            wait_for_store(min(timeout_s, STORE_PATIENCE_S))
        distributed.init_process_group(
            backend or ("nccl" if on_device else "gloo"),
            rank=rank,
            world_size=ranks,
            timeout=timedelta(seconds=timeout_s),
        )
        atexit.register(_leave)
    return device


def wait_for_store(timeout_s: float) -> bool:
    """Wait until rank 0 listens where the ranks meet, at most so long; whether it does.

    torch itself tries once, and then again half a second later: more than a forked rank needs for all that it does until then.
    """
    address, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT", "")
    if not address or not port.isdigit():
        return False
    clock = Clock()
    until_s = clock.ticks() + timeout_s
    while (left_s := until_s - clock.ticks()) > 0:
        with contextlib.suppress(OSError), socket.create_connection((address, int(port)), left_s):
            return True
        clock.pause(STORE_LOOK_S)
    return False


def agree(values: Sequence[float]) -> list[list[float]]:
    """The values of every rank, in the order of ranks."""
    if not _is_group():
        return [list(values)]
    own = torch.tensor(values, dtype=torch.float64)
    gathered = [torch.empty_like(own) for _ in range(distributed.get_world_size())]
    distributed.all_gather(gathered, own, group=_host_group())
    return [tensor.tolist() for tensor in gathered]


def share(document: bytes) -> bytes:
    """What rank 0 has given."""
    if not _is_group():
        return document
    length = torch.tensor([len(document)])
    distributed.broadcast(length, 0, group=_host_group())
    if int(length) > _SHARED_BYTES_MAX:
        raise UsageError(f"{int(length)} bytes are too much to share between ranks")
    payload = document if distributed.get_rank() == 0 else bytes(int(length))
    content = (
        torch.frombuffer(bytearray(payload), dtype=torch.uint8)
        if payload
        else torch.empty(0, dtype=torch.uint8)
    )
    if int(length):
        distributed.broadcast(content, 0, group=_host_group())
    return content.numpy().tobytes()


def exchange(document: bytes) -> list[bytes]:
    """What each rank has given, in the order of ranks. A short document takes one exchange, a longer one two."""
    if not _is_group():
        return [document]
    room = _HEAD_BYTES - _LENGTH_BYTES
    head = len(document).to_bytes(_LENGTH_BYTES, "big") + document[:room].ljust(room, b"\0")
    heads = _gathered(head)
    lengths = [int.from_bytes(beginning[:_LENGTH_BYTES], "big") for beginning in heads]
    longest = max(lengths)
    if longest > _SHARED_BYTES_MAX:
        raise UsageError(f"{longest} bytes are too much to exchange between ranks")
    if longest <= room:
        return [beginning[_LENGTH_BYTES:][:length] for beginning, length in zip(heads, lengths, strict=True)]
    padded = _gathered(document.ljust(longest, b"\0"))
    return [content[:length] for content, length in zip(padded, lengths, strict=True)]


def rank_and_ranks() -> tuple[int, int]:
    """Of this process in the default group."""
    return (distributed.get_rank(), distributed.get_world_size()) if _is_group() else (0, 1)


def _gathered(content: bytes) -> list[bytes]:
    """What each rank has given, of the same length everywhere."""
    own = torch.frombuffer(bytearray(content), dtype=torch.uint8)
    gathered = [torch.empty_like(own) for _ in range(distributed.get_world_size())]
    work = distributed.all_gather(gathered, own, group=_host_group(), async_op=True)
    try:
        work.wait(timedelta(seconds=PATIENCE_S))
    except RuntimeError:
        if work.is_completed():
            raise
        _log.warning(
            "rank %d has waited %.0f s for the other ranks: all of them call resume, prepare and save, in the same order",
            distributed.get_rank(),
            PATIENCE_S,
        )
        work.wait()
    return [tensor.numpy().tobytes() for tensor in gathered]


def _host_group() -> "distributed.ProcessGroup | None":
    """A group that exchanges host memory, so that nobody waits for the device: the default one, or one beside it."""
    default = distributed.group.WORLD
    if "gloo" in str(distributed.get_backend(default)) or "cpu" in _device_types(default):
        return None
    if default not in _BESIDE:
        _BESIDE.clear()
        group = distributed.new_group(backend="gloo")
        assert isinstance(group, distributed.ProcessGroup), "every rank is in it"
        _BESIDE[default] = group
    return _BESIDE[default]


def _device_types(group: "distributed.ProcessGroup | None") -> list[str]:
    assert group is not None, "there is a default group"
    return [device.type for device in group._device_types]


_BESIDE: "dict[distributed.ProcessGroup | None, distributed.ProcessGroup]" = {}


def _is_group() -> bool:
    return distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1


def _leave() -> None:
    # After an error a peer may be gone, and nobody waits for it.
    if distributed.is_initialized() and not hasattr(sys, "last_value"):
        distributed.destroy_process_group()
