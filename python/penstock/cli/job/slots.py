"""``penstock slots``: what there is for jobs, who holds it, who waits."""

import time
from collections.abc import Callable, Sequence

import msgspec

from penstock.cli.output import Json, command_app, print_json, print_table, print_text
from penstock.process.slots import HeldSlot, Share, SlotTable
from penstock.process.slots import slots as read_slots
from penstock.report.quantities import duration, size

app = command_app(
    "slots",
    "Show what this machine has for jobs, who holds it, and who waits.",
    examples="  penstock slots\n  penstock slots --json | jq '.held[].job'",
)


@app.default
def slots(*, json: Json = False) -> int:
    """What your own jobs hold on this machine. Who waits is served in this order, among those who want the same kind of thing."""
    table = read_slots()
    if json:
        print_json(msgspec.to_builtins(table))
        return 0
    print_table(["", "there", "held", "free"], _totals(table), right=["there", "held", "free"])
    if table.held:
        print_text()
        print_table(["job", "worker", "pid", "GPUs", "CPUs", "memory", "ports"], map(_row, table.held))
    if table.waiting:
        print_text()
        now = time.time()
        rows = [(t.job, t.wanted, duration(max(now - t.since, 0) * 1e9)) for t in table.waiting]
        print_table(["waiting", "for", "since"], rows, right=["since"])
    return 0


def _totals(table: SlotTable) -> list[tuple[str, object, object, object]]:
    def held(of: Callable[[Share], int]) -> int:
        return sum(of(slot.share) for slot in table.held)

    counts = (
        ("GPUs", len(table.gpus), held(lambda share: len(share.gpus))),
        ("CPUs", len(table.cpus), held(lambda share: len(share.cpus))),
        ("ports", int(table.ports["count"]), held(lambda share: len(share.ports))),
    )
    rows: list[tuple[str, object, object, object]] = [
        (name, n, used, max(n - used, 0)) for name, n, used in counts
    ]
    used_bytes = held(lambda share: share.memory_bytes)
    free_bytes = max(table.memory_bytes - used_bytes, 0)
    return [*rows, ("memory", size(table.memory_bytes), size(used_bytes), size(free_bytes))]


def _row(slot: HeldSlot) -> tuple[object, ...]:
    worker = slot.role if slot.slot is None else f"{slot.role}-{'spare' if slot.rank is None else slot.rank}"
    share = slot.share
    memory = size(share.memory_bytes) if share.memory_bytes else ""
    return (
        slot.job,
        worker,
        slot.pid,
        ",".join(share.gpus),
        _ranges(share.cpus),
        memory,
        _ranges(share.ports),
    )


def _ranges(numbers: Sequence[int]) -> str:
    """``0-3,8``."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and spans[-1][1] + 1 == number:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)
