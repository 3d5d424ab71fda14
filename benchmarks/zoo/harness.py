"""Runs cases of the zoo in real processes: one that is not interrupted, one that saves, and a fresh one that resumes.

``python -m benchmarks.zoo.harness [--sample N --seed S] [--device cuda] [NAME …]`` prints a line of JSON for each case. Processes are forked from one that has
imported and computed nothing, so each is fresh, and a case costs no import. Bits are compared by ``fingerprint``, which knows nothing of Penstock.
"""

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # optimizers and groups import it when first used: once here rather than once per process
from torch import distributed

import penstock as ps
import penstock.torch
from benchmarks.zoo import families, gangs, models, optimizers, scripts, strangers, wrappers
from benchmarks.zoo.case import Case, Program, fingerprint
from penstock.errors import PenstockError

CASES = {
    case.name: case
    for room in (models, optimizers, wrappers, strangers, scripts, families, gangs)
    for case in room.CASES
}
#: Of one process.
_LIMIT_S = 180
#: How long a rank waits for others.
_DEADLINE_S = 30.0


def run(case: Case, device: str = "cpu") -> dict[str, Any]:
    """What comes of a case: its outcome and the reason; ``different`` is a resume with other bits and without a word."""
    life = partial(_phase, case, device)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="zoo-") as folder:
        whole = life(Path(folder), "whole")
        first = life(Path(folder), "saved") if "problem" not in whole[0] else whole
        resumed = life(Path(folder), "resumed") if "problem" not in first[0] else first
    verdict = _judged(whole, first, resumed)
    return {
        "case": case.name,
        "expected": case.expected,
        **verdict,
        "named": sorted({text for rank in first for text in rank.get("unpinned", ())}),
        "seconds": round(time.monotonic() - began, 2),
    }


def _judged(
    whole: Sequence[dict[str, Any]], first: Sequence[dict[str, Any]], resumed: Sequence[dict[str, Any]]
) -> dict[str, str]:
    for phase in (whole, first, resumed):
        for rank in phase:
            if "problem" in rank:
                return {"outcome": "refused" if rank["ours"] else "broken", "reason": rank["problem"]}
    if [rank["bits"] for rank in first] != [rank["bits"] for rank in whole]:
        return {"outcome": "different", "reason": "saving changed what came after it"}
    if [rank["bits"] for rank in resumed] == [rank["bits"] for rank in whole]:
        return {"outcome": "equal", "reason": ""}
    unpinned = sorted({text for rank in first for text in rank["unpinned"]})
    return {"outcome": "unpinned" if unpinned else "different", "reason": "; ".join(unpinned)}


def _phase(case: Case, device: str, folder: Path, phase: str) -> list[dict[str, Any]]:
    """One life of a program, on all of its ranks; what each has written."""
    place = folder / phase
    place.mkdir()
    children = [
        _forked(partial(_live, case, device, folder, phase, rank), place / str(rank))
        for rank in range(case.ranks)
    ]
    for child in children:
        os.waitpid(child, 0)
    answers = []
    for rank in range(case.ranks):
        try:
            answers.append(json.loads((place / str(rank)).read_text()))
        except FileNotFoundError:
            answers.append({"problem": "the process died", "ours": False})
    return answers


def _forked(work: Callable[[], dict[str, Any]], out: Path) -> int:
    child = os.fork()
    if child:
        return child
    signal.alarm(_LIMIT_S)
    try:
        answer = work()
    except PenstockError as problem:
        answer = {"problem": f"{type(problem).__name__}: {problem}", "ours": True}
    except BaseException as problem:  # noqa: BLE001 - whatever it is, the child ends here
        answer = {"problem": "".join(traceback.format_exception(problem))[-1500:], "ours": False}
    out.write_text(json.dumps(answer))
    os._exit(0)


def _live(case: Case, device: str, folder: Path, phase: str, rank: int) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.set_default_device(device)
    torch.use_deterministic_algorithms(True)
    if case.ranks > 1:
        meeting = f"file://{folder}/{phase}/meeting"
        distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=case.ranks)
    # A fresh process has other weights and stands elsewhere in its generators.
    torch.manual_seed(999 if phase == "resumed" else 1)
    program = case.make()
    state = penstock.torch.state(
        program.model, program.optimizers, scheduler=program.scheduler, extra=program.extra
    )
    before, after = case.steps
    with _checkpoints(folder, phase, case, rank) as checkpoints:
        if phase == "resumed":
            assert checkpoints.resume(state, deadline_s=_DEADLINE_S) is not None
        else:
            _train(program, range(before))
        if phase == "saved":
            checkpoints.save(before, state).wait(_DEADLINE_S)
        _train(program, range(before, before + after))
        unpinned = list(state.unpinned())
    answer = {"bits": fingerprint(program), "unpinned": unpinned}
    if case.ranks > 1:
        distributed.barrier()
    return answer


def _checkpoints(folder: Path, phase: str, case: Case, rank: int) -> ps.Checkpoints:
    return ps.Checkpoints(
        folder / "checkpoints", rank=rank, ranks=case.ranks, token=phase, deadline_s=_DEADLINE_S
    )


def _train(program: Program, steps: range) -> None:
    for step in steps:
        program.train(step)


def chosen(
    names: Sequence[str] = (), *, sample: int | None = None, seed: int = 0, device: str = "cpu"
) -> list[Case]:
    """Cases by name, or as many as asked for, drawn from those that need nothing beside PyTorch, one of two ranks among them; by default all whose packages are there.

    Of those that run on the device.
    """
    if names:
        return [CASES[name] for name in names]
    there = [case for case in CASES.values() if case.where in ("anywhere", device)]
    if sample is not None:
        drawn = random.Random(seed)
        plain = [case for case in there if not case.needs and case.ranks == 1]
        several = [case for case in there if case.ranks == 2]
        return [*drawn.sample(plain, min(sample - 1, len(plain))), drawn.choice(several)]
    return [case for case in there if not case.needs or find_spec(case.needs) is not None]


def results(cases: Sequence[Case], device: str = "cpu") -> Iterator[dict[str, Any]]:
    """What comes of cases, one after another."""
    needed = {case.needs for case in cases if case.needs}
    for name in sorted(needed):
        import_module(name)
    if "transformers" in needed:
        families.warm()
    for case in cases:
        yield run(case, device)


def main() -> int:
    """Run and print; 1 if a case ended in another way than it should."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--sample", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    options = parser.parse_args()
    good = True
    cases = chosen(options.names, sample=options.sample, seed=options.seed, device=options.device)
    for result in results(cases, options.device):
        print(json.dumps(result), flush=True)
        good = good and result["outcome"] == result["expected"]
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
