"""Compilations of a loop are an account of its ledger, and a report says why something is compiled again and again (O1, O8)."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli.main import main
from penstock.observe.steps.compile_file import (
    BYTES_MAX,
    CompileFile,
    CompileSpan,
    read_compiles,
    stretches_of,
)
from penstock.report import ledger
from tests.conftest import ROOT

#: In one case every fourth step has a length of its own, and dynamo is told to keep a graph for each.
PROGRAM = """
import sys, torch, penstock.torch
torch.set_num_threads(1)
torch._dynamo.config.recompile_limit = 64
for case in ("changing", "steady"):
    torch._dynamo.reset()
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    compiled = torch.compile(model, backend="aot_eager", dynamic=False)
    with penstock.torch.observed(model, optimizer, into=f"{sys.argv[1]}/{case}") as seen:
        for step in range(24):
            length = 3 + step if case == "changing" and step % 4 == 3 else 2
            loss = compiled(torch.ones(length, 8)).sum()
            loss.backward()
            optimizer.step()
            seen.step(loss=loss)
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compiled")
    words = [sys.executable, "-c", PROGRAM, str(folder)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return folder


def test_recompilations_are_named_with_their_reason(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Goal: kind, cost and evidence of a planted cause; a control. Method: real torch.compile with shapes that change."""
    main(["report", str(runs / "changing"), "--json"])
    answer = json.loads(capsys.readouterr().out)
    cause = answer["diagnosis"]["causes"][0]
    assert cause["kind"] == "compiling"
    assert "compiled again 6 times" in cause["evidence"]
    assert "size mismatch" in cause["evidence"]
    assert cause["facts"]["compiled_again"] == 6
    assert cause["cost_ns"] == answer["ledger"]["accounts"]["compile"]
    # One cost is told once: steps are long in forward because of the compiler, so what is left of that is little.
    stalls = [one["cost_ns"] for one in answer["diagnosis"]["causes"] if one["kind"] == "stall"]
    assert sum(stalls) < 0.5 * cause["cost_ns"]
    main(["report", str(runs / "steady"), "--json"])
    causes = json.loads(capsys.readouterr().out)["diagnosis"]["causes"]
    assert ["compiled again" in cause["evidence"] for cause in causes if cause["kind"] == "compiling"] == [
        False
    ]


def test_compiling_is_an_account_and_the_ledger_still_sums(runs: Path) -> None:
    """Goal: O1. Method: the ledger of the run with compilations in its steps, against what dynamo noted."""
    for rank in ledger(runs / "changing").ranks:
        for life in rank.lives:
            assert sum(life.accounts.values()) == life.wall
            assert sum(life.parts.values()) == life.accounts["train"]
            spans = stretches_of(read_compiles(runs / "changing"))
            assert life.accounts["compile"] == sum(end - begin for begin, end in spans)


def test_damaged_and_endless_notes_cost_nothing_else(tmp_path: Path) -> None:
    """Goal: O5, and a kill in the middle of a line. Method: a file of noise, and one that is full."""
    (tmp_path / "steps").mkdir()
    file = CompileFile(tmp_path / "steps" / "000000-0000.compiles")
    file.add(10, 20, "a.py:1 f", "")
    with (tmp_path / "steps" / "000000-0000.compiles").open("ab") as noise:
        noise.write(b'\xff{"begin": 5}\n{"begin": 9, "end": 3}\n{"begin": 30, "en\n')
    file.add(15, 40, "", "because")
    assert read_compiles(tmp_path) == [
        CompileSpan(0, 0, 10, 20, "a.py:1 f"),
        CompileSpan(0, 0, 15, 40, "", "because"),
    ]
    assert stretches_of(read_compiles(tmp_path)) == [(10, 40)]
    full = tmp_path / "steps" / "000001-0000.compiles"
    full.write_bytes(b"\n" * BYTES_MAX)
    CompileFile(full).add(1, 2, "", "")
    assert full.stat().st_size == BYTES_MAX
