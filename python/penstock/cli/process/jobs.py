"""``penstock jobs``: what runs and what ran."""

import time

from penstock.cli.output import Json, command_app, duration, print_json, print_table
from penstock.cli.process.home import home
from penstock.process.jobs import Job
from penstock.process.jobs import jobs as all_jobs

app = command_app(
    "jobs",
    "List jobs: what runs, what ran, and how it ended.",
    examples="  penstock jobs\n  penstock jobs --json | jq -r 'select(.phase == \"running\").job'",
)


@app.default
def jobs(*, json: Json = False) -> int:
    """Oldest first. ``lost`` is a job whose keeper and agent were killed in the same instant; ``stop`` sweeps it."""
    rows = [_about(job) for job in all_jobs(home())]
    if json:
        for row in rows:
            print_json(row)
        return 0
    shown = [
        (r["job"], r["phase"], r["ranks"], r["restarts"], duration(r["age_s"] * 1e9), r["reason"])  # type: ignore[operator]
        for r in rows
    ]
    print_table(
        ["job", "phase", "ranks", "restarts", "time", "why"], shown, right=["ranks", "restarts", "time"]
    )
    return 0


def _about(job: Job) -> dict[str, object]:
    phase, state, asked = job.phase(), job.state(), job.description()
    begun = state.started_at if state else time.time()
    return {
        "job": job.id,
        "phase": phase,
        "ranks": sum(role["ranks"] for role in asked["roles"]),
        "restarts": state.incarnation if state else 0,
        "age_s": round(((state.ended_at if state else None) or time.time()) - begun, 3),
        "exit_code": state.exit_code if state else None,
        "reason": state.reason if state else "",
        "command": asked["roles"][0]["command"],
        "directory": str(job.directory),
    }
