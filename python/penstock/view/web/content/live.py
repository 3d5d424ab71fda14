"""A run while it runs: what its ranks have in their hands, and what its training loop shows of its own arrays."""

from penstock.errors import UsageError
from penstock.run.directory import RunDirectory
from penstock.view.address import RunAddress
from penstock.view.model import BatchView
from penstock.view.opener import OpenedStream
from penstock.view.tap import compare_taps, read_ring, rings_in, shown_view, taps_in
from penstock.view.wire.batch_answers import RunTaps


def look_at_run(stream: OpenedStream) -> RunTaps:
    """Every live rank's batch, rebuilt here and compared, and the names under which the loop shows arrays."""
    if not isinstance(stream.address, RunAddress):
        return {"ranks": [], "unequal": [], "shown": []}
    folder = RunDirectory(stream.address.run).taps
    live = [tap for tap in taps_in(folder) if tap.alive is not False]
    return {**compare_taps(stream, live), "shown": sorted(rings_in(folder))}


def shown_by(stream: OpenedStream, name: str) -> tuple[BatchView, list[str]]:
    """What a training loop showed last under a name, and what of it is missing, in words."""
    if not isinstance(stream.address, RunAddress):
        raise UsageError("only a run shows arrays of its own")
    rings = rings_in(RunDirectory(stream.address.run).taps)
    if name not in rings:
        hint = (
            f"it shows {', '.join(sorted(rings))}" if rings else "its loop calls penstock.tap(name, arrays)"
        )
        raise UsageError(f"the run shows nothing under the name {name[:100]!r}", hint=hint)
    entries, left = read_ring(rings[name])
    if not entries:
        raise UsageError(f"the run has shown nothing under the name {name!r} yet")
    vocabulary = next((candidate for candidate in stream.vocabularies if candidate is not None), None)
    view = shown_view(entries[-1], name, stream.address.run, vocabulary)
    missing = [str(cut) for cut in entries[-1].facts.get("cuts", [])]
    return view, [*missing, *([f"{left:,} calls left out by the budget"] if left else [])]
