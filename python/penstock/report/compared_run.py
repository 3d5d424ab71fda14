"""What is compared of a run, read from its directory."""

from pathlib import Path
from typing import Any

import numpy as np

from penstock.observe.steps import UNMEASURED, read_steps
from penstock.report.diagnosis.observation import Observation, observation_of
from penstock.report.diagnosis.step_view import steps_of
from penstock.report.loop_summary import LOSS
from penstock.report.run_comparison import ComparedRun
from penstock.report.run_evidence import evidence_of
from penstock.run.directory import RunDirectory
from penstock.run.journal import journal
from penstock.run.journal import step_records as records

#: Facts of a start that decide bits, or that people look for first.
_SETTINGS = ("recipe", "seed", "deterministic", "ranks", "lanes", "threads", "program", "pinned")


def compared_run(run: Path) -> ComparedRun:
    """Its steps that count and that all ranks recorded."""
    evidence = evidence_of(run)
    views = [view for view in map(steps_of, evidence.timelines) if view is not None]
    observation = observation_of(views, 0)
    if RunDirectory(run).is_only_observed():
        return _compared_loop(run, evidence.name, observation)
    whole = records.read(run)
    timed = {step: place for place, step in enumerate(observation.steps.tolist())}
    common = [step for step in whole if step in timed]
    places = np.array([timed[step] for step in common], np.int64)
    times = observation.times.max(axis=0)[places] / 1e9 if len(places) else np.empty(0)
    tokens = observation.matrix("tokens")
    return ComparedRun(
        name=evidence.name,
        steps=np.array(common, np.int64),
        times=times,
        tokens=None if tokens is None else tokens.sum(axis=0)[places].astype(np.float64),
        losses=np.array([whole[step].ranks[0].whole_loss for step in common], np.float64),
        loss_bits=[
            tuple(whole[step].ranks[rank].loss_bits for rank in sorted(whole[step].ranks)) for step in common
        ],
        batches=[whole[step].batch for step in common],
        settings=_settings(run),
    )


def _compared_loop(run: Path, name: str, observation: Observation) -> ComparedRun:
    """A loop that was only observed: losses are those of its rows, and of batches and settings nothing is known."""
    losses: dict[int, dict[int, float]] = {}
    # Lives come in order, so what was executed again counts as it was the last time.
    for rows in read_steps(run, columns=(LOSS,)):
        for step, loss in zip(rows.columns["step"].tolist(), rows.columns.get(LOSS, ()), strict=False):
            losses.setdefault(step, {})[rows.rank] = float(loss)
    steps = observation.steps
    tokens = observation.matrix("tokens")
    by_step = [losses.get(step, {}) for step in steps.tolist()]
    return ComparedRun(
        name=name,
        steps=steps,
        times=observation.times.max(axis=0) / 1e9 if observation.times.size else np.empty(0),
        tokens=None if tokens is None else tokens.sum(axis=0).astype(np.float64),
        losses=np.array([_mean(ranks) for ranks in by_step], np.float64),
        loss_bits=[tuple(ranks[rank].hex() for rank in sorted(ranks)) for ranks in by_step],
        batches=[""] * len(steps),
        settings={},
    )


def _mean(losses: dict[int, float]) -> float:
    known = [loss for loss in losses.values() if loss != UNMEASURED]
    return sum(known) / len(known) if known else float("nan")


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
