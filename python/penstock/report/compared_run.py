"""What is compared of a run, read from its directory."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.report.curves.step_table import RunSteps, run_steps
from penstock.report.diagnosis.observation import observation_of
from penstock.report.diagnosis.step_view import steps_of
from penstock.report.run_comparison import ComparedRun
from penstock.report.run_evidence import evidence_of
from penstock.run.journal import journal
from penstock.run.journal import step_records as records

#: What the program's loss is called.
LOSS = "loss"
#: Facts of a start that decide bits, or that people look for first.
_SETTINGS = ("recipe", "seed", "deterministic", "ranks", "lanes", "threads", "program", "pinned")


def compared_run(run: Path) -> ComparedRun:
    """Its steps that count and that all ranks recorded. A loop without a run has no records: its losses are those of its rows."""
    evidence = evidence_of(run)
    views = [view for view in map(steps_of, evidence.timelines) if view is not None]
    observation = observation_of(views, 0)
    whole = records.read(run)
    timed = {step: place for place, step in enumerate(observation.steps.tolist())}
    common = [step for step in whole if step in timed] if whole else [*timed]
    places = np.array([timed[step] for step in common], np.int64)
    times = observation.times.max(axis=0)[places] / 1e9 if len(places) else np.empty(0)
    tokens = observation.matrix("tokens")
    if whole:
        losses = np.array([whole[step].ranks[0].whole_loss for step in common], np.float64)
        bits = [
            tuple(whole[step].ranks[rank].loss_bits for rank in sorted(whole[step].ranks)) for step in common
        ]
    else:
        losses, bits = _losses_of_rows(run_steps(run, tuple(views)), common)
    return ComparedRun(
        name=evidence.name,
        steps=np.array(common, np.int64),
        times=times,
        tokens=None if tokens is None else tokens.sum(axis=0)[places].astype(np.float64),
        losses=losses,
        loss_bits=bits,
        batches=[whole[step].batch for step in common] if whole else [""] * len(common),
        settings=_settings(run),
    )


def _losses_of_rows(
    steps: RunSteps, common: list[int]
) -> tuple[npt.NDArray[np.float64], list[tuple[str, ...]]]:
    """The mean over ranks, and the bits of each."""
    means = dict(zip(steps.steps.tolist(), steps.across(LOSS).mean.tolist(), strict=True))
    by_rank = []
    for rank in steps.ranks:
        column = steps.scalars.get(rank.rank, {}).get(LOSS)
        if column is not None:
            by_rank.append(dict(zip(rank.columns["step"].tolist(), column.tolist(), strict=True)))
    bits = [tuple(float.hex(losses[step]) for losses in by_rank if step in losses) for step in common]
    return np.array([means[step] for step in common], np.float64), bits


def _settings(run: Path) -> dict[str, Any]:
    """Of the first start; leaves by their path, so that one version is one difference."""
    facts = next((entry.facts for entry in journal.read(run) if entry.kind == "start"), {})
    settings: dict[str, Any] = {}
    for name in _SETTINGS:
        _flatten(name, facts.get(name), settings)
    return settings


def _flatten(name: str, value: Any, settings: dict[str, Any]) -> None:
    if isinstance(value, dict):
        for key, inner in value.items():
            _flatten(f"{name}.{key}", inner, settings)
    else:
        settings[name] = value
