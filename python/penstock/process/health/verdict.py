"""From what a check found to what is said about each host: a grid of hosts and checks, and a sentence for each cell that is not well. Pure.

Hosts that are not equal by design, such as those with another kind of GPU, are compared with their own kind.
"""

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from penstock.process.health.blame import Measured, blame
from penstock.process.health.facts.host_facts import HostFacts
from penstock.process.health.outliers import HOSTS_MIN, Better, Outlier, outliers
from penstock.process.health.report import CheckReport, HostLook

State = Literal["ok", "odd", "bad", "none"]
#: In the order of the grid; what each is about stands in docs/guide/health.md.
CHECKS = ("ver", "files", "clock", "disk", "shm", "mem", "lim", "gpu", "ecc", "cpu", "gemm", "copy", "net")
VERSIONS = ("agent", "python", "torch", "jax", "numpy", "driver")
CLOCK_S = 1.0
DISK_FREE_MIN, SHM_FREE_MIN = 1 << 30, 64 << 20
OPEN_FILES_MIN = 1024
#: An Xid of long ago is told, and no reason not to use the host: the GPU was reset, or it would not answer.
XID_S = 86_400.0
#: How many times worse than the median a figure has to be: small where hosts are equal and nothing else runs.
RATIOS = {
    "disk": 4.0,
    "shm": 1.5,
    "mem": 1.1,
    "cpu": 1.5,
    "gemm": 1.1,
    "gemm of processors": 1.5,
    "copy": 1.1,
}


@dataclass(frozen=True, slots=True)
class Finding:
    """Something about a host that is not as it should be."""

    host: int
    check: str
    state: State
    words: str
    #: What of it goes into the host's history (``exclusion.records.FAILURES``), and what makes it one event.
    failure: str = ""
    key: str = ""


@dataclass
class Verdict:
    """All of it."""

    names: Mapping[int, str]
    #: Hosts with the state of each check.
    grid: dict[int, dict[str, State]]
    findings: list[Finding] = field(default_factory=list)
    #: What is nobody's fault, such as a link between two hosts that are well.
    remarks: list[str] = field(default_factory=list)

    @property
    def unfit(self) -> list[int]:
        """Hosts that should not train."""
        return sorted({finding.host for finding in self.findings if finding.state == "bad"})

    @property
    def is_well(self) -> bool:
        """Whether all hosts, and all ways between them, are fit."""
        return not self.unfit and not self.remarks


def judge(report: CheckReport) -> Verdict:
    """What follows from a report."""
    looks = {look.number: look for look in report.hosts if not look.is_witness}
    known = {number: look for number, look in looks.items() if look.facts is not None}
    findings: list[Finding] = []
    for number, look in looks.items():
        if look.problem:
            findings.append(Finding(number, "net", "bad", look.problem))
    facts = {number: look.facts for number, look in known.items() if look.facts is not None}
    findings += [*_versions(facts), *_clocks(known), *_room(facts), *_gpus(facts), *_speeds(known)]
    findings += _own_troubles(known)
    names = {look.number: look.name or str(look.number) for look in report.hosts}
    remarks = []
    network = blame(Measured(one.one, one.two, one.good) for one in report.meetings)
    words = {frozenset((one.one, one.two)): one.problem or "slow" for one in report.meetings if not one.good}
    slow = {finding.host for finding in findings if finding.check == "cpu"}
    for host in network.hosts:
        why = next((text for pair, text in words.items() if host in pair), "")
        if host in slow and all(text == "slow" for pair, text in words.items() if host in pair):
            findings.append(Finding(host, "net", "odd", "slow to talk to, as its processors are"))
            continue
        findings.append(
            Finding(host, "net", "bad", f"cannot talk to others as they do to each other: {why}", "check")
        )
    for one, two in network.links:
        why = words.get(frozenset((one, two)), "")
        remarks.append(
            f"the way between {names[one]} and {names[two]} is bad, and both are well otherwise: {why}"
        )
    for host in network.undecided:
        findings.append(
            Finding(host, "net", "bad", "no pair with it was good, and too few others are known to be well")
        )
    grid = {number: _row(look, report) for number, look in looks.items()}
    for finding in findings:
        row = grid.get(finding.host)
        if row is not None and row[finding.check] != "bad":
            row[finding.check] = finding.state
    own = [finding for finding in findings if finding.host in looks]
    return Verdict(names, grid, own, remarks)


def check_alone(facts: HostFacts, *, look: HostLook | None = None) -> list[Finding]:
    """What one host shows without any other to compare it with."""
    number = look.number if look is not None else 0
    alone = {number: facts}
    own = _own_troubles({number: look}) if look is not None else []
    return [*_room(alone), *_gpus(alone), *own]


def _row(look: HostLook, report: CheckReport) -> dict[str, State]:
    """What was looked at."""
    facts, devices = look.facts, look.compute.devices if look.compute else ()
    met = any(look.number in (one.one, one.two) for one in report.meetings)
    seen = {
        **dict.fromkeys(("ver", "shm", "mem", "lim"), facts is not None),
        "files": bool(facts and facts.digests),
        "clock": look.clock_s is not None,
        "disk": bool(facts and facts.disks),
        "gpu": bool(facts and (facts.gpus.gpus or facts.gpus.problem)),
        "ecc": bool(facts and facts.gpus.gpus),
        "cpu": look.processor > 0,
        "gemm": any(device.product for device in devices),
        "copy": any(device.copy for device in devices),
        "net": met,
    }
    return {check: "ok" if seen[check] else "none" for check in CHECKS}


def kind_of(facts: HostFacts) -> str:
    """Hosts of one kind are to be equal: the names of their GPUs, else their processors."""
    names = sorted({gpu.name for gpu in facts.gpus.gpus})
    return ", ".join(names) if names else f"{facts.processors} processors"


def groups(values: Mapping[int, str]) -> tuple[str | None, dict[int, str]]:
    """What most hosts have, and the hosts that have something else; without a majority nobody is right."""
    counts = Counter(values.values()).most_common(2)
    if len(counts) < 2:
        return (counts[0][0] if counts else None), {}
    if counts[0][1] == counts[1][1]:
        return None, dict(values)
    usual = counts[0][0]
    return usual, {host: value for host, value in values.items() if value != usual}


def _versions(facts: Mapping[int, HostFacts]) -> Iterable[Finding]:
    for what in VERSIONS:
        values = {host: one.versions.get(what, "none") for host, one in facts.items()}
        if what == "driver":
            values = {host: value for host, value in values.items() if facts[host].gpus.gpus}
        yield from _odd(values, "ver", "bad", f"{what} {{value}}", f"{what} {{usual}}")
    for place in sorted({place for one in facts.values() for place in one.digests}):
        values = {host: one.digests.get(place, "missing") for host, one in facts.items()}
        yield from _odd(values, "files", "bad", f"{place} is {{value}}", "{usual}")
    for name in sorted({name for one in facts.values() for name in one.limits}):
        values = {
            host: str(one.limits.get(name, "")).replace("-1", "not limited") for host, one in facts.items()
        }
        yield from _odd(values, "lim", "odd", f"{name}: {{value}}", "{usual}")


def _odd(
    values: Mapping[int, str], check: str, state: State, words: str, usual_words: str
) -> Iterable[Finding]:
    usual, odd = groups(values)
    for host, value in odd.items():
        others = "hosts differ" if usual is None else f"most have {usual_words.format(usual=usual)}"
        yield Finding(host, check, state, f"{words.format(value=value)}, {others}")


def _clocks(looks: Mapping[int, HostLook]) -> Iterable[Finding]:
    known = {host: look.clock_s for host, look in looks.items() if look.clock_s is not None}
    middle = statistics.median_low(known.values()) if known else 0.0
    for host, clock_s in known.items():
        ahead_s = clock_s - middle
        if abs(ahead_s) - looks[host].clock_error_s > CLOCK_S:
            way = "ahead of" if ahead_s > 0 else "behind"
            yield Finding(
                host, "clock", "bad", f"its clock is {abs(ahead_s):,.1f} s {way} the others' (set it by NTP)"
            )


def _room(facts: Mapping[int, HostFacts]) -> Iterable[Finding]:
    for host, one in facts.items():
        for disk in one.disks:
            if disk.problem:
                yield Finding(host, "disk", "bad", f"{disk.place}: {disk.problem}")
            elif disk.free_bytes < DISK_FREE_MIN:
                yield Finding(host, "disk", "bad", f"{disk.place}: {size(disk.free_bytes)} free")
        if one.shm_free_bytes < SHM_FREE_MIN:
            yield Finding(
                host, "shm", "bad", f"/dev/shm: {size(one.shm_free_bytes)} of {size(one.shm_bytes)} free"
            )
        if 0 <= one.limits.get("open files", -1) < OPEN_FILES_MIN:
            yield Finding(host, "lim", "odd", f"open files: {one.limits['open files']} (ulimit -n)")


def _gpus(facts: Mapping[int, HostFacts]) -> Iterable[Finding]:
    for host, one in facts.items():
        if one.gpus.problem:
            yield Finding(host, "gpu", "bad", one.gpus.problem, "gpu", f"gpu {one.boot}")
        for gpu in one.gpus.gpus:
            name = f"GPU {gpu.bus or gpu.uuid}"
            if gpu.ecc_uncorrected:
                words = f"{name}: {gpu.ecc_uncorrected} uncorrectable memory errors since its driver began"
                key = f"ecc {one.boot} {gpu.uuid} {gpu.ecc_uncorrected}"
                yield Finding(host, "ecc", "bad", words, "ecc", key)
            if gpu.remap_failed:
                words = f"{name}: memory that failed could not be replaced"
                yield Finding(host, "ecc", "bad", words, "ecc", f"remap {gpu.uuid}")
            elif gpu.remap_pending:
                yield Finding(
                    host, "ecc", "bad", f"{name}: memory waits to be replaced; the GPU needs a reset"
                )
            if gpu.slowed_by:
                yield Finding(host, "gpu", "odd", f"{name} is slowed down: {', '.join(gpu.slowed_by)}")
        yield from _xids(host, one)
    counts = {host: str(len(one.gpus.gpus)) for host, one in facts.items() if one.gpus.gpus}
    yield from _odd(counts, "gpu", "bad", "{value} GPUs", "{usual}")
    for kind in sorted({kind_of(one) for one in facts.values()}):
        members = {host: one for host, one in facts.items() if kind_of(one) == kind and one.gpus.gpus}
        widths = {host: _widths(one) for host, one in members.items()}
        yield from _odd(widths, "gpu", "odd", "PCIe lanes {value}", "{usual}")


def _widths(one: HostFacts) -> str:
    return "/".join(str(gpu.link_width) for gpu in one.gpus.gpus)


def _xids(host: int, one: HostFacts) -> Iterable[Finding]:
    seen: set[tuple[int, str]] = set()
    for xid in reversed(one.xids or ()):
        if not xid.is_of_hardware or (xid.code, xid.bus) in seen:
            continue
        seen.add((xid.code, xid.bus))
        ago_s = max(0.0, one.up_s - xid.at_s)
        words = f"Xid {xid.code} of GPU {xid.bus}, {span(ago_s)} ago: {xid.text[:100]}".rstrip(": ")
        key = f"xid {one.boot} {xid.bus} {xid.at_s}"
        yield Finding(host, "ecc", "bad" if ago_s < XID_S else "odd", words, "xid", key)


def _own_troubles(looks: Mapping[int, HostLook]) -> Iterable[Finding]:
    for host, look in looks.items():
        compute = look.compute
        if compute is None:
            continue
        boot = look.facts.boot if look.facts else ""
        if compute.problem:
            yield Finding(host, "gemm", "bad", compute.problem, "check", f"compute {boot}")
        for device in compute.devices:
            if device.wrong:
                words = f"{device.device} computes wrong: a product of whole numbers has other bits"
                yield Finding(host, "gemm", "bad", words, "check", f"wrong {boot} {device.device}")
            elif device.problem:
                yield Finding(
                    host,
                    "gemm",
                    "bad",
                    f"{device.device}: {device.problem}",
                    "check",
                    f"{boot} {device.device}",
                )


def _speeds(looks: Mapping[int, HostLook]) -> Iterable[Finding]:
    by_kind: dict[str, dict[int, HostLook]] = {}
    for host, look in looks.items():
        if look.facts is not None:
            by_kind.setdefault(kind_of(look.facts), {})[host] = look
    for members in by_kind.values():
        facts = {host: look.facts for host, look in members.items() if look.facts is not None}
        for check, state, unit, read in _FIGURES:
            values = {
                str(host): value for host, one in facts.items() if (value := read(members[host], one)) > 0
            }
            yield from _slow(values, check, state, RATIOS[check], unit)
        for check, ratio, unit in (("gemm", RATIOS["gemm"], "FLOP/s"), ("copy", RATIOS["copy"], "B/s")):
            devices = {
                f"{host} {device.device}": device.product if check == "gemm" else device.copy
                for host, look in members.items()
                for device in (look.compute.devices if look.compute else ())
                if not device.problem
            }
            on_processors = any(key.endswith(" cpu") for key in devices)
            devices = {key: value for key, value in devices.items() if value > 0}
            yield from _slow(
                devices, check, "bad", RATIOS["gemm of processors"] if on_processors else ratio, unit
            )


_FIGURES: Sequence[tuple[str, State, str, Callable[[HostLook, HostFacts], float]]] = (
    (
        "disk",
        "odd",
        "B/s written",
        lambda _look, facts: min((disk.write_rate for disk in facts.disks), default=0.0),
    ),
    ("shm", "odd", "B", lambda _look, facts: float(facts.shm_bytes)),
    ("mem", "bad", "B", lambda _look, facts: float(facts.memory_bytes)),
    ("cpu", "bad", "B/s hashed", lambda look, _facts: look.processor),
)


def _slow(
    values: Mapping[str, float], check: str, state: State, ratio: float, unit: str, *, better: Better = "high"
) -> Iterable[Finding]:
    for key, outlier in outliers(values, better=better, ratio_min=ratio).items():
        host, _, device = key.partition(" ")
        on = f"{device}: " if device and device != "cpu" else ""
        failure = "outlier" if state == "bad" else ""
        yield Finding(int(host), check, state, f"{on}{_outlier(outlier, unit, len(values))}", failure)


def _outlier(outlier: Outlier, unit: str, count: int) -> str:
    return (
        f"{size(outlier.value, unit)}, the median of {count} is {size(outlier.median, unit)}:"
        f" {outlier.ratio:.1f} × worse, {outlier.deviations:.0f} deviations"
    )


def has_verdict(report: CheckReport) -> bool:
    """Whether there are enough hosts to tell who is slow."""
    return sum(look.facts is not None for look in report.hosts) >= HOSTS_MIN


def size(number: float, unit: str = "B") -> str:
    """``512 MB``."""
    for prefix in ("", "k", "M", "G", "T"):
        if abs(number) < 1000 or prefix == "T":
            return f"{number:.3g} {prefix}{unit}"
        number /= 1000
    raise AssertionError


def span(seconds: float) -> str:
    """``5 min``."""
    for limit, divisor, unit in ((120.0, 1, "s"), (7200.0, 60, "min"), (172_800.0, 3600, "h")):
        if seconds < limit:
            return f"{seconds / divisor:.0f} {unit}"
    return f"{seconds / 86_400:.0f} days"
