"""``penstock checkpoint verify``: every byte of checkpoints, all damage named."""

import time
from typing import Annotated

from cyclopts import Parameter

from penstock.cli.checkpoint.byte_progress import bytes_progress, gigabytes
from penstock.cli.checkpoint.checkpoint_text import titled
from penstock.cli.checkpoint.place import choose, open_checkpoints, refuse_empty
from penstock.cli.output import Json, command_app, print_json, print_table, say
from penstock.errors import UsageError
from penstock.report.quantities import size as as_size
from penstock.state.inspect.verify import Verified, Verifier
from penstock.state.load.lookup import is_retired
from penstock.state.log.commit import quarantine

verify_app = command_app(
    "verify",
    "Read every byte of checkpoints and report all damage with file, byte and tensor.",
    examples=(
        "  penstock checkpoint verify runs/7b\n"
        "  penstock checkpoint verify runs/7b 1000 --quarantine\n"
        "  penstock checkpoint verify s3://bucket/runs/7b --all --json"
    ),
)


@verify_app.default
def verify_checkpoints(
    place: str,
    step: str | None = None,
    *,
    every: Annotated[
        bool,
        Parameter(
            name="--all",
            negative=(),
            help="Verify every checkpoint of the place; shared files are read once.",
        ),
    ] = False,
    mark: Annotated[
        bool,
        Parameter(
            name="--quarantine", negative=(), help="Put damage into the log, so that no run resumes from it."
        ),
    ] = False,
    json: Json = False,
) -> int:
    """Exit code 0 when everything is as it was saved, 1 when it is not.

    Parameters
    ----------
    place
        Directory or URL of the checkpoints, directory of a run, or run: and a run's name.
    step
        A step, latest (the default), or number=N of the list.
    """
    if every and step is not None:
        raise UsageError(f"--all and step {step} exclude each other")
    verifier = Verifier()
    reports: list[Verified] = []
    with open_checkpoints(place, write=mark) as opened:
        refuse_empty(opened)
        chosen = opened.list() if every else [choose(opened, step or "latest")]
        for checkpoint in chosen:
            with bytes_progress(f"verifying {titled(checkpoint)}", quiet=json) as tell:
                report = verifier.verify(checkpoint, tell)
            if not report.ok and is_retired(opened.log, checkpoint.number):
                say(f"{titled(checkpoint)} was retired meanwhile")
                continue
            reports.append(report)
            marked = (
                mark
                and not report.loads
                and quarantine(opened.log, checkpoint.number, report.reason, rank=-1, at=time.time())
            )
            if json:
                print_json({**report.to_json(), "quarantined": bool(checkpoint.damage) or marked})
            else:
                _say(report, titled(checkpoint), marked)
    if not json:
        _print_damages(reports)
    return 0 if all(report.ok for report in reports) else 1


def _say(report: Verified, title: str, marked: bool) -> None:
    speed = f"{as_size(report.bytes_read)} read at {gigabytes(report.bytes_read, report.seconds)}"
    if report.ok:
        say(f"{title} is as it was saved: {report.tensors:,} tensors, {report.files} files, {speed}")
    else:
        done = ", quarantined" if marked else ", and loads from second copies" if report.loads else ""
        say(f"{title} is damaged in {len(report.damages)} places{done}; {speed}")


def _print_damages(reports: list[Verified]) -> None:
    rows = [
        (report.step, damage.file, damage.offset, damage.tensor, damage.reason)
        for report in reports
        for damage in report.damages
    ]
    if rows:
        print_table(["step", "file", "byte", "tensor", "what is wrong"], rows, right=["step", "byte"])
