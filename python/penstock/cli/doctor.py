"""``penstock doctor``: is this machine fit for training?"""

import os
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from penstock.cli.job.home import home
from penstock.cli.output import Json, command_app, print_json, print_table, print_text, say
from penstock.errors import HistoryUnusable, KeyDamaged, KeyMissing, KeyUnsafe, UsageError
from penstock.observe.doctor import Check, examine
from penstock.observe.peaks.device import read_limits
from penstock.process.exclusion.entry import history_place
from penstock.process.exclusion.history import open_history, pasts
from penstock.process.exclusion.identity import own_identity
from penstock.process.hosts.host_key import key_path, read_key
from penstock.process.questions.host_sets import fold

app = command_app(
    "doctor",
    "Examine this machine: what is installed, limits, accelerators, disk.",
    examples="  penstock doctor\n  penstock doctor --directory /data --json\n  penstock doctor --peaks",
)


@app.default
def doctor(
    *,
    directory: Annotated[Path | None, Parameter(help="Where data and checkpoints will live.")] = None,
    peaks: Annotated[
        bool,
        Parameter(negative=(), help="Measure how fast this device multiplies, instead; takes half a minute."),
    ] = False,
    json: Json = False,
) -> int:
    """Look at everything once, print a verdict per line; exit 1 when something fails."""
    if peaks:
        return _measure_peaks(json=json)
    checks = [*examine(directory), _host_key(), _excluded()]
    if json:
        print_json([check.to_json() for check in checks])
    else:
        print_table(
            ["", "what", "found", "what to do"], [(c.verdict, c.name, c.value, c.hint) for c in checks]
        )
    failed = [check.name for check in checks if check.verdict == "fail"]
    if failed:
        say(f"not fit: {', '.join(failed)}")
    return 1 if failed else 0


def _host_key() -> Check:
    """Whether this host can join others: only a key that nobody else can read is used."""
    path = key_path(home(), os.environ)
    try:
        read_key(path)
    except KeyMissing:
        return Check("key of hosts", "info", "none", "penstock hosts key, if this host is to join others")
    except (KeyDamaged, KeyUnsafe) as problem:
        return Check("key of hosts", "warn", str(problem), problem.hint or "")
    return Check("key of hosts", "ok", str(path))


def _excluded() -> Check:
    """Hosts that no job uses, and whether this is one."""
    history = open_history(home(), history_place(None, os.environ))
    try:
        known = pasts(history)
    except HistoryUnusable as problem:
        return Check("excluded hosts", "warn", str(problem), problem.hint or "")
    identity = own_identity(os.environ)
    own = known.of(identity, names=[identity.name])
    if own is not None and own.exclusion is not None:
        return Check(
            "excluded hosts", "warn", f"this host: {own.exclusion.why}", f"penstock hosts include {own.name}"
        )
    others = known.excluded()
    if not others:
        return Check("excluded hosts", "ok", "none")
    return Check("excluded hosts", "info", fold(past.name for past in others), "penstock hosts excluded")


def _measure_peaks(*, json: bool) -> int:
    """Burst and sustained rates of this device, beside its maker's figures and what limits it."""
    try:
        from penstock.torch.arithmetic.matmul_peak import device_name, measure_peaks
    except ImportError as reason:
        raise UsageError("measuring peaks needs torch", hint="pip install torch") from reason
    name = device_name()
    if name == "processor":
        say("no GPU is usable here: these are the peaks of the processor, which has no maker's figure")
    limits = [limit for limit in read_limits() if limit.name == name]
    notes = list(dict.fromkeys(note for limit in limits for note in limit.notes))
    measured = list(measure_peaks())
    if json:
        print_json({"device": name, "notes": notes, "peaks": [peak.to_json() for peak in measured]})
        return 0
    rows = [
        (
            peak.dtype,
            *(f"{rate / 1e12:.4g}" for rate in (peak.burst, peak.sustained)),
            "unknown" if peak.peak is None else f"{peak.peak / 1e12:.4g}",
            "" if peak.peak is None else f"{peak.sustained / peak.peak:.0%}",
            peak.size,
        )
        for peak in measured
    ]
    print_text(f"{name}, TFLOP/s")
    print_table(["type", "burst", "sustained", "maker's figure", "sustained share", "size"], rows)
    for note in notes:
        say(f"note: {note}")
    return 0
