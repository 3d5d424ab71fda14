"""``penstock run --dry-run``: what would run, in which order, and what happens when it fails."""

import shlex
from collections.abc import Mapping

from penstock.cli.output import print_json, print_text
from penstock.events.redaction import Redaction
from penstock.process.job.role_order import waves
from penstock.process.job.spec import HANG_LEAST_S, JobSpec, Role
from penstock.process.slots import check_slots
from penstock.report.quantities import size


def show(spec: JobSpec, *, json: bool, environment: Mapping[str, str]) -> int:
    """Print a job that is not started. JSON is the very document that the agent would read, but for its name and secrets."""
    check_slots(spec)
    redaction = Redaction(environment)
    if json:
        print_json(redaction.document(spec.to_json(spec.name or "")))
        return 0
    roles = {role.name: role for role in spec.roles}
    for number, wave in enumerate(waves({role.name: role.after for role in spec.roles}), start=1):
        for name in wave:
            _show_role(number, roles[name], spec, redaction)
    return 0


def _show_role(wave: int, role: Role, spec: JobSpec, redaction: Redaction) -> None:
    ranks = "1 rank" if role.ranks == 1 else f"{role.ranks} ranks"
    print_text(f"{wave}. {role.name}: {role.kind} of {ranks}{_waits(role, spec)}")
    facts = {
        "command": shlex.join(redaction.command(role.command)),
        "directory": str(role.directory or spec.directory),
        "environment": " ".join(f"{name}={redaction.text(text)}" for name, text in role.environment.items()),
        "slots": _slots(role),
        "restarts": _restarts(role),
        "hang": _hang(role),
        "start": "forked from a warm Python" if role.zygote else _executed(role),
    }
    for name, text in facts.items():
        if text:
            print_text(f"     {name:<11}  {text}")


def _executed(role: Role) -> str:
    why = role.zygote_why
    return why if why.startswith("executed") else f"executed: {why}" if why else "executed"


def _waits(role: Role, spec: JobSpec) -> str:
    kinds = {other.name: other.kind for other in spec.roles}
    waits = [f"{name} {'runs' if kinds[name] == 'service' else 'succeeded'}" for name in role.after]
    return f", once {' and '.join(waits)}" if waits else ""


def _slots(role: Role) -> str:
    slots = role.slots
    parts = [
        f"{count} {name}"
        for name, count in (("cpus", slots.cpus), ("gpus", slots.gpus), ("ports", slots.ports))
        if count
    ]
    parts += [size(slots.memory_bytes)] if slots.memory_bytes else []
    return f"each rank {', '.join(parts)}" if parts else ""


def _restarts(role: Role) -> str:
    budget = role.policy.budget
    # A job of one host loses none.
    counts = {name: count for name, count in vars(budget).items() if count and name != "host"}
    if not counts:
        return "none"
    who = {"one": "the rank alone", "gang": "its gang", "all": "the whole job"}[role.policy.restart]
    return f"of {who}: " + ", ".join(f"{count} × {name}" for name, count in counts.items())


def _hang(role: Role) -> str:
    hang = role.policy.hang
    if hang is None:
        return "not looked for"
    silence = f", or {hang.silence_s:g} s without output" if hang.silence_s else ""
    least_s = HANG_LEAST_S if hang.least_s is None else hang.least_s
    warns = hang.least_s is None and not role.policy.budget.hang
    only = "; a warning, nothing is ended" if warns else ""
    return f"{hang.factor:g} × a usual step, {least_s:g} s at least{silence}{only}"
