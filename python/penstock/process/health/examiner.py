"""The examiner: lets hosts in that know the token, asks all of them the same at once, and pairs them.

A question goes to all hosts before the first answer is read, and all answers share one limit, so a check takes as long as its slowest host and not
longer with more hosts.
"""

import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from queue import Empty, Queue
from typing import Any, TypeVar

import msgspec

from penstock.process.health import blame, pairs
from penstock.process.health.check_link import CheckLink, accepted
from penstock.process.health.facts.compute_probe import ComputeLook
from penstock.process.health.facts.host_facts import HostFacts, Looks
from penstock.process.health.outliers import outliers
from penstock.process.health.pair_probe import PairFigures, PairPlan
from penstock.process.health.report import CheckReport, HostLook, Meeting

CLOCK_TRIES = 5
CLOCK_S = 1.0
FACTS_S = 12.0
PROCESSOR_S = 3.0
PAIR_EXTRA_S = 1.0
#: Hosts whose figures seem odd are measured again beside so many others.
WITNESSES = 4
#: Below this share of the usual rate, or above so many usual round trips, a pair is bad.
RATE_RATIO, TRIP_RATIO, TRIP_FLOOR_S = 3.0, 10.0, 1e-3
PROCESSOR_RATIO, PRODUCT_RATIO = 1.5, 1.1
HELLOS_MAX = 64
Told = TypeVar("Told", HostFacts, ComputeLook, PairFigures)


class CheckPlan(msgspec.Struct, frozen=True):
    """What is measured, and for how long at most."""

    looks: Looks = Looks()
    limit_s: float = 20.0
    processor: bool = True
    #: ``auto``, ``gpu``, ``cpu``, or nothing.
    compute: str = "auto"
    network: bool = True
    pair_seconds: float = 0.15
    pair_bytes_max: int = 1 << 30
    #: Numbers of hosts that are only partners of the others.
    witnesses: tuple[int, ...] = ()


class Examiner:
    """One check."""

    def __init__(self, listener: socket.socket, token: bytes, names: dict[int, str], plan: CheckPlan) -> None:
        self._listener, self._token, self._plan = listener, token, plan
        self._looks = {
            number: HostLook(number, name, is_witness=number in plan.witnesses)
            for number, name in sorted(names.items())
        }
        self._links: dict[int, CheckLink] = {}
        self._places: dict[int, tuple[str, int]] = {}
        self._meetings: list[Meeting] = []
        self._notes: list[str] = []
        self._asked = 0

    def collect(self, end: Callable[[CheckReport], str] = lambda _report: "unknown") -> CheckReport:
        """Everything of the plan that the time allows. Hosts are told how it ended, in the word of ``end``."""
        begun = time.monotonic()
        until = begun + self._plan.limit_s
        self._let_in(begun + self._plan.limit_s / 2)
        self._clocks()
        self._facts(until)
        self._compute(until)
        if self._plan.network:
            self._network(until)
        seconds = time.monotonic() - begun
        report = CheckReport(list(self._looks.values()), self._meetings, seconds, self._notes)
        word = end(report)
        for link in self._links.values():
            _say(link, {"do": "end", "end": word})
            link.close()
        return report

    def _let_in(self, until: float) -> None:
        arrived: Queue[tuple[CheckLink, dict[str, Any]]] = Queue()
        busy = threading.Semaphore(HELLOS_MAX)

        def greet(handle: socket.socket) -> None:
            with busy:
                link = CheckLink(handle)
                hello = _hear(link, CLOCK_S) if accepted(handle, self._token) else None
                if hello is None:
                    link.close()
                else:
                    arrived.put((link, hello))

        while len(self._links) < len(self._looks) and time.monotonic() < until:
            self._listener.settimeout(0.05)
            try:
                handle, _ = self._listener.accept()
                handle.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=greet, args=(handle,), name="penstock-greet", daemon=True).start()
            except TimeoutError:
                pass
            while (one := _next(arrived)) is not None:
                self._take(*one)
        for number, look in self._looks.items():
            if number not in self._links:
                look.problem = "not heard"

    def _take(self, link: CheckLink, hello: dict[str, Any]) -> None:
        number, look = hello.get("number"), self._looks.get(hello.get("number", -1))
        if not isinstance(number, int) or look is None or number in self._links:
            link.close()
            return
        look.name = look.name or str(hello.get("name"))
        self._links[number] = link
        self._places[number] = (str(hello.get("address")), int(hello.get("port", 0)))

    def _ask(self, questions: dict[int, dict[str, Any]], limit_s: float) -> dict[int, dict[str, Any]]:
        """Ask hosts at once; what those answered that did in time. Who did not is not asked again."""
        asked: dict[int, int] = {}
        for number, question in questions.items():
            self._asked += 1
            asked[number] = self._asked
            if number in self._links:
                link = self._links[number]
                _say(link, {**question, "id": self._asked})
        until = time.monotonic() + limit_s
        answers = {}
        for number, identifier in asked.items():
            if number not in self._links:
                continue
            link = self._links[number]
            answer = _hear(link, max(0.01, until - time.monotonic()))
            if answer is not None and answer.get("id") == identifier:
                answers[number] = answer
                continue
            what = str(questions[number].get("do"))
            self._looks[number].problem = f"stopped answering when it was asked for its {what}"
            self._links.pop(number).close()
        return answers

    def _clocks(self) -> None:
        for number in list(self._links):
            best: tuple[float, float] | None = None
            for _ in range(CLOCK_TRIES):
                before = time.time()
                answer = self._ask({number: {"do": "clock"}}, CLOCK_S).get(number)
                after = time.time()
                if answer is None:
                    break
                exchange = (after - before, float(answer["at"]) - (before + after) / 2)
                best = min(best or exchange, exchange)
            if best is not None:
                look = self._looks[number]
                look.clock_error_s, look.clock_s = best[0] / 2, best[1]

    def _facts(self, until: float) -> None:
        looks = msgspec.to_builtins(self._plan.looks)
        question = {"do": "facts", "looks": looks, "processor": self._plan.processor}
        limit_s = min(FACTS_S, until - time.monotonic())
        for number, answer in self._ask(dict.fromkeys(self._own(), question), limit_s).items():
            self._looks[number].facts = self._known(number, answer.get("facts"), HostFacts)
            self._looks[number].processor = float(answer.get("processor", 0.0))
        if self._plan.processor:
            self._again(self._odd_processors(), {"do": "processor"}, PROCESSOR_S, self._take_processor)

    def _compute(self, until: float) -> None:
        if not self._plan.compute:
            return
        limit_s = 0.6 * (until - time.monotonic())
        question = {"do": "compute", "device": self._plan.compute, "limit_s": limit_s}
        for number, answer in self._ask(dict.fromkeys(self._own(), question), limit_s + 1.0).items():
            self._looks[number].compute = self._known(number, answer.get("compute"), ComputeLook)
        left_s = 0.5 * (until - time.monotonic())
        question = {**question, "limit_s": left_s}
        self._again(self._odd_products(), question, left_s + 1.0, self._take_compute)

    def _known(self, number: int, message: object, kind: type[Told]) -> Told | None:
        """What a host told, unless its version tells it in another form."""
        try:
            return msgspec.convert(message, kind)
        except msgspec.ValidationError:
            self._looks[number].problem = "tells its facts in another form: other versions of Penstock"
            return None

    def _own(self) -> list[int]:
        return [number for number in self._links if not self._looks[number].is_witness]

    def _again(
        self,
        odd: set[int],
        question: dict[str, Any],
        limit_s: float,
        take: Callable[[int, dict[str, Any]], None],
    ) -> None:
        """Measure hosts again that seem slow, beside a few others: a neighbour that was busy for a moment is no slow host."""
        if odd:
            others = [number for number in self._own() if number not in odd][:WITNESSES]
            for number, answer in self._ask(dict.fromkeys([*odd, *others], question), limit_s).items():
                take(number, answer)

    def _odd_processors(self) -> set[int]:
        figures = {str(number): self._looks[number].processor for number in self._own()}
        return {int(number) for number in outliers(figures, better="high", ratio_min=PROCESSOR_RATIO)}

    def _take_processor(self, number: int, answer: dict[str, Any]) -> None:
        look = self._looks[number]
        look.processor = max(look.processor, float(answer.get("processor", 0.0)))

    def _odd_products(self) -> set[int]:
        by_kind: dict[str, dict[str, float]] = {}
        for number in self._own():
            look = self._looks[number].compute
            for place, device in enumerate(look.devices if look else ()):
                by_kind.setdefault(device.name, {})[f"{number} {place}"] = device.product
        odd = [outliers(figures, better="high", ratio_min=PRODUCT_RATIO) for figures in by_kind.values()]
        return {int(key.partition(" ")[0]) for named in odd for key in named}

    def _take_compute(self, number: int, answer: dict[str, Any]) -> None:
        new, look = self._known(number, answer.get("compute"), ComputeLook), self._looks[number]
        if new is None:
            return
        best = {device.device: device for device in (look.compute.devices if look.compute else ())}
        for device in new.devices:
            known = best.get(device.device, device)
            best[device.device] = msgspec.structs.replace(
                device,
                product=max(known.product, device.product),
                copy=max(known.copy, device.copy),
                wrong=known.wrong or device.wrong,
                problem=device.problem or known.problem,
            )
        look.compute = msgspec.structs.replace(new, devices=tuple(best.values()))

    def _network(self, until: float) -> None:
        for meetings in pairs.first_rounds(self._table()):
            if not self._has_time(until):
                return
            self._meet(meetings)
        self._judge()
        for _ in range(pairs.SECOND_ROUNDS):
            measured = self._measured()
            met = {one.pair for one in measured}
            second = pairs.second_round(blame.open_questions(measured), blame.cleared(measured), met)
            # A bad pair of hosts that are both well may have been disturbed, so it meets once more.
            busy = {host for pair in second for host in pair}
            links = [link for link in blame.blame(measured).links if not set(link) & busy]
            again = [link for link in links if sum(set(link) == set(one.pair) for one in measured) < 2]
            both = [*second, *pairs.repeated(again)]
            if not both or not self._has_time(until):
                return
            self._meet(both)
            self._judge()

    def _table(self) -> list[int]:
        """All hosts; those that are only partners of others stand opposite of them."""
        own, others = self._own(), [number for number in self._links if self._looks[number].is_witness]
        return [*own, *reversed(others)]

    def _has_time(self, until: float) -> bool:
        has_time = time.monotonic() + self._plan.pair_seconds * 2 + PAIR_EXTRA_S < until
        if not has_time:
            self._notes.append("the time was over before all pairs had met; --for gives it more")
        return has_time

    def _measured(self) -> list[blame.Measured]:
        return [blame.Measured(one.one, one.two, one.good) for one in self._meetings]

    def _meet(self, meetings: Sequence[pairs.Pair]) -> None:
        plans: dict[int, dict[str, Any]] = {}
        for one, two in meetings:
            if one in self._links and two in self._links:
                number = len(self._meetings) * 2 + len(plans)
                for host, partner, calls in ((one, two, True), (two, one, False)):
                    plans[host] = {
                        "do": "pair",
                        "plan": msgspec.to_builtins(self._pair(number, partner, calls)),
                    }
        limit_s = PairPlan(0, True, "", 0).limit_s + PAIR_EXTRA_S
        answers = self._ask(plans, limit_s)
        for one, two in meetings:
            if one in plans:
                said = [self._figures(host, answers.get(host)) for host in (one, two)]
                self._meetings.append(_meeting(one, two, said[0], said[1]))

    def _figures(self, host: int, answer: dict[str, Any] | None) -> PairFigures:
        known = None if answer is None else self._known(host, answer.get("pair"), PairFigures)
        return known or PairFigures(problem="not heard")

    def _pair(self, number: int, partner: int, calls: bool) -> PairPlan:
        address, port = self._places[partner]
        return PairPlan(
            number, calls, address, port, seconds=self._plan.pair_seconds, bytes_max=self._plan.pair_bytes_max
        )

    def _judge(self) -> None:
        """Which meetings were bad, as far as that is known now."""
        rates = {str(place): min(one.there, one.back) for place, one in self._whole()}
        trips = {str(place): max(one.round_trip_s, TRIP_FLOOR_S) for place, one in self._whole()}
        slow = outliers(rates, better="high", ratio_min=RATE_RATIO).keys()
        late = outliers(trips, better="low", ratio_min=TRIP_RATIO).keys()
        for place, one in enumerate(self._meetings):
            good = not one.problem and str(place) not in slow and str(place) not in late
            self._meetings[place] = msgspec.structs.replace(one, good=good)

    def _whole(self) -> Iterable[tuple[int, Meeting]]:
        return ((place, one) for place, one in enumerate(self._meetings) if not one.problem)


def _meeting(one: int, two: int, first: PairFigures, second: PairFigures) -> Meeting:
    problem = first.problem or second.problem
    trips = [figures.round_trip_s for figures in (first, second) if figures.round_trip_s]
    return Meeting(one, two, max(trips, default=0.0), second.rate, first.rate, problem, not problem)


def _say(link: CheckLink, message: dict[str, Any]) -> None:
    """Tell it, if anybody is there; whoever is not does not answer either."""
    with suppress(OSError):
        link.say(message)


def _hear(link: CheckLink, timeout_s: float) -> dict[str, Any] | None:
    try:
        return link.hear(timeout_s)
    except OSError:
        return None


def _next(queue: "Queue[tuple[CheckLink, dict[str, Any]]]") -> tuple[CheckLink, dict[str, Any]] | None:
    try:
        return queue.get_nowait()
    except Empty:
        return None
