"""What exporting a run of a million steps takes, by form: processor time, memory of the process, bytes on the disk.

Rows are those of a recorder: six parts, the device's split, five facts, two scalars, a hundredth of them torn apart by a second life.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from benchmarks.table import Table
from penstock.observe.steps import StepRecorder

STEPS = 1_000_000
#: Steps that the second life executes again.
AGAIN = 10_000
_PARTS = ("data", "forward", "backward", "optimizer", "judge")


def run() -> Table:
    """Measure in one run."""
    table = Table("a million steps are exported in a minute of one processor at most", "s of processor time")
    with tempfile.TemporaryDirectory() as folder, _receiver() as url:
        place = Path(folder)
        _recorded(place / "run")
        targets = {
            "parquet": f"parquet:{place / 'parquet'}",
            "tensorboard": f"tensorboard:{place / 'logs'}",
            "perfetto": f"perfetto:{place / 'run.pftrace'}",
            "otlp": f"otlp:{url}",
        }
        for name, target in targets.items():
            seconds, memory, words = _exported(place, target)
            table.add(name, seconds, f"{memory / 1e6:.0f} MB resident at most; {words}")
            again, _, words = _exported(place, target)
            table.rows[-1].note += f"; again, with nothing new: {again:.1f} s ({words})"
    return table


def _recorded(out: Path) -> None:
    for life, steps in enumerate((range(STEPS // 2), range(STEPS // 2 - AGAIN, STEPS))):
        recorder = StepRecorder(out, life, 0)
        for step in steps:
            recorder.begin(step)
            for part in _PARTS:
                with recorder.part(part):
                    pass
            recorder.fact("tokens", 4_096)
            recorder.fact("memory_peak", 70 << 30)
            recorder.scalar(step, "loss", 3.0 + step % 7)
            recorder.scalar(step, "grad_norm", 1.0 / (1 + step))
            row = recorder.end(step)
            if row is not None and step % 100 == 0:
                recorder.late(row, "device.forward", 20_000)
                recorder.late(row, "device.idle", 1_000)
            if step % 20_000 == 0:
                recorder.flush()
        recorder.pause()
        recorder.close()


_PROGRAM = """
import resource, sys, time
from penstock.cli.main import main
began = time.process_time()
assert main(["runs", "export", *sys.argv[1:]]) == 0
print(time.process_time() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def _exported(place: Path, target: str) -> tuple[float, int, str]:
    """Processor seconds of the command, memory of its process, and what it says."""
    words = [sys.executable, "-c", _PROGRAM, str(place / "run"), "--to", target]
    environment = {**os.environ, "PENSTOCK_HOME": str(place / "home")}
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=environment)
    seconds, memory = done.stdout.split()
    return float(seconds), int(memory), done.stderr.strip().rpartition(" to ")[0]


@contextlib.contextmanager
def _receiver() -> Iterator[str]:
    """Takes everything and reads nothing of it."""

    class MetricsEndpoint(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *words: object) -> None:
            """Not on the terminal."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), MetricsEndpoint)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
