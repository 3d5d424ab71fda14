"""What pods write, followed by ``kubectl logs``: one process for each pod, whole lines, none twice.

A connection to a pod breaks when its node or the control plane does. It is made again from the time of the last line that came; lines carry the
node's time for that, which is taken off before they are shown.
"""

import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from penstock.process.engines.kubernetes.kubectl import Kubectl
from penstock.process.engines.kubernetes.pod_state import PodState

#: Of more pods than this a job's own ``penstock logs -f`` shows more for less.
PODS_MAX = 64
#: Lines that wait for the terminal; a reader that is behind holds its pod's reader back.
LINES_MAX = 10_000
AGAIN_S, AGAIN_MOST_S = 1.0, 15.0
#: For the rest of what ended pods wrote.
REST_S = 10.0


class PodOutput:
    """Follows all pods of an allocation, also those that are made later."""

    def __init__(self, place: Kubectl, pods: Callable[[], Sequence[PodState]]) -> None:
        self._place, self._pods = place, pods
        self._lines: deque[bytes] = deque()
        self._room = threading.Condition()
        self._followers: dict[str, _Follower] = {}
        self._is_closed = False

    def show(self) -> None:
        """Write what came since the last time."""
        for pod in self._pods():
            if pod.name not in self._followers and pod.phase != "waiting" and len(self._followers) < PODS_MAX:
                self._followers[pod.name] = _Follower(self._place, pod.name, self._take)
        with self._room:
            lines = list(self._lines)
            self._lines.clear()
            self._room.notify_all()
        if lines:
            sys.stdout.buffer.write(b"".join(lines))
            sys.stdout.buffer.flush()

    def close(self) -> None:
        """The rest of what ended pods wrote; then nobody is followed."""
        until = time.monotonic() + REST_S
        ended = {pod.name for pod in self._pods() if pod.phase == "ended"}
        while time.monotonic() < until and any(
            follower.is_alive() for name, follower in self._followers.items() if name in ended
        ):
            self.show()
            time.sleep(0.05)
        with self._room:
            self._is_closed = True
            self._room.notify_all()
        for follower in self._followers.values():
            follower.end()
        self.show()

    def _take(self, line: bytes) -> bool:
        """A line of a follower; whether more are wanted."""
        with self._room:
            while len(self._lines) >= LINES_MAX and not self._is_closed:
                self._room.wait()
            if self._is_closed:
                return False
            self._lines.append(line)
            return True


class _Follower:
    """The thread of one pod."""

    def __init__(self, place: Kubectl, pod: str, take: Callable[[bytes], bool]) -> None:
        self._place, self._pod, self._take = place, pod, take
        self._last = b""
        self._ended = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._run, name=f"penstock-pod-{pod}", daemon=True)
        self._thread.start()

    def is_alive(self) -> bool:
        """Whether lines may still come."""
        return self._thread.is_alive()

    def end(self) -> None:
        """Stop following."""
        self._ended.set()
        if self._process is not None:
            self._process.kill()

    def _run(self) -> None:
        pause = AGAIN_S
        while not self._ended.is_set():
            since = [f"--since-time={self._last.decode()}"] if self._last else []
            words = self._place.command("logs", "-f", "--timestamps", *since, self._pod, limited=False)
            try:
                self._process = subprocess.Popen(
                    words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
                )
            except OSError:
                return
            came = self._read(self._process)
            # The container has ended and all was read, or there is no such pod any more.
            if self._process.wait() == 0 or self._is_gone():
                return
            pause = AGAIN_S if came else min(2 * pause, AGAIN_MOST_S)
            self._ended.wait(pause)

    def _read(self, process: subprocess.Popen[bytes]) -> bool:
        came, shown = False, self._last
        assert process.stdout is not None
        for line in process.stdout:
            stamp, _, rest = line.partition(b" ")
            # Stamps of one node grow; the second in which the connection broke is sent again.
            if stamp <= shown:
                continue
            came, self._last = True, stamp
            if not self._take(rest):
                process.kill()
                return came
        return came

    def _is_gone(self) -> bool:
        done = subprocess.run(
            self._place.command("get", "pod", self._pod, "-o", "name"),
            capture_output=True,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        return b"(NotFound)" in done.stderr
