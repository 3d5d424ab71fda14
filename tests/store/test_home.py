"""One folder for everything of a user, whatever is set, and an error with a way out where there is none."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from penstock.errors import UsageError
from penstock.store.home import penstock_home

#: A user id that no system has a name or a home for, as containers give it.
_BARE_USER = 3_999_777
_PROGRAM = f"""
import os, sys
from penstock.data.tap.feed_tap import home
from penstock.errors import PenstockError
from penstock.registry import Registry
from penstock.store.hostcache import use_host_cache
from penstock.store.home import penstock_home
if os.geteuid() == 0:
    os.setresuid({_BARE_USER}, {_BARE_USER}, {_BARE_USER})
try:
    print(home(), Registry().url)
    print(list(Registry().datasets()))
except PenstockError as problem:
    print(problem, problem.hint)
print(use_host_cache() is not None)
"""


def test_an_empty_variable_is_one_that_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/somewhere")
    monkeypatch.setenv("PENSTOCK_HOME", "")
    assert penstock_home() == Path("/somewhere/.penstock")
    monkeypatch.setenv("PENSTOCK_HOME", "~/here")
    assert penstock_home() == Path("/somewhere/here")
    monkeypatch.setenv("PENSTOCK_HOME", "~nobody-is-called-so/here")
    with pytest.raises(UsageError, match="no home directory") as caught:
        penstock_home()
    assert "PENSTOCK_HOME" in (caught.value.hint or "")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a user without a home")
def test_a_user_without_a_home_needs_only_the_variable() -> None:
    """Goal: jobs run under bare user ids. Method: become one; the variable is all that is set, then not even that."""
    environment = {
        name: value for name, value in os.environ.items() if name not in ("HOME", "PENSTOCK_CACHE")
    }
    # Folders of tests are closed to other users.
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        lines = _run({**environment, "PENSTOCK_HOME": folder})
    assert lines == [f"{folder}/taps file://{folder}/registry", "[]", "True"]
    environment.pop("PENSTOCK_HOME", None)
    without = _run(environment)
    assert "set PENSTOCK_HOME" in without[0]
    assert without[-1] == "False"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a user who may not enter a folder")
def test_a_registry_in_a_folder_that_is_closed_says_so(tmp_path: Path) -> None:
    """Goal: what cannot be listed is not taken for empty. Method: a folder above that is closed, and one inside."""
    (tmp_path / "closed").mkdir(mode=0o700)
    lines = _run({**os.environ, "PENSTOCK_HOME": str(tmp_path / "closed")})
    assert "not allowed to list" in lines[1]
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        inside = Path(folder, "registry/datasets/web")
        inside.mkdir(parents=True)
        inside.chmod(0o700)
        lines = _run({**os.environ, "PENSTOCK_HOME": folder})
    assert "not allowed to list" in lines[1]


def _run(environment: dict[str, str]) -> list[str]:
    command = [sys.executable, "-c", _PROGRAM]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
