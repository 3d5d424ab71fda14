"""A feed whose batches come from a service: the same batches, cursors, origins and statistics as a local one."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock import _rust
from penstock.data.feed.batch import Batch
from penstock.data.feed.batch_source import StageTimes, Waits
from penstock.data.feed.batch_wire import receive
from penstock.data.feed.cursor import Cursor
from penstock.data.feed.feed import Feed, OpenedSource
from penstock.data.feed.lane import Lane
from penstock.data.feed.options import MEMORY_BYTES, ReadOptions
from penstock.data.feed.token_batch import TokenBatch
from penstock.data.feed.undecodable import UndecodableCount
from penstock.data.monitor.statistics import Spread
from penstock.data.recipe.skips import Skips
from penstock.data.service.address import Service, servers_of
from penstock.data.service.remote_plan import Asking, ServicePlan, read_plan
from penstock.errors import (
    PenstockError,
    ServiceError,
    ServiceMismatch,
    ServiceUnavailable,
    ServiceUnusable,
)

if TYPE_CHECKING:
    from penstock._rust.service import LaneRequest

#: For batches that wait; a network wants more of them than a disk.
SERVICE_MEMORY_BYTES = 2 * MEMORY_BYTES


class ServiceSource:
    """Batches that servers make, in order."""

    def __init__(
        self, rust_feed: _rust.ServiceFeed, plan: ServicePlan, asking: Asking, undecodable: UndecodableCount
    ) -> None:
        self._rust_feed = rust_feed
        self._plan = plan
        self._asking = asking
        self._undecodable = undecodable
        self._problem: PenstockError | None = None

    def next(self) -> Batch | None:
        """The next batch, or None at the end. The end and errors stay: asking again gets the same answer."""
        if self._problem is not None:
            raise self._problem
        answer = self._rust_feed.next()
        if answer is None:
            return None
        if not isinstance(answer, bytes):
            return TokenBatch(answer, self._plan)
        batch = receive(answer, self._plan)
        try:
            self._undecodable.add(batch.faults)
        except PenstockError as problem:
            self._problem = problem
            raise
        return batch

    def ready(self) -> int:
        """Batches that have arrived and wait."""
        return self._rust_feed.ready()

    def waits(self) -> Waits:
        """How often and how long the consumer waited."""
        return Waits.of(self._rust_feed.waits())

    def counts(self) -> dict[str, int]:
        """What happened on the line."""
        return dict(zip(("requests", "failures", "damaged", "moved"), self._rust_feed.counts(), strict=True))

    def stage_times(self) -> StageTimes:
        """Nothing is planned, read or hashed here; servers tell of that in their own statistics."""
        return StageTimes(0.0, 0.0, 0.0)

    def stage_spread(self) -> dict[str, Spread]:
        """There are no stages here: servers have them."""
        return {}

    def stage(self) -> str:
        """What is waited for."""
        return f"fetch from {self._asking.servers}"

    def sharing(self) -> None:
        """Batches of a service are shared at the server."""

    def epochs_before(self, step: int) -> list[float | None]:
        """How often each source has been read before a step; None where no server says it now."""
        return self._answer_or(f"/v1/epochs?step={step}", None)

    def recurrence(self, _: int) -> list[float]:
        """How often packs recur, from a few blocks."""
        return self._answer_or("/v1/recurrence", float("nan"))

    def _answer_or(self, path: str, missing: Any) -> list[Any]:
        try:
            return list(self._asking.json(path))
        except ServiceError:
            return [missing] * len(self._plan.prepared)

    def close(self) -> None:
        """End the threads."""
        self._rust_feed.close()


class ServiceFeed(Feed):
    """Batches of one lane, from whichever server answers."""

    plan: ServicePlan
    _source: ServiceSource

    def __init__(
        self,
        service: Service,
        plan: ServicePlan,
        lane: Lane,
        *,
        cursor: Cursor | None = None,
        options: ReadOptions | None = None,
    ) -> None:
        self.service = service
        super().__init__(plan, lane, cursor=cursor, options=options or ReadOptions())

    def _open_source(self) -> OpenedSource:
        plan, lane = self.plan, self.lane
        wanted: LaneRequest = {
            "lane": (lane.number, lane.of),
            "plan": plan.identity,
            "skips": list(plan.skips.steps),
            "finished": plan.records or plan.drawn,
        }
        # Lanes begin at different servers, so that each has its share.
        servers = self.service.options(first=lane.number)
        # A network wants more batches on their way than a disk.
        memory_bytes = max(self.options.memory_bytes, SERVICE_MEMORY_BYTES)
        threads = max(1, self.options.thread_count)
        rust_feed = _rust.ServiceFeed(servers, wanted, self._step, threads, memory_bytes)
        assert plan.asking is not None
        return OpenedSource(ServiceSource(rust_feed, plan, plan.asking, self._undecodable))

    @property
    def line(self) -> dict[str, int]:
        """Requests, failures, answers that were damaged on the way, and how often another server took over."""
        return self._source.counts()

    def reopened(self, cursor: Cursor, options: ReadOptions | None = None) -> "ServiceFeed":
        """A fresh feed of the same lane at another place, read as this one unless other options are given."""
        same = options or self.options
        return ServiceFeed(self.service, self.plan, self.lane, cursor=cursor, options=same)

    def has_step(self, step: int) -> bool:
        """Whether anything comes at a step or after it."""
        return self.plan.has_step(self.lane, step)


def open_service(
    service: Service | str,
    *,
    lane: Lane | None = None,
    cursor: Cursor | None = None,
    skips: Skips | None = None,
    options: ReadOptions | None = None,
) -> ServiceFeed:
    """Open a lane at a service. All servers that answer must serve the same plan.

    Steps of ``skips`` are left out here, beside those that the servers leave out; samples are theirs to leave out.

    ``options.threads`` are connections: as many as a local feed would have threads, since more than cores only take turns.
    """
    chosen = Service(address=service) if isinstance(service, str) else service
    plan = _without(_agreed_plan(chosen), skips)
    return ServiceFeed(chosen, plan, lane or Lane(), cursor=cursor, options=options)


def _without(plan: ServicePlan, skips: Skips | None) -> ServicePlan:
    """The plan with further steps left out: a step that is not asked for changes no other."""
    if skips is None:
        return plan
    if skips.samples and set(skips.samples) != set(plan.skips.samples):
        raise ServiceUnusable(
            what="skips",
            reason="samples are left out of batches where they are made, and the servers leave out others",
            hint="give the samples to `penstock data serve --skips`",
        )
    return replace(plan, skips=Skips((*plan.skips.steps, *skips.steps), plan.skips.samples))


def _agreed_plan(service: Service) -> ServicePlan:
    """The one plan of all servers; those that do not answer now are asked again when they are needed, by the plan's name."""
    _, servers = servers_of(service.address)
    asking = Asking(service.options())
    plans: dict[str, ServicePlan] = {}
    for number, (host, port) in enumerate(servers):
        name = f"{host}:{port}"
        try:
            plans[name] = read_plan(asking.one(number, "/v1/plan"), asking, name)
        except ServiceUnavailable:
            continue
    if not plans:
        return read_plan(asking.any("/v1/plan"), asking, service.address)
    (name, plan), *others = plans.items()
    for other, other_plan in others:
        if other_plan.identity != plan.identity:
            raise ServiceMismatch(
                wanted=f"{plan.identity} of {name}", served=f"{other_plan.identity} of {other}"
            )
    return plan
