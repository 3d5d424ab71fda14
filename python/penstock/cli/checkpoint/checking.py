"""Commands that check and clean: verify, prune."""

import time
from typing import Annotated

from cyclopts import Parameter

from penstock.cli.checkpoint.place import choose, open_checkpoints, refuse_empty
from penstock.cli.checkpoint.shown import titled
from penstock.cli.checkpoint.speed import bytes_progress, gigabytes
from penstock.cli.output import Json, command_app, print_facts, print_json, print_table, say
from penstock.cli.output import size as as_size
from penstock.errors import UsageError
from penstock.state import Keep
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
        bool, Parameter(name="--all", negative=(), help="All of the place; what they share is read once.")
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
        raise UsageError(f"--all and step {step} at once make no sense")
    verifier = Verifier()
    reports: list[Verified] = []
    with open_checkpoints(place, write=mark) as opened:
        refuse_empty(opened)
        chosen = opened.list() if every else [choose(opened, step or "latest")]
        for found in chosen:
            with bytes_progress(f"verifying {titled(found)}", quiet=json) as tell:
                report = verifier.verify(found, tell)
            if not report.ok and is_retired(opened.log, found.number):
                say(f"{titled(found)} was retired meanwhile")
                continue
            reports.append(report)
            marked = (
                mark
                and not report.loads
                and quarantine(opened.log, found.number, report.reason, rank=-1, at=time.time())
            )
            if json:
                print_json({**report.to_json(), "quarantined": bool(found.damage) or marked})
            else:
                _say(report, titled(found), marked)
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


prune_app = command_app(
    "prune",
    "Retire checkpoints that nobody wishes to keep, and delete what nothing refers to.",
    examples=(
        "  penstock checkpoint prune runs/7b --keep-last 3 --dry-run\n"
        "  penstock checkpoint prune runs/7b --keep-last 3 --keep-every 10000"
    ),
)


@prune_app.default
def prune_checkpoints(
    place: str,
    *,
    keep_last: Annotated[int, Parameter(help="How many of the newest good ones stay.")],
    keep_every: Annotated[
        int | None, Parameter(help="The first of every so many steps stays, for good.")
    ] = None,
    dry_run: Annotated[bool, Parameter(negative=(), help="Say what would go, and change nothing.")] = False,
    json: Json = False,
) -> int:
    """Safe beside a run that saves. The newest good checkpoint and pinned ones always stay.

    Parameters
    ----------
    place
        Directory or URL of the checkpoints, directory of a run, or run: and a run's name.
    """
    keep = Keep(last=keep_last, every=keep_every)
    with open_checkpoints(place, write=not dry_run) as opened:
        refuse_empty(opened)
        done = opened.prune(keep, dry_run=dry_run)
        kept = [each.step for each in opened.list() if not (dry_run and each.step in done.retired)]
    document = {
        "dry_run": dry_run,
        "retired": list(done.retired),
        "kept": kept,
        "damaged": {str(step): reason for step, reason in done.damaged.items()},
        "files": len(done.files),
        "bytes": done.bytes,
    }
    if json:
        print_json(document)
        return 0
    would = "would go" if dry_run else "retired"
    print_facts(
        {
            would: ", ".join(map(str, done.retired)) or "nothing",
            "kept": ", ".join(map(str, kept)),
            "files": f"{len(done.files):,}, {as_size(done.bytes)}",
        }
    )
    for step, reason in done.damaged.items():
        say(f"step {step} is damaged: {reason}")
    return 0
