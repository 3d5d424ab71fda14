"""Jobs that have the same name: commands mean the newest, and say which others there are."""

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.errors import JobAmbiguous, JobUnknown
from penstock.process import JobSpec, Role, prepare
from penstock.process.job.catalogue import find, namesakes
from tests.process.jobs import Running, penstock

Run = Callable[..., Running]


def make(home: Path, *names: str) -> list[str]:
    """Jobs that were never started, oldest first."""
    spec = lambda name: JobSpec(roles=[Role(command=["true"])], name=name, directory=home)  # noqa: E731
    return [prepare(home, spec(name)).id for name in names]


def test_of_one_name_the_newest_is_meant(tmp_path: Path) -> None:
    first, second, third, other = make(tmp_path, "train", "train", "train", "train-eval")
    assert find(tmp_path, "train").id == third
    assert [job.id for job in namesakes(tmp_path, "train")] == [first, second, third]
    assert find(tmp_path, first).id == first
    assert find(tmp_path, "train-eval").id == other
    # Not "train-e": what is drawn for a job called "train" may begin with it.
    assert find(tmp_path, "train-ev").id == other
    for unknown in ("", "nobody"):
        with pytest.raises(JobUnknown):
            find(tmp_path, unknown)
    with pytest.raises(JobAmbiguous):
        find(tmp_path, "tra")


def test_commands_say_which_they_mean(run: Run) -> None:
    """Goal: `logs`, `ps`, `stop` work with a name that two jobs have. Method: two real jobs in one home."""
    running = run(
        "--name", "train", "--detach", "--", "bash", "-c", "echo one; touch $MARKS/$$.pid; sleep 1000"
    )
    running.pids(1)
    older = running.job.id
    done = penstock(running.home, "run", "--name", "train", "--", "echo", "two")
    assert done.returncode == 0, done.stderr

    shown = penstock(running.home, "logs", "train")
    assert (shown.returncode, "two" in shown.stdout, "one" in shown.stdout) == (0, True, False)
    assert f"the newest of 2; others are {older} (running)" in shown.stderr
    assert penstock(running.home, "ps", "train").returncode == 0
    stopped = penstock(running.home, "stop", older)
    assert (stopped.returncode, "note:" in stopped.stderr) == (0, False)
