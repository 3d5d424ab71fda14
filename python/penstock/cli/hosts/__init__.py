"""``penstock hosts``: the hosts of a job, and what hosts need to be one job."""

import shutil
from typing import Any

import msgspec

from penstock.cli.output import Json, command_app, in_encoding, print_json, print_text, say

app = command_app(
    "hosts",
    "The hosts of a job, and the key that hosts share so that they can join one.",
    examples=(
        "  penstock hosts\n"
        "  penstock hosts train-3f2a\n"
        "  penstock hosts train-3f2a --json | jq '.hosts[] | select(.state != \"here\").name'\n"
        "  penstock hosts list train-3f2a\n"
        "  penstock hosts check --hosts 'gpu[01-16]'\n"
        "  penstock hosts excluded\n"
        "  penstock hosts key"
    ),
)

#: Command -> its purpose and where it lives; loaded when called.
COMMANDS = {
    "list": ("Show the hosts of a job: host rank, state, address, who votes and who leads.", "list_command"),
    "check": ("Check whether hosts are fit to train, and name who is not.", "check_command"),
    "excluded": ("Show hosts that are left out because they failed, and why.", "excluded_command"),
    "exclude": ("Leave a host out of all jobs.", "exclude_command"),
    "include": ("Use a host again.", "include_command"),
    "key": ("Make the key of your hosts unless there is one, and say how to copy it.", "key_command"),
    "setup": ("Print the rights that renting hosts needs.", "setup_command"),
}

for _name, (_purpose, _module) in COMMANDS.items():
    app.command(f"penstock.cli.hosts.{_module}:{_name}_app", name=_name, help=_purpose)


@app.default
def hosts(job: str | None = None, *, json: Json = False) -> int:
    """Ask on any host of the job. More than 32 hosts are shown in groups: the worst first, names folded.

    *Lease* is how long ranks of a host may run on unheard, at most; *late* how many heartbeats of it are missing. A host that reports to another
    than the leader (of jobs of more than 65 hosts) is never late: it is here until it is unheard.

    Parameters
    ----------
    job
        Name of the job, or how it begins (default: the newest of many hosts that runs).
    """
    from penstock.cli.hosts.host_choice import running_hosts_job
    from penstock.cli.hosts.host_rows import host_lines
    from penstock.report.hosts.asked_job import AskedJob

    chosen = running_hosts_job(job, "hosts")
    snapshot = AskedJob(chosen).look()
    if json:
        print_json(host_document(chosen.id, snapshot))
        return 0
    if snapshot.problem:
        say(f"{chosen.id}: {snapshot.problem}")
        return 0
    for line in host_lines(snapshot, shutil.get_terminal_size().columns):
        print_text(in_encoding(line))
    voters = f" · votes: {', '.join(snapshot.voters)}" if snapshot.voters else ""
    say(
        f"{chosen.id}: {snapshot.line()} · term {snapshot.term:x} · leads: {snapshot.leader or 'nobody'}{voters}"
    )
    for host in snapshot.hosts:
        if host.trouble:
            say(f"{host.name}: {host.trouble}")
    return 0


def host_document(job: str, snapshot: Any) -> dict[str, Any]:
    """All of it as plain values; times are in seconds, and what is not known is null."""
    rows = [
        {
            **{
                name: value
                for name, value in msgspec.to_builtins(host).items()
                if name not in ("since_s", "due_s", "is_timed", "lease_end_s")
            },
            "for_s": snapshot.for_s(host),
            "late_beats": round(snapshot.late_beats(host), 1) if host.is_timed else None,
            "lease_left_s": snapshot.lease_left_s(host),
            "leader": host.name == snapshot.leader,
        }
        for host in snapshot.hosts
    ]
    return {
        "job": job,
        "phase": snapshot.phase,
        "problem": snapshot.problem,
        "term": snapshot.term,
        "leader": snapshot.leader or None,
        "voters": list(snapshot.voters),
        "frozen": snapshot.frozen or None,
        "lease_s": snapshot.lease_s,
        "heartbeat_s": snapshot.heartbeat_s,
        "hosts": rows,
    }
