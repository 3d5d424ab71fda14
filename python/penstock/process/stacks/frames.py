"""What a look at a worker's process found: threads with frames, and what the kernel says about it."""

import msgspec


class Frame(msgspec.Struct, frozen=True):
    """One call, innermost first in its thread."""

    function: str
    #: A Python file, or the library of a native function.
    file: str
    #: 0 where it is not known.
    line: int = 0
    native: bool = False


class Thread(msgspec.Struct, frozen=True):
    """A thread of a process."""

    name: str
    frames: tuple[Frame, ...]


class Kernel(msgspec.Struct, frozen=True):
    """What /proc says about a process; known for every program, Python or not."""

    #: One letter, as ``ps`` has it: R runs, S sleeps, D sleeps in the kernel and cannot be killed, T is stopped, Z is over.
    state: str = "?"
    #: The function of the kernel that it waits in.
    waits_in: str = ""
    threads: int = 0
    command: str = ""


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """One worker at one moment."""

    role: str
    rank: int
    #: The worker's own process, and the one that was looked at: below a shell, the Python that it started.
    pid: int
    process: int
    kernel: Kernel = Kernel()
    threads: tuple[Thread, ...] = ()
    #: Whether frames of native code are among them.
    native: bool = False
    #: Why there are no frames, or none of native code.
    problem: str = ""

    @property
    def worker(self) -> str:
        """As people call it."""
        return f"{self.role}-{self.rank}"
