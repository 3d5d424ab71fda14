"""Having the agent take stacks, where the kernel lets only its children look into workers."""

import time

import msgspec

from penstock.errors import JobSilent
from penstock.process.job.catalogue import Job
from penstock.process.job.control import ask
from penstock.process.stacks.collection import Collected
from penstock.process.stacks.groups import groups_of

#: The agent gives its collector 10 s.
PATIENCE_S = 12.0
LOOK_S = 0.02


def collect_by_agent(
    job: Job, ranks: frozenset[int] | None = None, *, patience_s: float = PATIENCE_S
) -> Collected | None:
    """Python stacks of all workers, or those of some ranks; nothing if the agent does not answer in time."""
    answer = job.directory / "stacks.json"
    answer.unlink(missing_ok=True)
    try:
        ask(job, {"ask": "stacks"})
    except JobSilent:
        return None
    until = time.monotonic() + patience_s
    while not answer.exists():
        if time.monotonic() > until:
            return None
        time.sleep(LOOK_S)
    collected = msgspec.json.decode(answer.read_bytes(), type=Collected)
    answer.unlink(missing_ok=True)
    looks = [look for look in collected.looks if ranks is None or look.rank in ranks]
    return msgspec.structs.replace(collected, looks=looks, groups=groups_of(looks))
