"""Jobs of an ordinary user, whoever runs the tests."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.process import Launch, prepare
from penstock.process.job.launch import agent_path
from tests.process.jobs import Running, end

#: Of `nobody`, where root runs the tests.
USER = 65534 if os.geteuid() == 0 else os.geteuid()


@contextmanager
def ordinary_job(launch: Callable[[Path], Launch], *files: Path) -> Iterator[Running]:
    """A foreground job in a directory that such a user can reach, with copies of ``files`` in it."""
    with tempfile.TemporaryDirectory(prefix="penstock-ordinary-") as folder:
        home = Path(folder)
        marks = home / "marks"
        marks.mkdir()
        for path in (agent_path(), *files):
            shutil.copy(path, home)
        job = prepare(home, launch(home))
        for path in [home, *home.rglob("*")]:
            os.chown(path, USER, -1)
        owner = {"user": USER, "extra_groups": []} if os.geteuid() == 0 else {}
        launcher = subprocess.Popen(
            [home / "penstock-agent", "launch", job.directory],
            env={**os.environ, "MARKS": str(marks)},
            cwd=home,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **owner,  # type: ignore[call-overload]
        )
        running = Running(home, launcher, marks)
        yield running
        end(running)
