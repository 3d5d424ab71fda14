"""Rows beyond the budget become sums, and the ledger stays what it was: O1, O5, and O7 where a sum is cut."""

import random
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.observe.steps import HOST, UNMEASURED, read_steps
from penstock.observe.steps.columns import FOLDER
from penstock.report.accounts.ledger import Ledger, ledger_from
from penstock.report.accounts.run_timeline import run_timeline
from penstock.report.run_report import Evidence, report_of
from tests.report.step_rows import row_of, writer_of

MS = 1_000_000
SECOND = 1000 * MS
ROOMY, TIGHT = 1 << 30, 4096


@dataclass
class Life:
    """What one life of a rank records."""

    rows: list[list[int]] = field(default_factory=list)
    #: Commits and anchors by the row before which they are told.
    commits: dict[int, int] = field(default_factory=dict)
    anchors: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    #: The step that a kill tore.
    torn: tuple[int, int] | None = None


def row_by_chance(chance: random.Random, step: int, begin: int) -> list[int]:
    """Mostly whole; some parts not measured, some missing time, some that contradict the step."""
    parts = [chance.randint(0, 40 * MS) for _ in HOST]
    end = begin + sum(parts)
    kind = chance.random()
    if kind < 0.3:
        place = chance.randrange(len(parts))
        parts[place] = UNMEASURED
        if chance.random() < 0.7:
            end = begin + sum(part for part in parts if part != UNMEASURED)
    elif kind < 0.32:
        parts[0] = end - begin + 1
    elif kind < 0.34:
        end += 5 * MS
    values = dict(zip(HOST, parts, strict=True)) | {"step": step, "begin": begin, "end": end, "tokens": step}
    if chance.random() < 0.8:
        values |= {"device.idle": chance.randint(0, 9), "device.forward": chance.randint(0, 9)}
    return row_of(values)


def lives_by_chance(seed: int, *, is_foreign: bool) -> list[Life]:
    """Training resumes at committed steps of any life before; if ``is_foreign``, anywhere."""
    chance = random.Random(seed)
    lives, at, slept = [], 10 * SECOND, 0
    committed: list[int] = [0]
    for _ in range(chance.randint(2, 5)):
        life = Life()
        step = chance.choice(committed)
        life.anchors[0] = (at, at - slept, at + 10**18)
        for row in range(chance.randint(20, 200)):
            if chance.random() < 0.05:
                life.commits[row] = step
                committed.append(step)
            elif chance.random() < 0.02:
                step = chance.choice([past for past in committed if past <= step] or [step])
            elif is_foreign and chance.random() < 0.02:
                step = chance.randint(0, step)
            if chance.random() < 0.02:
                at += chance.randint(1, 3 * SECOND)
            life.rows.append(row_by_chance(chance, step, at))
            at = life.rows[-1][2]
            step += 1
            if chance.random() < 0.01:
                slept += 2 * SECOND
                life.anchors[row + 1] = (at, at - slept, at + 10**18)
        if is_foreign:
            committed = [chance.randint(0, step)]
        if chance.random() < 0.5:
            life.torn = (step, at)
        lives.append(life)
        at += chance.randint(1, 20 * SECOND)
    return lives


def recorded(folder: Path, lives: Iterable[Life], bytes_max: int) -> Path:
    """The same lives with a budget."""
    for number, life in enumerate([*lives, Life()]):
        writer = writer_of(folder, number, bytes_max=bytes_max)
        for row, values in enumerate(life.rows):
            if row in life.anchors:
                writer.anchor(*life.anchors[row])
            if row in life.commits:
                writer.commit(life.commits[row])
            writer.begin(*values[:2])
            writer.row(values)
        if life.torn is not None:
            writer.begin(*life.torn)
        writer.close()
    return folder


def ledger_at(run: Path) -> Ledger:
    """Of what its directory holds."""
    return ledger_from(run_timeline(run, run / "home").ranks)


def check_sums(ledger: Ledger) -> None:
    """O1."""
    for life in (life for rank in ledger.ranks for life in rank.lives):
        assert sum(life.accounts.values()) == life.wall
        assert sum(life.parts.values()) == life.accounts["train"]
        assert min(*life.accounts.values(), *life.parts.values()) >= 0


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 1 << 32))
def test_the_ledger_of_thinned_rows_is_that_of_all_rows(seed: int) -> None:
    """Goal: O1. Method: lives that die, go back to checkpoints and sleep, recorded with room and with hardly any; also broken and partial rows."""
    lives = lives_by_chance(seed, is_foreign=False)
    with tempfile.TemporaryDirectory() as folder:
        roomy = recorded(Path(folder) / "roomy", lives, ROOMY)
        tight = recorded(Path(folder) / "tight", lives, TIGHT)
        tables = read_steps(tight)
        rows = sum(len(table) for table in tables)
        sums = [table.rolled["rows"] for table in tables if table.rolled]
        assert sums
        assert sum(int(counts.sum()) for counts in sums) > sum(len(counts) for counts in sums)
        torn = sum(life.torn is not None for life in lives)
        assert (
            rows + sum(int(counts.sum()) for counts in sums) == sum(len(life.rows) for life in lives) + torn
        )
        whole, thinned = ledger_at(roomy), ledger_at(tight)
    check_sums(whole)
    assert thinned.to_json() == whole.to_json()


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 1 << 32))
def test_a_sum_that_training_resumed_inside_of_is_unmeasured(seed: int) -> None:
    """Goal: O7. Method: training resumes where no checkpoint was; nothing moves but into ``unmeasured``, and steps are still counted."""
    lives = lives_by_chance(seed, is_foreign=True)
    with tempfile.TemporaryDirectory() as folder:
        whole = ledger_at(recorded(Path(folder) / "roomy", lives, ROOMY))
        thinned = ledger_at(recorded(Path(folder) / "tight", lives, TIGHT))
    check_sums(thinned)
    for before, after in zip(whole.ranks[0].lives, thinned.ranks[0].lives, strict=True):
        assert (before.wall, before.kept_steps, before.lost_steps, before.torn_steps) == (
            after.wall,
            after.kept_steps,
            after.lost_steps,
            after.torn_steps,
        )
        for name, spent in after.accounts.items():
            is_more = name == "unmeasured"
            assert spent >= before.accounts[name] if is_more else spent <= before.accounts[name], name


def test_a_report_says_that_older_steps_are_only_left_as_sums(tmp_path: Path) -> None:
    """Goal: O2. Method: two lives, of which the first is thinned; figures by step are of the other, and its time alone."""
    chance, lives, at = random.Random(0), [], 0
    for first in (0, 400):
        life = Life()
        for step in range(first, first + 400):
            user = chance.randint(SECOND // 2, SECOND)
            values = {"step": step, "begin": at, "end": at + user, "host.user": user}
            life.rows.append(row_of(values))
            at += user
        lives.append(life)
    took = at - lives[1].rows[0][1]
    roomy = recorded(tmp_path / "roomy", lives, ROOMY)
    budget = sum(path.stat().st_size for path in (roomy / FOLDER).glob("*.pst")) - 1
    timeline = run_timeline(recorded(tmp_path / "run", lives, budget), tmp_path)
    report = report_of(Evidence("run", tuple(timeline.ranks)))
    assert [life.kept_steps for life in report.ledger.ranks[0].lives] == [400, 400]
    assert report.speed["steps"] == 400
    assert report.diagnosis.wall == took
    assert report.faults == ("400 older steps are kept as sums: the ledger has them, figures by step do not",)


def test_rows_of_a_killed_life_are_thinned_and_counted_once(tmp_path: Path) -> None:
    """Goal: O1, O5. Method: a life that leaves its rows in a tail; then the tail comes back, as if a kill had come before its end."""
    run, dead = tmp_path / "run", tmp_path / "dead"
    (life, *_) = lives_by_chance(3, is_foreign=False)
    writer = writer_of(run, 0, bytes_max=ROOMY)
    for values in life.rows:
        writer.row(values)
    assert writer.flush(30)
    shutil.copytree(run, dead)
    writer.close()
    (tail,) = (dead / FOLDER).glob("*.tail")
    rows = tail.read_bytes()

    writer_of(dead, 1, bytes_max=4096).close()

    assert not tail.exists()
    tail.write_bytes(rows)
    table = read_steps(dead)[0]
    assert (len(table), int(table.rolled["rows"].sum())) == (0, len(life.rows))
