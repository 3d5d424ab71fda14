"""``penstock runs export``: a run for the tools of others."""

import os
from typing import Annotated
from urllib.parse import unquote

from cyclopts import Parameter

from penstock.cli.output import Json, command_app, print_json, say
from penstock.errors import UsageError

#: What OpenTelemetry calls headers of requests, such as a token.
_HEADERS = ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_METRICS_HEADERS")

export_app = command_app(
    "export",
    "Write the steps of a run for TensorBoard, parquet, Perfetto or an OpenTelemetry receiver, once or as it grows.",
    examples=(
        "  penstock runs export runs/exp1 --to tensorboard:logs/exp1 --follow\n"
        "  penstock runs export runs/exp1 --to parquet:exp1-steps\n"
        "  penstock runs export runs/exp1 --to perfetto:exp1.pftrace\n"
        "  penstock runs export runs/exp1 --to otlp:http://localhost:4318 --follow"
    ),
)


@export_app.default
def export(
    run: str,
    *,
    to: Annotated[
        str,
        Parameter(help="tensorboard:DIR, parquet:DIR, perfetto:FILE or otlp:URL; a new one, or this run's."),
    ],
    follow: Annotated[bool, Parameter(negative=(), help="Go on until the run has ended.")] = False,
    quiet: Annotated[
        float,
        Parameter(help="With --follow: seconds without a sign of the run after which it is taken for dead."),
    ] = 600.0,
    json: Json = False,
) -> int:
    """Export again to the same place, and only what is new is added; what belongs to something else is never overwritten.

    Parameters
    ----------
    run
        The directory of a run, run:DIR, or a name below runs/.
    """
    from penstock.cli.runs.place import run_at
    from penstock.report.exports.run_export import Following, export_run, open_sink
    from penstock.report.exports.target import target_of
    from penstock.report.quantities import size

    if not 0 < quiet < float("inf"):
        raise UsageError(f"--quiet must be a number of seconds above 0, got {quiet}")
    target = target_of(to)
    place = run_at(run)
    sink = open_sink(target, place, _headers())
    try:
        is_over = export_run(place, sink, Following(quiet_max_s=quiet) if follow else None)
    except KeyboardInterrupt:
        is_over = False
    finally:
        sink.close()
    tally = sink.tally
    if json:
        print_json(
            {
                "run": str(place),
                "to": str(target),
                "steps": tally.steps,
                "moments": tally.moments,
                "bytes": tally.bytes,
                "is_over": is_over,
                "refused": tally.refused_count,
                "refusals": tally.refused,
            }
        )
    else:
        going = "" if is_over else "; the run goes on, or was killed"
        say(f"{tally.steps:,} steps and {tally.moments:,} moments, {size(tally.bytes)} to {target}{going}")
        for refusal in tally.refused:
            say(
                f"left out: {refusal['field']!r} of step {refusal['step']}, {refusal['value']}: {refusal['reason']}"
            )
        if tally.refused_count > len(tally.refused):
            say(f"left out: {tally.refused_count - len(tally.refused)} values more")
    return 1 if tally.refused_count else 0


def _headers() -> dict[str, str]:
    """Of OpenTelemetry's own variables: name=value, separated by commas, values escaped as in URLs."""
    headers: dict[str, str] = {}
    for variable in _HEADERS:
        for part in filter(None, os.environ.get(variable, "").split(",")):
            name, equals, value = part.partition("=")
            if not equals or not name.strip():
                # Never with its value: it may be a secret.
                raise UsageError(f"{variable} must be name=value, separated by commas")
            headers[name.strip()] = unquote(value.strip())
            if any(character in headers[name.strip()] for character in "\r\n\0"):
                raise UsageError(f"{variable} has a line break in the value of {name.strip()!r}")
    return headers
