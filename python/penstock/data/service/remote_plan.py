"""A plan as a client knows it: from a server's document, with the registry at the other end of the line."""

from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import msgspec
import numpy as np

from penstock import _rust
from penstock.data.feed.lane import Lane
from penstock.data.plan.phases import Phase
from penstock.data.plan.plan import Plan, Prepared
from penstock.data.plan.table_cache import Packing, PlanTable
from penstock.data.recipe.recipe import Recipe, Source
from penstock.data.recipe.skips import Skips
from penstock.errors import ServiceIncompatible
from penstock.registry import Registry, Version

if TYPE_CHECKING:
    from penstock._rust.service import ClientPlan

#: Places of samples that are remembered.
_PLACES_MAX = 4096


@dataclass(frozen=True, slots=True)
class ServicePlan(Plan):
    """A plan whose sources are measured and read elsewhere."""

    identity: str = ""
    #: Step from which on, prefix and plan of cursors.
    cursors: tuple[tuple[int, str, str], ...] = ()
    is_drawn: bool = False
    asking: "Asking | None" = None

    @property
    def drawn(self) -> bool:
        """Whether random maps change tokens."""
        return self.is_drawn

    def prefix(self, step: int) -> str:
        """As the server's plan says it."""
        return self._cursor(step)[1]

    def digest(self, step: int) -> str:
        """As the server's plan says it."""
        return self._cursor(step)[2]

    def _cursor(self, step: int) -> tuple[int, str, str]:
        return self.cursors[bisect_right(self.cursors, step, key=lambda cursor: cursor[0]) - 1]

    def has_step(self, lane: Lane, step: int) -> bool:
        """Whether anything comes at a step or after it."""
        assert self.asking is not None
        return bool(self.asking.json(f"/v1/has?lane={lane.number}&of={lane.of}&step={step}"))


class Asking:
    """Questions to whichever server answers."""

    def __init__(self, options: "ClientPlan") -> None:
        self._client = _rust.ServiceClient(options)
        #: Whom it asks, for people.
        self.servers = ", ".join(f"{host}:{port}" for host, port in options["servers"])
        self.place = lru_cache(_PLACES_MAX)(self._place)

    def json(self, path: str) -> Any:
        """What a server says to a question."""
        return msgspec.json.decode(self._client.ask(path))

    def one(self, server: int, path: str) -> bytes:
        """What one server says, asked once."""
        return self._client.ask_one(server, path)

    def any(self, path: str) -> bytes:
        """What the first server that answers says."""
        return self._client.ask(path)

    def _place(self, source: int, sample: int) -> tuple[str, int, tuple[int, int] | None]:
        """Shard of a sample, its row there, and its bytes."""
        origin = self.json(f"/v1/origin?source={source}&sample={sample}")
        span = origin["byte_range"]
        return origin["shard"], origin["row"], None if span is None else (span[0], span[1])

    def close(self) -> None:
        """End requests that are under way."""
        self._client.close()


@dataclass(frozen=True, slots=True)
class _Shard:
    """As much of a shard as a client knows."""

    rows: int
    name: str = ""
    byte_range: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class _Manifest:
    shards: tuple[_Shard, ...]


class ServiceVersion:
    """As much of a version as a client needs; the rest is asked for."""

    def __init__(self, number: int, document: dict[str, Any], asking: Asking) -> None:
        self.address: str = document["address"]
        self.digest: str = document["digest"]
        self.manifest = _Manifest(tuple(_Shard(rows) for rows in document["shards"]))
        self._number = number
        self._asking = asking

    @property
    def rows(self) -> int:
        """Rows of all shards."""
        return sum(shard.rows for shard in self.manifest.shards)

    def shard_of(self, sample: int) -> tuple[_Shard, int]:
        """The shard of a row, and its number there."""
        name, row, span = self._asking.place(self._number, sample)
        return _Shard(0, name, span), row

    def byte_range(self, shard: _Shard, _: int) -> tuple[int, int] | None:
        """The bytes of a row, as they came with its shard."""
        return shard.byte_range


def read_plan(text: bytes, asking: Asking, server: str) -> ServicePlan:
    """The plan that a server told."""
    try:
        document = msgspec.json.decode(text, type=dict[str, Any])
        _check_fit(document, server)
        return _plan_of(document, asking)
    except (msgspec.MsgspecError, KeyError, TypeError, IndexError) as problem:
        raise ServiceIncompatible(reason=f"{server} tells of no plan: {problem!r:.100}") from problem


def _check_fit(document: dict[str, Any], server: str) -> None:
    ours, theirs = _rust.ServiceClient.protocol(), (document.get("protocol"), document.get("layout"))
    if theirs != ours:
        known = f"protocol {ours[0]} and layout {ours[1]} (Penstock {_rust.__version__})"
        offered = f"protocol {theirs[0]} and layout {theirs[1]} (Penstock {document.get('penstock')})"
        raise ServiceIncompatible(reason=f"{server} speaks {offered}, but this is {known}")


def _plan_of(document: dict[str, Any], asking: Asking) -> ServicePlan:
    phases = tuple(Phase(step, length, PlanTable("", 0)) for step, length in document["lengths"])
    prepared = []
    for number, entry in enumerate(document["sources"]):
        version = cast(Version, ServiceVersion(number, entry, asking))
        source = Source(entry["name"], alias=entry["alias"], epochs=entry["epochs"])
        packing = Packing(entry["alias"], "concat", document["recipe"]["shuffle"])
        dtype: np.dtype[Any] = np.dtype(entry["dtype"])
        prepared.append(
            Prepared(source, version, version, dtype, packing, phases, records=bool(document["records"]))
        )
    skips = document["skips"]
    return ServicePlan(
        _recipe_of(document["recipe"], [item.source for item in prepared]),
        # There is none here: whatever needs it is asked for.
        cast(Registry, None),
        tuple(prepared),
        Skips(tuple(map(tuple, skips["steps"])), tuple(map(tuple, skips["samples"]))),
        identity=document["identity"],
        cursors=tuple((step, prefix, plan) for step, prefix, plan in document["cursors"]),
        is_drawn=bool(document["drawn"]),
        asking=asking,
    )


def _recipe_of(document: dict[str, Any], sources: list[Source]) -> Recipe:
    recipe = Recipe(
        sources=tuple(sources),
        batch=tuple((step, rows) for step, rows in document["batch"]),
        **{
            name: document[name]
            for name in ("seed", "shuffle", "exhaustion", "undecodable", "undecodable_max")
        },
    )
    # Stages stay with the server, so the digest does not follow from what is here.
    recipe.__dict__["digest"] = document["digest"]
    return recipe
