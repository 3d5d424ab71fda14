"""A cause: something that costs time and could be avoided, with its place, the evidence and what to do next."""

from dataclasses import dataclass, field

from penstock.report.quantities import duration

#: What causes there are, and what each of them means.
KINDS = {
    "data": "training waits for batches",
    "transfer": "training waits for copies to the device",
    "own_code": "code of the program outside of the model",
    "stall": "some steps take much longer than the others",
    "slow_rank": "one rank is slower than the others, which wait",
    "checkpoints": "training stands still while a checkpoint is captured",
    "evaluation": "evaluation inside of the loop",
    "compiling": "the model is compiled",
    "gc": "Python collects garbage",
    "restarts": "deaths, restarts and returns to earlier steps",
    "host_bound": "the device waits for the host to launch work",
    "padding": "the model computes tokens that are padding",
    "allocator": "the device's allocator had to free memory and try again",
    "device_bound": "the device computes nearly all of the time; nothing avoidable is known",
}

#: A cause that costs less than this share of the time is not named.
SHARE_MIN = 0.05


@dataclass(frozen=True, slots=True)
class Cause:
    """One of them."""

    kind: str
    #: Nanoseconds of wall time.
    cost: int
    #: What happens, as a clause: "every 5th step spends 0.50 s in your own code".
    sentence: str
    #: Where: a file and line, a stage of the feed, a rank; empty where it is not known.
    place: str = ""
    #: What shows it.
    evidence: str = ""
    next_step: str = ""
    #: Numbers behind the words.
    facts: dict[str, object] = field(default_factory=dict)

    def line(self, wall: int) -> str:
        """In one line."""
        place = f", {self.place}" if self.place else ""
        evidence = f" ({self.evidence})" if self.evidence else ""
        return f"{share_text(self.cost, wall)} of {seconds(wall)}: {self.sentence}{place}{evidence}"

    def to_json(self, wall: int) -> dict[str, object]:
        """As plain values."""
        return {
            "kind": self.kind,
            "cost_ns": self.cost,
            "share": self.cost / wall if wall > 0 else None,
            "sentence": self.sentence,
            "place": self.place,
            "evidence": self.evidence,
            "next_step": self.next_step,
            "facts": self.facts,
            "line": self.line(wall),
        }


def share_text(cost: int, wall: int) -> str:
    """A share of the time, as people read it."""
    return f"{100 * cost / wall:.0f} %" if wall > 0 else "? %"


def seconds(nanoseconds: int) -> str:
    """A time of a run: whole seconds from ten on."""
    return f"{nanoseconds / 1e9:.0f} s" if nanoseconds >= 10**10 else duration(nanoseconds)


def ordinal(number: int) -> str:
    """As in "every 5th step"."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return "" if number == 1 else f"{number}{ending} "
