"""The part of a host that is checked: it says what it is asked for, until the examiner has enough."""

import os
import socket
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.errors.health import CheckFailed
from penstock.process.health.check_link import CheckLink, connected_soon
from penstock.process.health.facts.compute_probe import compute
from penstock.process.health.facts.host_facts import Looks, host_facts
from penstock.process.health.facts.processor_rate import processor_rate
from penstock.process.health.pair_probe import PairPlan, meet, plain
from penstock.process.hosts.addresses import address_towards

#: Hosts that call at once while one of them is slow.
BACKLOG = 16


class ExaminerPlace(msgspec.Struct, frozen=True):
    """Where answers go."""

    address: str
    port: int


class Participant(msgspec.Struct, frozen=True):
    """Who takes part."""

    number: int
    name: str


def take_part(
    me: Participant,
    examiner: ExaminerPlace,
    token: bytes,
    *,
    limit_s: float,
    environment: Mapping[str, str],
) -> str:
    """Answer until the end of the check; how that was: ``fit``, ``unfit`` or ``unknown``. Raises ``CheckFailed`` where there is no examiner."""
    until = time.monotonic() + limit_s
    with _listener(examiner) as listener:
        address, port = listener.getsockname()[:2]
        link = CheckLink(connected_soon(examiner.address, examiner.port, token, limit_s))
        try:
            link.say({"number": me.number, "name": me.name, "address": address, "port": port})
            while (left := until - time.monotonic()) > 0:
                asked = link.hear(left)
                if asked is None or asked.get("do") == "end":
                    return str((asked or {}).get("end", "unknown"))
                link.say({"id": asked.get("id"), **_answer(asked, listener, token, environment)})
            return "unknown"
        except TimeoutError:
            return "unknown"
        except OSError as problem:
            raise CheckFailed(reason=f"the examiner is gone: {problem.strerror or problem}") from problem
        finally:
            link.close()


def _listener(examiner: ExaminerPlace) -> socket.socket:
    own = address_towards(examiner.address, examiner.port)
    family = socket.AF_INET6 if ":" in own else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.bind((own, 0))
    listener.listen(BACKLOG)
    return listener


def _answer(
    asked: Mapping[str, Any], listener: socket.socket, token: bytes, environment: Mapping[str, str]
) -> dict[str, Any]:
    match asked.get("do"):
        case "clock":
            return {"at": time.time()}
        case "facts":
            looks = msgspec.convert(asked["looks"], Looks)
            facts = host_facts(looks, environment)
            rate = processor_rate() if asked.get("processor") else 0.0
            return {"facts": msgspec.to_builtins(facts), "processor": rate, "pid": os.getpid()}
        case "processor":
            return {"processor": processor_rate()}
        case "compute":
            look = compute(device=str(asked["device"]), limit_s=float(asked["limit_s"]))
            return {"compute": msgspec.to_builtins(look)}
        case "pair":
            return {"pair": plain(meet(msgspec.convert(asked["plan"], PairPlan), listener, token))}
        case other:
            return {"problem": f"this host has another version and cannot do {other!r}"}
