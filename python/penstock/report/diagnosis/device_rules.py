"""Causes that the device's columns show: a host that launches too slowly, padding, an allocator that tries again."""

from dataclasses import dataclass

import numpy as np

from penstock.report.accounts.timeline import Times
from penstock.report.diagnosis.cause import Cause, seconds
from penstock.report.diagnosis.observation import Observation

#: Parts of the host in which a device that waits is told by other rules.
_TOLD = ("data", "transfer", "checkpoint", "eval", "gc", "user", "exchange")
_COMPUTE = ("forward", "backward")
#: So many looks tell a share to a few hundredths.
_LOOKS_MIN = 60
#: Between two looks at the allocator's counter.
_LOOK_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class _Idle:
    """How long the device had nothing to do, and what shows it."""

    ns: int
    evidence: str
    facts: dict[str, object]


def _idle(observation: Observation) -> _Idle | None:
    """By looks at random moments, which see gaps between the kernels of a part; where those are too few, by marks, which see gaps between parts alone."""
    total = int(observation.times.max(axis=0).sum()) if observation.times.size else 0
    looks, idle_looks = (observation.counted(name) for name in ("device_looks", "device_idle_looks"))
    if looks >= _LOOKS_MIN and total > 0:
        facts: dict[str, object] = {"looks": looks, "idle_looks": idle_looks}
        ns = total * idle_looks // looks
        return _Idle(ns, f"it was idle in {idle_looks} of {looks} looks", {"idle_ns": ns, **facts})
    idle = observation.middle("device.idle")
    if idle is None or not len(idle):
        return None
    ns = int(idle.sum())
    return _Idle(ns, f"the device idles {seconds(ns)} in {len(idle)} steps", {"idle_ns": ns})


def host_bound(observation: Observation) -> list[Cause]:
    """The device idles while the host is in forward, backward or the optimizer."""
    idle = _idle(observation)
    if idle is None:
        return []
    columns = [observation.middle(f"host.{part}") for part in _TOLD]
    elsewhere = sum(int(column.sum()) for column in columns if column is not None)
    cost = idle.ns - elsewhere - observation.compiled_ns
    if cost <= 0:
        return []
    spent = seconds(cost // observation.times.shape[1])
    return [
        Cause(
            "host_bound",
            cost,
            f"a step leaves the device idle for {spent} while the host launches its work",
            "",
            idle.evidence,
            "compile the model, use CUDA graphs, or make the batch larger",
            idle.facts,
        )
    ]


def padding(observation: Observation) -> list[Cause]:
    """The share of forward and backward that computes padding."""
    tokens, pads = observation.matrix("tokens"), observation.matrix("padding")
    if tokens is None or pads is None or not pads.sum() or (pads < 0).any() or (tokens < 0).any():
        return []
    compute = _compute(observation)
    if compute is None:
        return []
    share = pads.sum(axis=0) / np.maximum((tokens + pads).sum(axis=0), 1)
    cost = int((share * compute).sum())
    of_all = float(pads.sum() / (tokens + pads).sum())
    return [
        Cause(
            "padding",
            cost,
            f"{100 * of_all:.0f} % of the tokens that the model computes are padding",
            "",
            f"{int(pads.sum())} of {int((tokens + pads).sum())} tokens",
            "pack samples into rows (stage `Pack`), or sort them by length",
            {"padding": int(pads.sum()), "tokens": int(tokens.sum())},
        )
    ]


def _compute(observation: Observation) -> Times | None:
    """Forward and backward, on the device where that is known."""
    for side in ("device", "host"):
        columns = [observation.middle(f"{side}.{part}") for part in _COMPUTE]
        known = [column for column in columns if column is not None]
        if len(known) == len(_COMPUTE):
            return np.asarray(np.sum(known, axis=0))
    return None


def allocator(observation: Observation) -> list[Cause]:
    """What steps in which the allocator tried again took longer than usual.

    Its counter is looked at once a second, so the steps of that second come into question; a retry is in one step, so as many of them as there
    were retries, the longest.
    """
    retries = observation.increments("allocator_retries")
    if retries is None or not retries.any():
        return []
    times = observation.times.max(axis=0)
    usual = int(np.median(times))
    ends = np.cumsum(times)
    is_retried = np.zeros(len(times), bool)
    counts = retries.max(axis=0)
    for place in np.flatnonzero(counts).tolist():
        first = int(np.searchsorted(ends, ends[place] - times[place] - _LOOK_NS, side="right"))
        window = np.arange(first, place + 1)[~is_retried[first : place + 1]]
        longest = window[np.argsort(-times[window], kind="stable")[: int(counts[place])]]
        is_retried[longest[times[longest] > usual]] = True
    cost = int((times[is_retried] - usual).sum())
    if cost <= 0:
        return []
    count, total = int(is_retried.sum()), int(retries.sum())
    return [
        Cause(
            "allocator",
            cost,
            f"{count} of {len(times)} steps take {seconds(cost // count)} longer because the allocator freed memory and tried again",
            "",
            f"{total} retries",
            "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or make the batch smaller",
            {"retries": total, "steps": count},
        )
    ]


def device_bound(observation: Observation) -> Cause | None:
    """Nothing avoidable: the device computes."""
    idle = _idle(observation)
    total = int(observation.times.max(axis=0).sum()) if observation.times.size else 0
    if idle is None or total <= 0:
        return None
    busy = total - idle.ns
    return Cause(
        "device_bound",
        0,
        f"the device computes for {100 * busy / total:.0f} % of the step time",
        "",
        f"idle for {seconds(idle.ns)} of {seconds(total)}",
        "a faster model or device helps, nothing around it does",
        {**idle.facts, "steps_ns": total},
    )
