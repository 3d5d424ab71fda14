"""Reports of real runs: the first line names what was planted, with its place and its cost; clean runs have none."""

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.main import main
from penstock.report import ledger
from penstock.report.run_evidence import evidence_of
from penstock.report.run_report import report_of
from tests.report.planted import RANKS, SAVE_S, SLOW_RANK, STEPS

NEAR = 0.1


def cause_of(run: Path) -> dict[str, Any]:
    """The cause that is named."""
    diagnosis = report_of(evidence_of(run)).to_json()["diagnosis"]
    assert diagnosis["verdict"] == "named", diagnosis["line"]
    cause: dict[str, Any] = diagnosis["causes"][0]
    assert diagnosis["line"] == cause["line"]
    return cause


def noted(run: Path, rank: int, name: str) -> float:
    """Nanoseconds by the program's own clock."""
    facts: dict[str, float] = json.loads(run.with_suffix(f".{rank}.json").read_text())
    return 1e9 * facts[name]


@pytest.mark.parametrize("case", ["clean", "clean_again", "rank_clean"])
def test_a_clean_run_has_no_cause(runs: Path, case: str) -> None:
    diagnosis = report_of(evidence_of(runs / case)).diagnosis
    assert diagnosis.verdict == "none", diagnosis.line


def test_a_sleep_in_every_fifth_step_is_named_with_its_line(runs: Path) -> None:
    cause = cause_of(runs / "sleep")
    assert cause["kind"] == "own_code"
    assert cause["cost_ns"] == pytest.approx(noted(runs / "sleep", 0, "planted_s"), rel=NEAR)
    assert cause["sentence"].startswith("every 5th step spends 2")
    source = (Path(__file__).parent / "planted.py").read_text().splitlines()
    line = int(cause["place"].partition(":")[2].partition(" ")[0])
    assert "pause(SLEEP_S)" in source[line - 1]
    assert cause["place"].startswith("at planted.py:")


def test_a_slow_stage_of_the_data_is_named(runs: Path) -> None:
    cause = cause_of(runs / "data")
    assert cause["kind"] == "data"
    assert cause["cost_ns"] == pytest.approx(noted(runs / "data", 0, "outside_s"), rel=NEAR)
    # A map is of the program, and none of the stages that the feed times.
    assert "in maps of your own" in cause["place"]


def test_checkpoints_every_second_step_are_named_with_a_better_interval(runs: Path) -> None:
    cause = cause_of(runs / "checkpoints")
    assert cause["kind"] == "checkpoints"
    assert (cause["facts"]["every_steps"], cause["facts"]["saves"]) == (2, STEPS // 2)
    assert cause["cost_ns"] == pytest.approx(STEPS // 2 * SAVE_S * 1e9, rel=NEAR)
    assert 100 < cause["facts"]["one_percent_steps"] < 1000


@pytest.mark.parametrize(
    ("case", "part", "note"), [("rank_user", "user", "planted_s"), ("rank_data", "data", "outside_s")]
)
def test_a_slow_rank_of_four_is_named(runs: Path, case: str, part: str, note: str) -> None:
    cause = cause_of(runs / case)
    assert cause["kind"] == "slow_rank"
    assert (cause["facts"]["rank"], cause["facts"]["part"]) == (SLOW_RANK, part)
    assert cause["cost_ns"] == pytest.approx(noted(runs / case, SLOW_RANK, note), rel=NEAR)
    if part == "user":
        assert cause["place"].startswith("at planted.py:")


def test_the_ledger_of_real_runs_sums_exactly(runs: Path) -> None:
    """O1."""
    for run in sorted(path for path in runs.iterdir() if path.is_dir()):
        accounts = ledger(run)
        assert len(accounts.ranks) == (RANKS if run.name.startswith("rank") else 1)
        for rank in accounts.ranks:
            (life,) = rank.lives
            assert sum(life.accounts.values()) == life.wall == rank.wall
            assert sum(life.parts.values()) == life.accounts["train"]
            assert (life.kept_steps, life.lost_steps, life.torn_steps, life.broken_steps) == (STEPS, 0, 0, 0)
            assert life.accounts["unmeasured"] == 0


def test_the_command_says_the_same_as_its_json(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["report", str(runs / "sleep"), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    for address in (str(runs / "sleep"), f"run:{runs / 'sleep'}"):
        assert main(["report", address]) == 0
        text = capsys.readouterr().out
        assert text.splitlines()[0] == document["diagnosis"]["line"]
    assert "goodput: runtime" in text
    # A name below runs/, and the newest.
    (runs.parent / "cwd").mkdir(exist_ok=True)
    monkeypatch.chdir(runs.parent / "cwd")
    if not Path("runs").exists():
        Path("runs").symlink_to(runs)
    assert main(["report", "sleep", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == document
    assert main(["report"]) == 0
    assert main(["report", "sleep", "--steps", "5:10", "--rank", "0", "--json"]) == 0
    some = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert some["scope"] == {"steps": [5, 10], "rank": 0, "ranks": [0]}
    assert some["speed"]["steps"] == 5


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--steps", "5"], "two numbers"),
        (["--steps", "7:7"], "two numbers"),
        (["--rank", "9"], "there is no rank 9"),
        (["--timeline", "x.json"], "name one of the two"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    runs: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(runs / "sleep"), *words]) == 2
    assert message in capsys.readouterr().err
