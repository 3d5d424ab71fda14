"""``penstock ps``: the processes of a job."""

from penstock.cli.output import Json, command_app, duration, print_json, print_table, size
from penstock.cli.process.home import home
from penstock.process.asking import ask
from penstock.process.jobs import FINAL, find

app = command_app(
    "ps",
    "Show the processes of a job: ranks and their descendants, with processor time and memory.",
    examples="  penstock ps train-3f2a\n  penstock ps train-3f2a --json | jq .pid",
)


@app.default
def ps(job: str, *, json: Json = False) -> int:
    """Ask the job's agent; of a job that is over, show how its ranks ended.

    Parameters
    ----------
    job
        Name of the job, or how it begins.
    """
    found = find(home(), job)
    if found.phase() in FINAL:
        state = found.state()
        rows = (
            []
            if state is None
            else [
                {**worker, "role": gang.role, "incarnation": gang.incarnation}
                for gang, worker in state.workers
            ]
        )
    else:
        answer = ask(found, {"ask": "ps"})
        rows = [{**process, "incarnation": answer["incarnation"]} for process in answer["processes"]]
    if json:
        for row in rows:
            print_json(row)
        return 0
    heads = ["rank", "pid", "state", "life", "cpu", "memory", "command"]
    shown = [
        (
            row["rank"],
            row["pid"],
            row.get("state", "over"),
            row["incarnation"],
            duration((row["cpu_s"] or 0) * 1e9),
            size(row.get("rss_bytes") or row.get("rss_max_bytes") or 0),
            row.get("command", ""),
        )
        for row in rows
    ]
    print_table(heads, shown, right=["rank", "pid", "life", "cpu", "memory"])
    return 0
