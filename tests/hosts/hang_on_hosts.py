"""A gang in which one rank hangs three times, each time elsewhere, while all others wait for it in a collective of gloo.

``python hang_on_hosts.py FOLDER ODD``: first at a lock, then in C code, then in another collective. A byte in ``fifo-PHASE`` ends each
of the first two: one of their own, because whoever wrote to the first may not have closed it yet. ``hangs-PHASE-RANK`` says how far a rank is.
"""

import ctypes
import os
import sys
import threading
from pathlib import Path

import torch
import torch.distributed as dist


def wait_at_a_lock(fifo: Path) -> None:
    """Another thread has it until a byte comes."""
    lock, taken = threading.Lock(), threading.Event()

    def hold() -> None:
        with lock:
            taken.set()
            os.read(os.open(fifo, os.O_RDONLY), 1)

    threading.Thread(target=hold, daemon=True).start()
    taken.wait()
    with lock:
        pass


def wait_in_c(fifo: Path) -> None:
    """In a function of the C library, called from Python."""
    libc, byte = ctypes.CDLL(None), ctypes.create_string_buffer(1)
    libc.read(os.open(fifo, os.O_RDONLY), byte, 1)


def main(folder: Path, odd: int) -> None:
    """The program."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    value = torch.ones(1)
    for phase, wait in enumerate((wait_at_a_lock, wait_in_c)):
        (folder / f"hangs-{phase}-{rank}").touch()
        if rank == odd:
            wait(folder / f"fifo-{phase}")
        dist.all_reduce(value)
    (folder / f"hangs-2-{rank}").touch()
    if rank == odd:
        dist.recv(value, src=0)
    else:
        dist.barrier()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
