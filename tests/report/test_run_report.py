"""Reports of real runs: the first line names what was planted, with its place and its cost; clean runs have none."""

import json
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from penstock.cli.main import main
from penstock.report import ledger
from penstock.report.run_evidence import evidence_of
from penstock.report.run_report import report_of
from penstock.report.run_times import run_times
from tests.report.slow_runs import BACKWARD_S, FORWARD_S, RANKS, SAVE_S, SLOW_RANK, STEPS

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
    source = (Path(__file__).parent / "slow_runs.py").read_text().splitlines()
    line = int(cause["place"].partition(":")[2].partition(" ")[0])
    assert "pause(SLEEP_S)" in source[line - 1]
    assert cause["place"].startswith("at slow_runs.py:")


def test_a_slow_stage_of_the_data_is_named(runs: Path) -> None:
    cause = cause_of(runs / "data")
    assert cause["kind"] == "data"
    assert cause["cost_ns"] == pytest.approx(noted(runs / "data", 0, "between_s"), rel=NEAR)
    assert cause["place"] == "limited by feed stage `map`, maps of your own"


def test_checkpoints_every_second_step_are_named_with_a_better_interval(runs: Path) -> None:
    cause = cause_of(runs / "checkpoints")
    assert cause["kind"] == "checkpoints"
    assert (cause["facts"]["every_steps"], cause["facts"]["saves"]) == (2, STEPS // 2)
    # A save holds training up by itself too, the longer the busier the machine is.
    assert cause["cost_ns"] >= (1 - NEAR) * noted(runs / "checkpoints", 0, "planted_s")
    assert cause["cost_ns"] == pytest.approx(ledger(runs / "checkpoints").parts["checkpoint"], rel=NEAR)
    assert 100 < cause["facts"]["one_percent_steps"] < 1000


@pytest.mark.parametrize(
    ("case", "part", "note"), [("rank_user", "user", "planted_s"), ("rank_data", "data", "between_s")]
)
def test_a_slow_rank_of_four_is_named(runs: Path, case: str, part: str, note: str) -> None:
    cause = cause_of(runs / case)
    assert cause["kind"] == "slow_rank"
    assert (cause["facts"]["rank"], cause["facts"]["part"]) == (SLOW_RANK, part)
    others = median(noted(runs / case, rank, note) for rank in range(RANKS) if rank != SLOW_RANK)
    assert cause["cost_ns"] == pytest.approx(noted(runs / case, SLOW_RANK, note) - others, rel=NEAR)
    if part == "user":
        assert cause["place"].startswith("at slow_runs.py:")


@pytest.mark.parametrize(
    ("case", "kind", "words"),
    [
        ("transfer", "transfer", "moving batches to the device"),
        ("eval", "evaluation", "in evaluation"),
        ("gc", "gc", "collecting garbage"),
    ],
)
def test_a_part_that_is_slow_in_every_step_is_named(runs: Path, case: str, kind: str, words: str) -> None:
    cause = cause_of(runs / case)
    assert cause["kind"] == kind
    assert words in cause["sentence"]
    # What the first step of a life takes longer belongs to its start.
    assert cause["cost_ns"] == pytest.approx(noted(runs / case, 0, "planted_s"), rel=NEAR)


def test_padding_is_named_with_its_share(runs: Path) -> None:
    cause = cause_of(runs / "padding")
    report = report_of(evidence_of(runs / "padding"))
    assert cause["kind"] == "padding"
    share = cause["facts"]["padding"] / (cause["facts"]["padding"] + cause["facts"]["tokens"])
    assert share > 0.4
    computed = sum(report.breakdown["host"][part] for part in ("forward", "backward")) * STEPS
    assert cause["cost_ns"] == pytest.approx(share * computed, rel=NEAR)


def test_a_rank_that_is_slow_inside_of_backward_is_not_guessed(runs: Path) -> None:
    """Goal: all ranks leave the collectives of backward together, so that nobody is blamed."""
    cause = cause_of(runs / "rank_backward")
    assert cause["kind"] == "stall"
    assert cause["place"] == "in backward, rank not known"
    assert cause["cost_ns"] == pytest.approx(noted(runs / "rank_backward", SLOW_RANK, "planted_s"), rel=NEAR)


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


def test_a_simulation_may_be_like_a_real_run(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Goal: times come from records. Method: of a run whose saves take a planted tenth of a second, that and its steps are told."""
    times = run_times(runs / "checkpoints")

    assert times.save_s is not None
    assert times.save_s >= SAVE_S * (1 - NEAR)
    assert times.step_s is not None
    assert FORWARD_S + BACKWARD_S <= times.step_s < SAVE_S
    words = ["--hosts", "4", "--for", "1d", "--seeds", "1", "--like", str(runs / "checkpoints"), "--json"]
    assert main(["simulate", *words]) == 0
    said = capsys.readouterr()
    assert "recorded: start" in said.err
    assert sum(json.loads(said.out)["seeds"][0]["accounts_ms"].values()) == 86_400_000
