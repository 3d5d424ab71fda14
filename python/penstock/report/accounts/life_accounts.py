"""The accounts of one life of one rank (O1).

Marks and step ends follow one another; what lies between two of them belongs to the later one, so the accounts add up to the wall time by
construction. Spans are laid over that. A span of a life's account takes its time wherever it lies; one that names a part of a step divides
``train`` only, because a step that does not count is lost with all of its parts.
"""

from dataclasses import dataclass

import numpy as np

from penstock.report.accounts.account_names import ACCOUNTS, CODE, PART_CODE, PARTS, UNKNOWN
from penstock.report.accounts.device_split import DeviceSplit, device_split
from penstock.report.accounts.nested_spans import Pieces, pieces_of
from penstock.report.accounts.timeline import UNMEASURED, LifeTimeline, Times
from penstock.report.accounts.undone_steps import COUNTS, CUT

_NO_STEP = -1


@dataclass(frozen=True, slots=True, eq=False)
class Stretches:
    """What follows one another in a life: ``edges`` has one more than ``codes`` and ``steps``."""

    edges: Times
    codes: Times
    #: Which execution of a step it is, or -1.
    steps: Times

    @property
    def lengths(self) -> Times:
        """In nanoseconds."""
        return np.diff(self.edges)


@dataclass(frozen=True, slots=True)
class LifeAccounts:
    """Nanoseconds by account; ``parts`` are those of ``train``."""

    number: int
    clock: str
    first: int
    wall: int
    accounts: dict[str, int]
    parts: dict[str, int]
    kept_steps: int
    lost_steps: int
    torn_steps: int
    #: Steps whose parts contradict their length; their time is unmeasured.
    broken_steps: int
    #: The device's own split; beside the accounts, never added to them.
    device: DeviceSplit

    def to_json(self) -> dict[str, object]:
        """As plain values."""
        return {
            "life": self.number,
            "clock": self.clock,
            "first_ns": self.first,
            "wall_ns": self.wall,
            "accounts": self.accounts,
            "train": self.parts,
            "steps": {
                "kept": self.kept_steps,
                "lost": self.lost_steps,
                "torn": self.torn_steps,
                "broken": self.broken_steps,
            },
            "device": self.device.to_json(),
        }


def stretches_of(life: LifeTimeline, undone_by: Times, until: int | None) -> Stretches:
    """Marks and steps as stretches, up to the next life where that has the same clock."""
    steps, resumed = life.steps, life.resumed
    step_ends, is_torn = _ends(life)
    codes = np.where(undone_by == COUNTS, CODE["train"], CODE["lost"])
    codes = np.where(undone_by == CUT, CODE[UNKNOWN], codes)
    codes = np.where(is_torn, CODE["torn"], codes)
    places = np.searchsorted(steps.begins, resumed.times, side="left")
    times = np.insert(step_ends, places, resumed.times)
    codes = np.insert(codes, places, CODE["restore"])
    numbers = np.insert(np.arange(len(step_ends)), places, _NO_STEP)

    head_edges, head_codes = _head(life)
    if len(places) and places[0] == 0:
        codes[0] = CODE["restore" if life.joined is not None else UNKNOWN]
    elif len(steps.begins):
        # Nothing says when training went on before the first step.
        head_edges, head_codes = [*head_edges, int(steps.begins[0])], [*head_codes, CODE[UNKNOWN]]
    tail_edges, tail_codes = _tail(life, until, is_trained=bool(len(times)))
    edges = np.concatenate([head_edges, times, tail_edges]).astype(np.int64)
    all_codes = np.concatenate([head_codes, codes, tail_codes]).astype(np.int64)
    all_numbers = np.concatenate(
        [np.full(len(head_codes), _NO_STEP), numbers, np.full(len(tail_codes), _NO_STEP)]
    ).astype(np.int64)
    return Stretches(np.concatenate([[life.first], edges]), all_codes, all_numbers)


def _ends(life: LifeTimeline) -> tuple[Times, Times]:
    """When executions ended; one that a death or a resume interrupted ends with what came next."""
    steps = life.steps
    is_torn = steps.ends == UNMEASURED
    ends = steps.ends.copy()
    for number in np.flatnonzero(is_torn).tolist():
        began = int(steps.begins[number])
        following = [int(at) for at in life.resumed.times[life.resumed.times > began][:1]]
        following += [int(at) for at in steps.begins[number + 1 : number + 2]]
        following += [at for at in (life.ended, life.died) if at is not None]
        ends[number] = min(following, default=began)
    return ends, is_torn


def _head(life: LifeTimeline) -> tuple[list[int], list[int]]:
    """What comes before training: edges, and what each of them ends."""
    edges, codes = [], []
    known = [life.requested, life.born, life.joined]
    before = None
    for place, at in enumerate(known):
        if at is None:
            continue
        is_next = before is not None and place == before + 1
        # Nothing but spans may come before the first mark.
        code = ("queue", "start")[place - 1] if is_next else UNKNOWN
        edges.append(at)
        codes.append(CODE[code])
        before = place
    return edges, codes


def _tail(life: LifeTimeline, until: int | None, *, is_trained: bool) -> tuple[list[int], list[int]]:
    """What comes after the last step."""
    if is_trained:
        state = "torn" if life.ended is None else "finish"
    else:
        # It came no further than its last mark.
        marks = {"restore": life.joined, "start": life.born, "queue": life.requested}
        state = next((name for name, at in marks.items() if at is not None), UNKNOWN)
    edges = [at for at in (life.ended, life.died) if at is not None]
    codes = [CODE[state]] * len(edges)
    end = life.last if until is None else until
    return [*edges, end], [*codes, CODE["down" if edges else UNKNOWN]]


def sums_of(codes: Times, lengths: Times) -> dict[str, int]:
    """Nanoseconds by account and part. Integers all the way: a sum of floats is none."""
    sums = np.zeros(len(CODE), np.int64)
    np.add.at(sums, codes, lengths)
    return dict(zip(CODE, sums.tolist(), strict=True))


def accounts_of(
    life: LifeTimeline, undone_by: Times, until: int | None, open_part: str | None, lost: int = 0
) -> tuple[LifeAccounts, Stretches]:
    """Sum a life, of which ``lost`` steps do not count. ``open_part``: of what the rank's spans leave open; None where no span names a part."""
    base = stretches_of(life, undone_by, until)
    fine = _overlaid(base, pieces_of(life.spans), None if life.steps.parts else open_part)
    sums = sums_of(fine.codes, fine.lengths)
    parts = {part: sums[f"train.{part}"] for part in PARTS}
    broken = 0
    if life.steps.parts:
        parts, broken = _recorded_parts(life, base, fine)
    elif open_part is None:
        parts[UNKNOWN] += sums["train"]
    accounts = {name: sums[name] for name in ACCOUNTS}
    if not life.steps.parts and open_part is not None:
        accounts["train"] += sum(parts.values())
    torn = int((life.steps.ends == UNMEASURED).sum())
    return LifeAccounts(
        number=life.number,
        clock=life.clock,
        first=int(base.edges[0]),
        wall=int(base.edges[-1] - base.edges[0]),
        accounts=accounts,
        parts=parts,
        kept_steps=int(life.steps.counts.sum()) - lost - torn,
        lost_steps=lost,
        torn_steps=torn,
        broken_steps=broken,
        device=device_split(life.steps, (undone_by == COUNTS) & (life.steps.ends != UNMEASURED)),
    ), fine


def _overlaid(base: Stretches, pieces: Pieces, open_part: str | None) -> Stretches:
    """Stretches, cut where spans begin and end."""
    train, first_part = CODE["train"], len(ACCOUNTS)
    if not len(pieces.begins):
        if open_part is None:
            return base
        return Stretches(
            base.edges, np.where(base.codes == train, PART_CODE[open_part], base.codes), base.steps
        )
    edges = np.sort(np.concatenate([base.edges, pieces.begins, pieces.ends]), kind="stable")
    starts = edges[:-1]
    place = np.clip(np.searchsorted(base.edges, starts, side="right") - 1, 0, len(base.codes) - 1)
    codes, steps = base.codes[place], base.steps[place]
    owner = np.searchsorted(pieces.begins, starts, side="right") - 1
    is_owned = (owner >= 0) & (starts < pieces.ends[owner])
    span_codes = np.where(is_owned, pieces.codes[owner], -1)
    is_train = codes == train
    is_account = is_owned & (span_codes < first_part)
    if open_part is not None:
        codes = np.where(
            is_train, np.where(span_codes >= first_part, span_codes, PART_CODE[open_part]), codes
        )
    return Stretches(edges, np.where(is_account, span_codes, codes), steps)


def _recorded_parts(life: LifeTimeline, base: Stretches, fine: Stretches) -> tuple[dict[str, int], int]:
    """Parts of the steps that count, from their rows. What a span of a life's account touches is divided no further."""
    sums = dict.fromkeys(PARTS, 0)
    is_train = (base.codes == CODE["train"]) & (base.steps != _NO_STEP)
    numbers = base.steps[is_train]
    whole = base.lengths[is_train]
    left = whole
    if fine is not base:
        in_train = fine.codes == CODE["train"]
        by_step = np.zeros(len(life.steps.numbers), np.int64)
        np.add.at(by_step, fine.steps[in_train], fine.lengths[in_train])
        left = by_step[numbers]
    measured = np.zeros(len(numbers), np.int64)
    is_partial = np.zeros(len(numbers), bool)
    is_negative = np.zeros(len(numbers), bool)
    # Steps that count mostly stand together; a slice copies nothing.
    is_one_piece = len(numbers) > 0 and int(numbers[-1] - numbers[0]) + 1 == len(numbers)
    chosen = slice(int(numbers[0]), int(numbers[-1]) + 1) if is_one_piece else numbers
    columns = {part: column[chosen] for part, column in life.steps.parts.items()}
    is_sound = True
    for column in columns.values():
        if column.min(initial=0) < 0:
            is_sound = False
            is_partial |= column == UNMEASURED
            is_negative |= (column < 0) & (column != UNMEASURED)
            measured += np.where(column == UNMEASURED, 0, column)
        else:
            measured += column
    inside = life.steps.ends[chosen] - life.steps.begins[chosen]
    is_broken = (measured > inside) | is_negative
    is_whole = (left == whole) & ~is_broken
    is_sound = is_sound and bool(is_whole.all())
    for part, column in columns.items():
        known = column if is_sound else column[is_whole & (column != UNMEASURED)]
        sums[part] += int(known.sum())
    open_time = int((inside - measured)[is_whole & is_partial].sum())
    sums[UNKNOWN] += open_time + int(left[~is_whole].sum())
    # What lies before a row is in no part of it.
    sums["rest"] += int((whole - measured)[is_whole].sum()) - open_time
    return sums, int(is_broken.sum())
