"""``penstock jobs``: what runs and what ran."""

import time
from typing import Annotated, Any

from cyclopts import Parameter

from penstock.cli.job.home import home
from penstock.cli.output import Json, command_app, print_json, print_table, print_text, say
from penstock.cli.questions.process_table import span
from penstock.errors import UsageError
from penstock.events.redaction import Redaction
from penstock.process.job.catalogue import ELSEWHERE, LOST, Job
from penstock.process.job.catalogue import jobs as all_jobs
from penstock.process.job.units import second_count
from penstock.process.sweep import prune as remove
from penstock.process.sweep import sweep_lost
from penstock.report.quantities import size

app = command_app(
    "jobs",
    "List jobs: what runs, what ran, and how it ended.",
    examples=(
        "  penstock jobs\n"
        "  penstock jobs --json | jq -r 'select(.phase == \"running\").job'\n"
        "  penstock jobs --prune --older 7d"
    ),
)


@app.default
def jobs(
    *,
    prune: Annotated[
        bool, Parameter(negative=(), help="Remove the directories of jobs that are over, logs and all.")
    ] = False,
    older: Annotated[
        str | None, Parameter(help="With --prune: only those that ended so long ago, as in 7d.")
    ] = None,
    dry_run: Annotated[
        bool, Parameter(negative=(), help="With --prune: only say what would be removed.")
    ] = False,
    json: Json = False,
) -> int:
    """Oldest first. ``lost`` is a job whose keeper and agent were killed in the same instant; what it left is swept."""
    sweep_lost(home(), tell=say)
    if prune:
        return _prune(older, dry_run=dry_run, json=json)
    if older is not None or dry_run:
        raise UsageError("--older and --dry-run go with --prune")
    rows = [_about(job) for job in all_jobs(home())]
    if json:
        for row in rows:
            print_json(row)
        return 0
    shown = [
        (r["job"], r["phase"], _roles(r["roles"], r["hosts"]), r["restarts"], span(r["age_s"]), r["reason"])
        for r in rows
    ]
    print_table(["job", "phase", "roles", "restarts", "time", "why"], shown, right=["restarts", "time"])
    return 0


def _prune(older: str | None, *, dry_run: bool, json: bool) -> int:
    age_s = 0.0 if older is None else second_count(older)
    if age_s is None:
        raise UsageError(f"--older must be a time, as in 12h or 7d, got {older}")
    gone = remove(home(), older_s=age_s, dry_run=dry_run)
    if json:
        for removal in gone:
            print_json(
                {
                    "job": removal.job,
                    "phase": removal.phase,
                    "bytes": removal.freed_bytes,
                    "removed": not dry_run,
                }
            )
    else:
        for removal in gone:
            print_text(f"{removal.job}  {removal.phase}  {size(removal.freed_bytes)}")
    total = size(sum(pruned.freed_bytes for pruned in gone))
    say(f"{len(gone)} jobs, {total} {'would be freed' if dry_run else 'freed'}")
    return 0


def _roles(roles: list[dict[str, Any]], hosts: int) -> str:
    """``4 ranks`` of a job with one role, else each role with its ranks; on how many hosts, where it is more than one."""
    if hosts > 1:
        return f"{hosts} hosts × {_roles(roles, 1)}"
    if len(roles) == 1:
        return f"{roles[0]['ranks']} {'rank' if roles[0]['ranks'] == 1 else 'ranks'}"
    return ", ".join(f"{role['role']} × {role['ranks']}" for role in roles)


def _elsewhere(job: Job, phase: str) -> str:
    return job.reason() if phase == ELSEWHERE else ""


def _about(job: Job) -> dict[str, Any]:
    phase, asked = job.phase(), job.description()
    state = None if phase == "unreadable" else job.state()
    begun = state.started_at if state else time.time()
    redaction = Redaction()
    return {
        "job": job.id,
        "phase": phase,
        "ranks": sum(role["ranks"] for role in asked.get("roles", [])),
        "roles": [
            {
                "role": role["name"],
                "kind": role["kind"],
                "ranks": role["ranks"],
                "command": redaction.command(role["command"]),
                "phases": sorted({gang.phase for gang in state.gangs if gang.role == role["name"]})
                if state
                else [],
            }
            for role in asked.get("roles", [])
        ],
        "restarts": state.incarnation if state else 0,
        "age_s": round(((state.ended_at if state else None) or time.time()) - begun, 3),
        "exit_code": state.exit_code if state else None,
        "reason": redaction.text(LOST if phase == "lost" else state.reason)
        if state
        else _elsewhere(job, phase),
        "hosts": (job.host_file() or {}).get("nnodes", len(job.host_names()) or 1),
        "incidents": state.incidents if state else [],
        "directory": str(job.directory),
    }
