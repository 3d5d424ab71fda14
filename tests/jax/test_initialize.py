"""`penstock.jax.initialize` makes processes one job from the variables that ranks have."""

import os
import socket
import subprocess
import sys

import pytest

from penstock.errors import UsageError
from penstock.jax import initialize
from penstock.jax.initialize import coordinator_address

PROGRAM = """
import penstock.jax
penstock.jax.initialize(timeout_s=120)
import jax
print(jax.process_index(), jax.process_count())
"""


def test_two_processes_become_one_job() -> None:
    with socket.socket() as handle:
        handle.bind(("127.0.0.1", 0))
        port = handle.getsockname()[1]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            env={
                **os.environ,
                "JAX_PLATFORMS": "cpu",
                "RANK": str(rank),
                "WORLD_SIZE": "2",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
            },
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    assert [process.communicate(timeout=240)[0].split() for process in processes] == [["0", "2"], ["1", "2"]]


def test_a_process_alone_needs_nothing() -> None:
    initialize(environment={})
    initialize(environment={"RANK": "0", "WORLD_SIZE": "1"})


def test_where_process_0_listens() -> None:
    master = {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "40001"}
    assert coordinator_address(master) == "10.0.0.1:40001"
    assert coordinator_address({**master, "MASTER_ADDR": "fd00::1"}) == "[fd00::1]:40001"
    assert coordinator_address({**master, "JAX_COORDINATOR_ADDRESS": "10.0.0.1:7"}) == "10.0.0.1:7"


@pytest.mark.parametrize(
    ("variables", "word"),
    [
        ({"RANK": "x", "WORLD_SIZE": "2"}, "RANK must be a number, got 'x'"),
        ({"RANK": "0"}, "WORLD_SIZE must be a number"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "below WORLD_SIZE"),
        ({"RANK": "0", "WORLD_SIZE": "2"}, "where process 0 listens"),
    ],
)
def test_variables_that_make_no_sense_are_named(variables: dict[str, str], word: str) -> None:
    with pytest.raises(UsageError, match=word):
        initialize(environment=variables)
