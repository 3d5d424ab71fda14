"""``penstock runs watch``: a run as it goes on, for Prometheus and for people."""

from typing import Annotated

from cyclopts import Parameter

from penstock.cli.output import Json, command_app, print_json, print_text, say
from penstock.cli.report.report_text import one_line
from penstock.cli.runs.place import run_at

watch_app = command_app(
    "watch",
    "Watch a run: serve what it does to Prometheus and raise alerts, from its files alone.",
    examples=(
        "  penstock runs watch runs/exp1\n"
        "  penstock runs watch runs/exp1 --serve 127.0.0.1:9464\n"
        "  penstock runs watch runs/exp1 --once --json | jq .speed"
    ),
)


@watch_app.default
def watch(
    run: str,
    *,
    serve: Annotated[
        str | None,
        Parameter(help="Answer Prometheus at HOST:PORT, path /metrics (port 0: any that is free)."),
    ] = None,
    once: Annotated[bool, Parameter(negative=(), help="Look once, and end; no alert is raised.")] = False,
    json: Json = False,
) -> int:
    """Look once a second until Ctrl-C. Alerts go to the story of the run, to stderr, and to the command of alerts.toml.

    Parameters
    ----------
    run
        The directory of a run, run:DIR, or a name below runs/.
    """
    from pathlib import Path

    from penstock.report.watch.run_watch import Snapshot
    from penstock.report.watch.watcher import Watcher, line_of, snapshot_json
    from penstock.report.watch.watcher import watch as watch_runs

    place = run_at(run)
    watcher = Watcher(
        runs=lambda: [place], serve=serve, must_serve=True, beside=Path.cwd(), raises_alerts=not once
    )

    def show(snapshots: list[Snapshot]) -> None:
        for snapshot in snapshots:
            alerts = watcher.alerts(place)
            if json:
                print_json(snapshot_json(snapshot, alerts))
            else:
                print_text(one_line(line_of(snapshot, alerts)))

    if once:
        show(watcher.refresh(at_once=True))
        watcher.close()
        return 0
    watcher.refresh()
    if watcher.endpoint is not None:
        say(f"serving http://{watcher.endpoint.address}/metrics")
    watch_runs(watcher, [], shown=show)
    return 0
