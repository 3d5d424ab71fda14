"""Global arrays are made from the rows of each process: over eight devices, and over two real processes."""

import json
import math
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.data import join
from tests.torch.stream import Stream

TIMEOUT_S = 120
Seen = dict[str, Any]


def start(root: Path, device_count: int, *arguments: str) -> "subprocess.Popen[str]":
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={device_count}",
    }
    command = [sys.executable, "-m", "tests.jax.processes", *arguments]
    return subprocess.Popen(
        command, cwd=root, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def finish(*processes: "subprocess.Popen[str]") -> None:
    try:
        said = [process.communicate(timeout=TIMEOUT_S)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0] * len(processes), "\n".join(said)


def whole_rows(pieces: list[Any]) -> list[Any]:
    """The rows of a batch from what its devices hold; two devices that hold the same rows must agree."""
    held: dict[int, Any] = {}
    for start_row, rows in pieces:
        for number, row in enumerate(rows, start_row):
            assert held.setdefault(number, row) == row
    return [held[number] for number in sorted(held)]


@pytest.fixture(scope="module")
def eight(stream: Stream, tmp_path_factory: pytest.TempPathFactory, root: Path) -> Seen:
    """What a process with eight devices saw."""
    out = tmp_path_factory.mktemp("eight")
    finish(start(root, 8, "devices", str(stream.folder), str(out)))
    seen: Seen = json.loads((out / "devices.json").read_text())
    return seen


@pytest.fixture(scope="module")
def pair(stream: Stream, tmp_path_factory: pytest.TempPathFactory, root: Path) -> list[Seen]:
    """What two processes with two devices each saw."""
    out = tmp_path_factory.mktemp("pair")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    finish(*(start(root, 2, "pair", str(stream.folder), str(out), str(n), address) for n in range(2)))
    return [json.loads((out / f"process-{number}.json").read_text()) for number in range(2)]


@pytest.mark.parametrize(("mesh", "piece_count", "parts"), [("flat", 8, 8), ("grid", 8, 4), ("both", 8, 8)])
def test_rows_are_spread_over_the_devices(
    stream: Stream, eight: Seen, mesh: str, piece_count: int, parts: int
) -> None:
    """Goal: identical bits in JAX. Method: put the batch together from its devices' pieces, and compare with numpy."""
    seen = eight[mesh]
    assert seen["lane"] == [0, 1]
    for expected, digest, pieces, shape in zip(
        stream.batches(8), seen["digests"], seen["pieces"], seen["shapes"], strict=False
    ):
        assert digest == expected.digest
        assert shape == list(expected["tokens"].shape)
        assert len(pieces) == piece_count
        assert {len(rows) for _, rows in pieces} == {shape[0] // parts}
        assert whole_rows(pieces) == expected["tokens"].tolist()


def test_a_compiled_function_takes_the_batch_and_a_state_resumes_on_another_mesh(
    stream: Stream, eight: Seen
) -> None:
    ninth = stream.batches(9)[8]
    assert eight["total"] == int(ninth["tokens"].astype(np.int64).sum())
    assert eight["resumed"] == ninth.digest


def test_rows_that_the_devices_do_not_divide_are_refused(eight: Seen) -> None:
    assert "16 rows cannot be spread over 5 devices" in eight["refused"]


def test_processes_that_hold_different_rows_read_different_lanes(stream: Stream, pair: list[Seen]) -> None:
    """Goal: D2 with lanes from a mesh. Method: two real processes; data runs across them, model within them."""
    parts = [seen["spread"] for seen in pair]
    assert [part["lane"] for part in parts] == [[0, 2], [1, 2]]
    for step, expected in enumerate(stream.batches(8)):
        assert join([part["digests"][step] for part in parts]) == expected.digest
        assert parts[0]["shapes"][step] == list(expected["tokens"].shape)
        assert (
            whole_rows([*parts[0]["pieces"][step], *parts[1]["pieces"][step]]) == expected["tokens"].tolist()
        )
        half = len(expected["tokens"]) // 2
        assert whole_rows(parts[1]["pieces"][step]) == expected["tokens"][half:].tolist()


def test_processes_that_hold_the_same_rows_share_a_lane(stream: Stream, pair: list[Seen]) -> None:
    """Method: the same two processes; model runs across them, so each holds all rows."""
    for seen in pair:
        assert seen["shared"]["lane"] == [0, 1]
        assert seen["shared"]["digests"] == [batch.digest for batch in stream.batches(8)]


def test_rows_woven_between_processes_are_refused(pair: list[Seen]) -> None:
    assert "process 0 holds parts 0, 2 of 4" in pair[0]["woven"]


def test_processes_of_a_run_hear_each_other(pair: list[Seen]) -> None:
    """Goal: exchanges of a run keep all bits of 64-bit numbers, which JAX does not have by default."""
    rows = [[float(number), math.nan, 1e300] for number in range(2)]
    assert [seen["heard"] for seen in pair] == [[repr(rows), "of 0"]] * 2
