"""An imagined job whose racks fail, played in a browser by the real command."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: Racks that fail every few hours, where there are thousands of hosts.
PROFILE = """
name = "racks"
[[cause]]
name = "switch"
per_1000_host_days = 0.05
loses = "rack"
repair = "2h"
"""


@contextmanager
def playing(folder: Path, *words: str) -> Iterator[str]:
    """The real command, playing an imagined job; its address with the token."""
    (folder / "racks.toml").write_text(PROFILE)
    command = [
        sys.executable,
        "-m",
        "penstock.cli.main",
        "simulate",
        "--watch",
        "--web",
        "--faults",
        "racks.toml",
        *words,
    ]
    environment = {**os.environ, "PENSTOCK_HOME": str(folder)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=folder, env=environment) as process:
        try:
            assert process.stderr is not None
            found = None
            for line in process.stderr:
                if (found := re.search(r"http\S+", line)) is not None:
                    break
            assert found is not None, "the server did not start"
            yield found[0]
        finally:
            process.kill()
