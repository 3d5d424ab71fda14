"""Imagined jobs: profiles, what they promise about time and faults, and words that make no sense."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.main import main
from penstock.cli.simulate.comparison import KEYS
from penstock.errors import ProfileInvalid, SimulationInvalid
from penstock.process.job.catalogue import Job
from penstock.process.simulation import (
    Cause,
    FaultProfile,
    SimulationPlan,
    Summary,
    daly_s,
    read_profile,
    simulate,
    young_s,
)
from penstock.process.simulation.fault_profile import parse_profile
from penstock.process.simulation.own_faults import poisson_range, profile_of_jobs

LLAMA3 = {
    "faulty GPU": 148, "GPU HBM3 memory": 72, "software bug": 54, "network switch/cable": 35, "host maintenance": 32,
    "GPU SRAM memory": 19, "GPU system processor": 17, "NIC": 7, "NCCL watchdog timeouts": 7, "silent data corruption": 6,
    "GPU thermal interface + sensor": 6, "SSD": 3, "power supply": 3, "server chassis": 2, "IO expansion board": 2,
    "dependency": 2, "CPU": 2, "system memory": 2,
}  # fmt: skip
DAY_S = 86400.0
SMALL = ("--hosts", "32", "--for", "3d", "--seeds", "3")


@pytest.fixture(scope="module")
def llama3() -> Summary:
    """Fewer hosts and days than the paper, with the same number of faults: what is shared is the rate."""
    plan = SimulationPlan(
        profile=read_profile("llama3"), hosts=2048, for_s=54 * DAY_S, spare_hosts=16, seeds=6
    )
    return simulate(plan)


def test_the_built_in_profile_has_the_published_counts() -> None:
    profile = read_profile("llama3")

    unplanned = {cause.name: cause.events for cause in profile.causes if cause.loses != "job"}
    assert unplanned == LLAMA3
    assert sum(LLAMA3.values()) == 419
    assert [cause.events for cause in profile.causes if cause.loses == "job"] == [47]
    plan = SimulationPlan(profile=profile, hosts=2048, for_s=54 * DAY_S)
    assert plan.expected == pytest.approx(419)


def test_accounts_sum_to_the_time_and_faults_come_as_published(llama3: Summary) -> None:
    """Goal: O1, and the published table. Method: six seeds of 54 days; sums are exact, the mean is within three of its own errors."""
    for outcome in llama3.outcomes:
        assert sum(outcome.sums.values()) == round(54 * DAY_S * 1000)
        assert outcome.ended is None
    unplanned = llama3.interruptions(planned=False)
    error = math.sqrt(419 / len(llama3.outcomes))
    assert abs(unplanned.mean - 419) < 3 * error
    assert 0.9 < llama3.share("useful").mean < 1


@pytest.mark.parametrize(
    ("save_every_s", "save_s", "faults_per_day", "start_s", "load_s"),
    [(600.0, 2.0, 8.0, 120.0, 60.0), (3600.0, 60.0, 8.0, 300.0, 100.0), (1800.0, 30.0, 12.0, 60.0, 0.0)],
)
def test_the_useful_share_is_what_dalys_formula_says(
    save_every_s: float, save_s: float, faults_per_day: float, start_s: float, load_s: float
) -> None:
    """Goal: the simulator agrees with somebody else. Method: Daly 2006, equation 13 is exact where faults are noticed at once and saves exist at
    once: M e^(R/M) (e^((τ+δ)/M) - 1) of time for τ of work. The mean of 20 long lives is within 3 of its own errors."""
    bugs = Cause(name="bug", per_1000_host_days=faults_per_day / 16 * 1000)
    plan = SimulationPlan(
        profile=FaultProfile(name="bugs", causes=(bugs,)), hosts=16, for_s=30 * DAY_S, save_every_s=save_every_s,
        save_s=save_s, start_s=start_s, load_s=load_s, detect_s=0.0, end_s=0.0, prepare_s=0.0, write_s=0.0,
    )  # fmt: skip
    between_s = DAY_S / faults_per_day
    cycle = math.expm1((save_every_s + save_s) / between_s)
    expected = save_every_s / (between_s * math.exp((start_s + load_s) / between_s) * cycle)

    useful = simulate(plan).share("useful")

    assert abs(useful.mean - expected) < 3 * useful.deviation / math.sqrt(plan.seeds)


def test_a_profile_survives_being_written_and_read() -> None:
    profile = read_profile("llama3")

    again = parse_profile(profile.to_toml().encode(), place="mine.toml")

    for one, other in zip(profile.causes, again.causes, strict=True):
        assert (one.name, one.loses, one.repair_s, one.detect_s) == (
            other.name,
            other.loses,
            other.repair_s,
            other.detect_s,
        )
        assert one.per_day(hosts=7, gpus_per_host=8) == pytest.approx(
            other.per_day(hosts=7, gpus_per_host=8), rel=1e-5
        )


@pytest.mark.parametrize(
    ("text", "field", "words"),
    [
        ('[[cause]]\nname = "x"\nper_1000_gpu_days = -1\n', "per_1000_gpu_days", "0 or more, got -1"),
        ('[[cause]]\nname = "x"\nper_1000_gpu_days = nan\n', "per_1000_gpu_days", "got nan"),
        ('[[cause]]\nname = "x"\nper_1000_gpu_days = 1\nlooses = "rank"\n', "looses", "is not known"),
        (
            '[[cause]]\nname = "x"\nper_1000_gpu_days = 1\nloses = "planet"\n',
            "loses",
            "rank, host, rack, job",
        ),
        ('[[cause]]\nname = "x"\nper_1000_gpu_days = 1\nrepair = "soon"\n', "repair", "must be a time"),
        ('[[cause]]\nname = "x"\nevents = 3\n', "events", "needs days and gpus"),
        ('days = 0\ngpus = 8\n[[cause]]\nname = "x"\nevents = 3\n', "days", "more than 0"),
        ('[[cause]]\nname = "x"\n', "", "needs one rate, has 0"),
        ('[[cause]]\nname = "x"\nevents = 1\nper_1000_host_days = 1\n', "", "needs one rate, has 2"),
        ("[[cause]]\nper_1000_gpu_days = 1\n", "name", "is missing"),
        ('name = "empty"\n', "", "has no cause"),
        ("cause = 7\nthis is not TOML", "", "is not TOML"),
    ],
)
def test_a_profile_that_makes_no_sense_is_refused(text: str, field: str, words: str) -> None:
    with pytest.raises(ProfileInvalid) as caught:
        parse_profile(text.encode(), place="mine.toml")

    assert caught.value.field == field
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--for", "0d"], "for: must be longer than 0, got 0 s"),
        (["--for", "soon"], "for: must be a time, got 'soon'"),
        (["--hosts", "0"], "hosts: must be 1 or more, got 0"),
        (["--hosts", "4", "--spare-hosts", "5"], "spare-hosts: 5 are more than the 4 hosts"),
        (["--seeds", "0"], "seeds: must be 1 or more"),
        (["--hosts", "4", "--racks", "9"], "racks: must be 1 to 4, got 9"),
        (["--lease", "1s"], "lease: must be 2000 ms or more"),
        (["--save-every", "10s"], "save-every: a save takes 32000 ms"),
        (["--nnodes", "8:4"], "nnodes: must be a number or MIN:MAX"),
        (["--nnodes", "2:4", "--sizes", "3,9"], "sizes: 9 is not within --nnodes 2:4"),
        (["--compare", "colour=red,blue"], "compare: 'colour' cannot be compared"),
        (["--compare", "spare-hosts"], "compare: needs 1 to 32 values"),
        (["--compare", "spare-hosts=some"], "spare-hosts: must be a whole number"),
        (["--faults", "nowhere.toml"], "profile nowhere.toml: cannot be read"),
        (["--faults", "from"], "faults: from names no job"),
        (["--faults", "llama3", "llama4"], "faults: takes one profile, got 2"),
        (["--hosts", "90000", "--for", "365d"], "causes: "),
    ],
)
def test_words_that_make_no_sense_get_a_sentence(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", *words]) == 2

    said = capsys.readouterr()
    assert told in said.err
    assert "Traceback" not in said.err
    assert said.out == ""


def run_json(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    """What the command says to programs."""
    assert main(["simulate", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_command_prints_a_table_and_the_same_as_json(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    picture = tmp_path / "picture.svg"
    assert main(["simulate", *SMALL, "--spare-hosts", "1", "--svg", str(picture)]) == 0
    text = capsys.readouterr().out
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80
    for part in (
        "32 hosts × 8 GPUs",
        "useful",
        "where the rest went",
        "work done again",
        "faulty GPU",
        "by Young",
    ):
        assert part in text
    assert picture.read_text().startswith("<svg ")

    document = run_json(capsys, *SMALL, "--spare-hosts", "1")
    assert f"{100 * document['useful']['mean']:.1f} %" in text
    for seed in document["seeds"]:
        assert sum(seed["accounts_ms"].values()) == 3 * 86400 * 1000
    assert document == run_json(capsys, *SMALL, "--spare-hosts", "1")


def test_choices_meet_the_same_faults(capsys: pytest.CaptureFixture[str]) -> None:
    document = run_json(capsys, *SMALL, "--compare", "save-every=5m,1h")

    short, long = document["choices"]
    assert [seed["interruptions"] for seed in short["seeds"]] == [
        seed["interruptions"] for seed in long["seeds"]
    ]
    assert short["shares"]["redone"]["mean"] < long["shares"]["redone"]["mean"]
    assert short["shares"]["saving"]["mean"] > long["shares"]["saving"]["mean"]
    assert main(["simulate", *SMALL, "--compare", "spare-hosts=0,2"]) == 0
    table = capsys.readouterr().out
    assert "GPU-days lost" in table
    assert "least" in table


#: Two values of everything that may be compared.
CHOICES = {
    "spare-hosts": "0,1", "lease": "10s,2m", "save-every": "5m,30m", "save": "1s,30s", "write": "5s,2m", "load": "10s,5m",
    "start": "1m,10m", "detect": "1s,5m", "hosts": "16,32", "gpus-per-host": "4,8", "racks": "4,16", "nnodes": "16:32,32",
    "replace-within": "1m,1h", "restarts": "0,100", "for": "1d,2d",
}  # fmt: skip


@pytest.mark.parametrize("key", KEYS)
def test_every_choice_may_be_compared(key: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Goal: a comparison is that of two plans. Method: each row is what the command says of that value alone."""
    usual = [word for word in ("--hosts", "32") if key not in ("hosts", "nnodes")]
    usual += ["--seeds", "2", *(["--for", "2d"] if key != "for" else [])]
    document = run_json(capsys, *usual, "--compare", f"{key}={CHOICES[key]}")

    assert [choice["value"] for choice in document["choices"]] == CHOICES[key].split(",")
    for choice in document["choices"]:
        alone = run_json(capsys, *usual, f"--{key}", choice["value"])
        assert alone["seeds"] == choice["seeds"]


def test_a_gang_that_may_shrink_does(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    profile = tmp_path / "hosts.toml"
    profile.write_text('[[cause]]\nname = "gone"\nper_1000_host_days = 60\nloses = "host"\nrepair = "12h"\n')

    document = run_json(capsys, "--nnodes", "8:32", "--for", "3d", "--seeds", "3", "--faults", str(profile))

    assert sum(seed["shrinks"] for seed in document["seeds"]) > 0
    assert document["shares"]["smaller"]["mean"] > 0


def test_a_job_that_gives_up_says_why(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    profile = tmp_path / "bugs.toml"
    profile.write_text('[[cause]]\nname = "bug"\nper_1000_host_days = 400\n')

    words = ("--hosts", "8", "--for", "3d", "--seeds", "2", "--faults", str(profile), "--restarts", "0")
    document = run_json(capsys, *words)

    assert all("no restarts were asked for" in seed["gave_up"]["reason"] for seed in document["seeds"])
    assert main(["simulate", *words]) == 0
    assert "the job gave up with 2 of 2 seeds" in capsys.readouterr().out


def test_young_and_daly_agree_where_saves_are_short() -> None:
    assert young_s(60, 86400) == pytest.approx(math.sqrt(2 * 60 * 86400))
    assert daly_s(0.001, 86400) == pytest.approx(young_s(0.001, 86400), rel=1e-3)
    assert daly_s(200, 100) == 100


def job_with(directory: Path, causes: list[str], *, ranks: int = 4, days: float = 2.0) -> Job:
    """The files of a job that is over, as the agent leaves them."""
    (directory / "incidents").mkdir(parents=True)
    for number, cause in enumerate(causes):
        (directory / "incidents" / f"{number}.json").write_text(json.dumps({"cause": cause, "ranks": []}))
    gang = {
        "role": "rank", "kind": "gang", "phase": "failed", "reason": "", "incarnation": 0, "master_port": 1, "zygote": "",
        "workers": [{"pid": 1}] * ranks, "failures": [],
    }  # fmt: skip
    state = {
        "job": directory.name, "phase": "failed", "reason": "", "exit_code": 1, "started_at": 1000.0,
        "ended_at": 1000.0 + days * DAY_S, "keeper": 1, "agent": 1, "coordinator": 1, "zygote": 1, "cgroup": None,
        "gangs": [gang], "incidents": [], "log_lost_bytes": 0,
    }  # fmt: skip
    (directory / "state.json").write_text(json.dumps(state))
    return Job(directory)


def test_own_incidents_make_a_profile_that_says_what_it_rests_on(tmp_path: Path) -> None:
    first = job_with(tmp_path / "one-1", ["crash", "crash", "host", "peer"])
    second = job_with(tmp_path / "two-2", ["hang"], days=1.0)

    profile = profile_of_jobs([first, second])

    rates = {cause.name: cause for cause in profile.causes}
    assert set(rates) == {"crash", "host", "hang"}
    assert rates["crash"].per_1000_gpu_days == pytest.approx(2 / 12 * 1000)
    assert rates["host"].per_1000_host_days == pytest.approx(1 / 3 * 1000)
    assert rates["host"].loses == "host"
    assert profile.origin.startswith(
        "4 events in 12 rank-days of one-1, two-2: at 95 %, the true number is 1.1 to 10.2"
    )
    assert parse_profile(profile.to_toml().encode(), place="own").causes


def test_a_job_without_incidents_makes_no_profile(tmp_path: Path) -> None:
    with pytest.raises(ProfileInvalid, match=r"had no incident in 8 rank-days") as caught:
        profile_of_jobs([job_with(tmp_path / "fine-1", [])])

    assert "--faults llama3" in str(caught.value.hint)


def test_the_range_of_a_count_holds_the_exact_one() -> None:
    """Method: exact limits of a Poisson mean at 95 %, from tables."""
    for events, (low, high) in {
        1: (0.025, 5.57),
        4: (1.09, 10.24),
        10: (4.80, 18.39),
        100: (81.4, 121.6),
    }.items():
        found = poisson_range(events)
        assert found == pytest.approx((low, high), abs=0.06 if events < 50 else 0.2)


def test_engine_and_plan_agree_about_their_fields() -> None:
    """Goal: the plan is declared on both sides. Method: the engine refuses fields that it does not know, so a plan passes only whole."""
    from penstock._rust import simulate as engine

    document = json.loads(SimulationPlan(profile=read_profile("llama3"), hosts=2, for_s=60.0).to_json([0]))
    assert json.loads(engine(json.dumps(document), 1))
    with pytest.raises(ValueError, match="unknown field `colour`"):
        engine(json.dumps({**document, "colour": 1}), 1)
    with pytest.raises(SimulationInvalid, match="racks"):
        engine(json.dumps({**document, "racks": 0}), 1)
