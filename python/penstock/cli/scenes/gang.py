"""The main job: a small GPT on four supervised ranks, one of them killed, then on two; bit-equal to a run that nobody disturbed."""

import importlib.util
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from penstock import Recipe, Registry, batch_at
from penstock.cli.scenes import corpus, insist
from penstock.process import Job, jobs
from penstock.report.run_evidence import evidence_of
from penstock.report.run_report import report_of
from penstock.run.journal import step_records as records
from penstock.view.address import Place, RunAddress

_RECIPE = """\
seed = 17
batch = 16
sources = [{ name = "library@1" }]

[[stages]]
kind = "tokenize"
tokenizer = "tokenizer.json"

[[stages]]
kind = "pack"
length = 128
"""
_ON_FOUR, _ON_TWO = 20, 30
#: Between two saves, so that steps are lost and made again.
_KILLED_FROM, _KILLED_TO = 6, 16
_PENSTOCK = [sys.executable, "-m", "penstock.cli.main"]
_LOOK_S = 0.005
_TIMEOUT_S = 180.0


def play(place: Path) -> Iterator[str]:
    """Write text, train twice on four and then two ranks (once through a kill), compare everything."""
    if importlib.util.find_spec("torch") is None:
        yield "left out, because PyTorch is not installed: pip install 'penstock[torch]'"
        return
    documents = corpus.write(place / "raw")
    corpus.make_tokenizer(place / "tokenizer.json")
    (place / "recipe.toml").write_text(_RECIPE)
    registry = Registry(place / "registry")
    version = registry.register("library", place / "raw")
    yield f"{documents} sources of Python's library as compressed jsonl: {version.address}, with a tokenizer made from them"

    begun = time.monotonic()
    step, took_s = _disturbed(place)
    yield f"trained a GPT on 4 supervised ranks, killed one (signal 9) after step {step}: next step of all ranks {took_s:.2f} s later"
    _ranks(place, "killed", 2, _ON_TWO)
    killed = records.read(place / "runs" / "killed")
    lives = sorted({step_record.incarnation for step_record in killed.values()})
    yield f"went on with 2 ranks to step {_ON_TWO}; lives of the run: {len(lives)}, {time.monotonic() - begun:.0f} s in all"

    for ranks, stop_at in ((4, _ON_FOUR), (2, _ON_TWO)):
        _ranks(place, "whole", ranks, stop_at)
    whole = records.read(place / "runs" / "whole")
    _compare(place, registry, killed, whole)
    first, last = whole[0].ranks[0].whole_loss, whole[_ON_TWO - 1].ranks[0].whole_loss
    insist("the loss falls", holds=last < first - 1)
    yield f"loss {first:.3f} → {last:.3f}; a run that nobody disturbed has the same batches, losses and parameters, bit for bit"
    yield from _account(place)
    words = ["view", str(RunAddress(str(place / "runs" / "killed"), Place(step=step)))]
    shown = subprocess.run([*_PENSTOCK, *words], capture_output=True, check=False, timeout=_TIMEOUT_S)
    insist("a batch can be looked at", holds=shown.returncode == 0)
    yield f"what the model saw at the fault: penstock {' '.join(words)}"
    yield f"a proof by executing everything again: penstock runs prove {place / 'runs' / 'killed'}"


def _account(place: Path) -> Iterator[str]:
    """Where the time of the run that was disturbed went, and what the kill cost."""
    run = place / "runs" / "killed"
    report = report_of(evidence_of(run))
    accounts = report.ledger
    rank = accounts.ranks[0]
    insist("every nanosecond is in one account", holds=sum(rank.accounts.values()) == rank.wall)
    parts = ", ".join(f"{name} {spent / 1e9:.1f}" for name, spent in rank.accounts.items() if spent)
    steps = f"{rank.steps('kept')} steps count, {rank.steps('lost')} were made again"
    yield f"of {rank.wall / 1e9:.1f} s of rank 0: {parts} ({steps})"
    deaths = [incident for incident in accounts.incidents if incident.kind == "death"]
    insist("the kill is an incident with a cost", holds=any(incident.cost > 0 for incident in deaths))
    dearest = max(deaths, key=lambda incident: incident.cost)
    yield f"the kill cost {dearest.cost / 1e9:.1f} s of 4 ranks, {dearest.lost_steps} steps were lost"
    yield f"penstock report {run} begins with: {report.diagnosis.line}"
    yield f"the page of the run: penstock web run:{run}"


def _compare(
    place: Path, registry: Registry, killed: dict[int, records.Whole], whole: dict[int, records.Whole]
) -> None:
    steps = list(range(_ON_TWO))
    insist("both runs have every step", holds=list(killed) == steps and list(whole) == steps)
    recipe = Recipe.load(place / "recipe.toml")
    planned = [batch_at(recipe, step=step, registry=registry).digest for step in steps]
    seen = [[run[step].batch for step in steps] for run in (killed, whole)]
    insist(
        "global batches are those of the plan, on 4 ranks, on 2, and after a kill",
        holds=seen == [planned] * 2,
    )
    for step in steps:
        ours, theirs = (
            {
                rank: (rank_record.loss_bits, rank_record.parameters)
                for rank, rank_record in run[step].ranks.items()
            }
            for run in (killed, whole)
        )
        insist(f"losses and parameters of step {step} are bit-equal", holds=ours == theirs)
    insist("parameters were compared", holds=bool(whole[_ON_TWO - 1].ranks[0].parameters))


def _disturbed(place: Path) -> tuple[int, float]:
    """Kill a rank when a step that was drawn is over; that step, and how long until all ranks made another."""
    draw = random.Random()
    wanted = draw.randint(_KILLED_FROM, _KILLED_TO)
    folder = place / "runs" / "killed"
    with _start(place, "killed", 4, _ON_FOUR) as launcher:
        _wait(launcher, lambda: max(records.read(folder), default=-1) >= wanted)
        step = max(records.read(folder))
        state = _job(place).state()
        assert state is not None, "ranks made steps"
        os.kill(draw.choice(state.gangs[0].workers)["pid"], signal.SIGKILL)
        begun = time.monotonic()
        _wait(
            launcher,
            lambda: any(step_record.incarnation > 0 for step_record in records.read(folder).values()),
        )
        took_s = time.monotonic() - begun
        launcher.wait(_TIMEOUT_S)
    insist("the gang goes on after a kill", holds=launcher.returncode == 0)
    return step, took_s


def _ranks(place: Path, name: str, ranks: int, stop_at: int) -> None:
    with _start(place, name, ranks, stop_at) as launcher:
        launcher.wait(_TIMEOUT_S)
    insist(f"{ranks} ranks train up to step {stop_at}", holds=launcher.returncode == 0)


def _start(place: Path, name: str, ranks: int, stop_at: int) -> "subprocess.Popen[bytes]":
    """``penstock run`` as a person would call it, in a home of its own."""
    program = Path(__file__).with_name("gpt.py")
    words = ["run", "--ranks", str(ranks), "--restarts", "3", "--", sys.executable, str(program)]
    # Hashes of strings decide bits too, where programs iterate over sets.
    variables = {**os.environ, "PYTHONHASHSEED": "0", "PENSTOCK_HOME": str(place / f"home-{name}-{ranks}")}
    with (place / f"{name}-{ranks}.log").open("wb") as log:
        return subprocess.Popen(
            [*_PENSTOCK, *words, str(place), name, str(stop_at)],
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )


def _job(place: Path) -> Job:
    (job,) = jobs(place / "home-killed-4")
    return job


def _wait(launcher: "subprocess.Popen[bytes]", condition: Callable[[], bool]) -> None:
    until = time.monotonic() + _TIMEOUT_S
    while not condition():
        insist("the gang trains", holds=launcher.poll() is None and time.monotonic() < until)
        time.sleep(_LOOK_S)
