"""`penstock run` reads a command line as torchrun does, and says so where it does not."""

import os
from pathlib import Path
from typing import Any

import pytest
from torch.distributed.run import get_args_parser

from penstock.cli.run.options import OPTIONS, read
from penstock.cli.run.to_spec import job_of_command, notes
from penstock.errors import UsageError
from penstock.process import Budget, Role
from penstock.process.job.command import accelerators, executable, hidden, meeting_port, rank_count, rank_set

HERE = str(Path(__file__))


def role(*words: str, **environment: str) -> Role:
    (result,) = job_of_command(read(words, environment)).roles
    return result


def test_every_option_of_torchrun_is_known() -> None:
    """Goal: no command line of torchrun is refused for a name. Method: ask torchrun's own parser for all names."""
    theirs = {
        name.replace("_", "-") for action in get_args_parser()._actions for name in action.option_strings
    }
    ours = {name for option in OPTIONS for name in option.names} | {"--help", "-h"}
    # Prints a script for a shell and runs nothing; `penstock completion` does that.
    assert theirs - ours == {"--print-completion"}


@pytest.mark.parametrize(
    "words",
    [
        ["--nproc-per-node", "2", HERE, "--lr", "1"],
        ["--nproc_per_node=2", HERE, "--nproc-per-node", "7"],
        ["--nproc-per-node=2", "--standalone", "-m", "pkg.train", "-m", "x"],
        ["--max-restarts", "3", "-r", "3", "-t3", HERE, "x"],
        ["--rdzv-backend=c10d", "--rdzv_endpoint=localhost:29501", "--rdzv-id", "job7", HERE],
        ["--no-python", "true", "--no-python"],
        ["--stand", "--nnod=1", HERE],
        ["--master-port", "29502", "--node_rank=0", HERE, "-"],
    ],
)
def test_words_mean_the_same_as_for_torchrun(words: list[str]) -> None:
    """Goal: options before the script are ours, all that follows it is the script's. Method: torchrun's own parser."""
    theirs = get_args_parser().parse_args(words)
    ours = read(words, {})
    assert list(ours.command) == [theirs.training_script, *theirs.training_script_args]
    assert ours.values["ranks"] == theirs.nproc_per_node
    assert ours.values["restarts"] == theirs.max_restarts
    for key in (
        "module",
        "no_python",
        "standalone",
        "redirects",
        "tee",
        "rdzv_id",
        "rdzv_endpoint",
        "master_port",
    ):
        assert ours.values[key] == getattr(theirs, key)


@pytest.mark.parametrize(
    ("variable", "value", "dest", "key"),
    [
        ("PET_NPROC_PER_NODE", "3", "nproc_per_node", "ranks"),
        ("PET_MAX_RESTARTS", "2", "max_restarts", "restarts"),
        ("PET_STANDALONE", "1", "standalone", "standalone"),
        ("PET_MODULE", "0", "module", "module"),
        ("PET_RDZV_ID", "seven", "rdzv_id", "rdzv_id"),
    ],
)
def test_the_variables_of_torchrun_count(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, dest: str, key: str
) -> None:
    monkeypatch.setenv(variable, value)
    assert read([HERE], os.environ).values[key] == getattr(get_args_parser().parse_args([HERE]), dest)


def test_a_command_line_says_what_the_gang_is() -> None:
    described = role(
        *(
            "--ranks",
            "4",
            "--restarts",
            "3",
            "--budget",
            "memory=0,hang=9,host=7",
            "--restart",
            "one",
            "--grace",
            "1m",
        ),
        *(
            "--gpus",
            "1",
            "--memory",
            "2G",
            "--hang",
            "off",
            "-e",
            "MODE=fast",
            "--role",
            "worker",
            "--",
            "true",
            "-x",
        ),
    )
    assert (described.name, described.ranks, list(described.command)) == ("worker", 4, ["true", "-x"])
    assert described.policy.budget == Budget(crash=3, memory=0, hang=9, preemption=1000, host=7)
    assert (described.policy.restart, described.policy.stop_grace_s, described.policy.hang) == (
        "one",
        60,
        None,
    )
    assert (described.slots.gpus, described.slots.memory_bytes, described.environment) == (
        1,
        2 << 30,
        {"MODE": "fast"},
    )


def test_where_ranks_meet_and_how_the_job_is_called() -> None:
    words = read(["--rdzv-endpoint", "localhost:29501", "--rdzv-id", "seven", HERE], {})
    spec = job_of_command(words)
    assert (spec.roles[0].master_port, spec.name) == (29501, "seven")
    alone = job_of_command(
        read(["--standalone", "--rdzv-endpoint", "localhost:29501", "--rdzv-id", "seven", HERE], {})
    )
    assert (alone.roles[0].master_port, alone.name) == (None, None)
    assert role("--master-addr", "127.0.0.1", "--master-port", "29503", HERE).master_port == 29503
    assert role("--shutdown-timeout", "7", HERE).policy.failure_grace_s == 7


def test_what_is_not_needed_is_said() -> None:
    words = read(["--start-method", "fork", "--monitor-interval", "1", "--rdzv-backend", "static", HERE], {})
    assert [note.split()[0] for note in notes(words)] == ["--monitor-interval", "--start-method"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--rnaks", "2", "true"], "unknown option --rnaks"),
        (["--rdzv", "2", "true"], "unknown option --rdzv"),
        (["--ranks"], "--ranks needs a value"),
        (["--detach=yes", "true"], "--detach takes no value"),
        (["--restarts", "some", "true"], "--restarts must be a whole number, got some"),
        (["--ranks", "many", "true"], "a number, `auto`, `gpu` or `cpu`"),
        (["--nnodes", "2", "--standalone", "true"], "exclude each other"),
        (["--nnodes", "x", "true"], "--nnodes must be a number or MIN:MAX, got x"),
        (["--node-rank", "1", "true"], "--node-rank must be 0"),
        (["--rdzv-endpoint", "head7:29500", "true"], "ranks of one machine meet on this machine"),
        (["--rdzv-endpoint", "a:b:c", "true"], "HOST:PORT"),
        (["--master-addr", "10.9.8.7", "true"], "ranks of one machine meet on this machine"),
        (["--virtual-local-rank", "true"], "--virtual-local-rank is not known here"),
        (["--logs-specs", "mine", "true"], "--logs-specs is not known here"),
        (["--redirects", "4", "true"], "0 to 3 for all ranks"),
        (["--redirects", "1:3", "true"], "ranks from 0 to 0"),
        (["--local-ranks-filter", "3", "true"], "ranks from 0 to 0"),
        (["-m", "--no-python", "x"], "exclude each other"),
        (["--budget", "bugs=3", "true"], "a number for some of crash, memory, hang, preemption, host"),
        (["--memory", "much", "true"], "a size"),
        (["--grace", "-1", "true"], "a time"),
        (["--hang", "often", "true"], "a time"),
        (["--hang-factor", "often", "true"], "a number"),
        (["--zygote", "maybe", "true"], "one of auto, always, never"),
        (["-e", "MODE", "true"], "NAME=VALUE"),
        (["-e", "MY_TOKEN=abc", "true"], "a secret does not belong on a command line"),
        (["--set", "a=b", "true"], "--set changes fields of a job file"),
        (["--directory", "/no/such", "true"], "--directory must exist, got /no/such"),
    ],
)
def test_what_cannot_be_done_is_refused_with_a_sentence(words: list[str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        job_of_command(read(words, {}))
    assert message in f"{caught.value} {caught.value.hint}"


def test_which_program_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("#!/bin/sh\n")
    (tmp_path / "tool").write_text("")
    assert executable(["train.py", "-x"], python="/py") == ["/py", "train.py", "-x"]
    assert executable(["pkg.mod", "-x"], module=True, python="/py") == ["/py", "-m", "pkg.mod", "-x"]
    with pytest.raises(UsageError, match="tool is not executable"):
        executable(["./tool"])
    with pytest.raises(UsageError, match=r"train.py is not executable"):
        executable(["./train.py"], direct=True)
    (tmp_path / "train.py").chmod(0o755)
    assert executable(["./train.py"], direct=True) == ["./train.py"]
    assert executable(["train.py"], python="/py", directory=tmp_path) == ["/py", "train.py"]
    with pytest.raises(UsageError, match="there is no file"):
        executable(["train.py"], directory=Path("/"))


def test_how_many_ranks() -> None:
    assert rank_count("7") == 7
    assert rank_count("cpu") == len(os.sched_getaffinity(0))
    assert (rank_count("gpu", visible="0,2"), rank_count("auto", visible="3")) == (2, 1)
    assert accelerators("") == 0
    assert rank_count("auto", visible="") == rank_count("cpu")
    with pytest.raises(UsageError, match="no GPU"):
        rank_count("gpu", visible="-1")


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({}, {}),
        ({"redirects": "3"}, {"stdout": [0, 1, 2], "stderr": [0, 1, 2]}),
        ({"redirects": "3", "tee": "3"}, {}),
        ({"redirects": "3", "tee": "0:3,1:1"}, {"stdout": [2], "stderr": [1, 2]}),
        ({"redirects": "0:1,1:2"}, {"stdout": [0], "stderr": [1]}),
        ({"only": "0,2"}, {"stdout": [1], "stderr": [1]}),
    ],
)
def test_whose_output_is_kept_from_the_terminal(options: dict[str, Any], found: dict[str, list[int]]) -> None:
    assert hidden(3, **options) == found


def test_sets_of_ranks_and_ports() -> None:
    assert rank_set("0,2-3", 4, option="--rank") == {0, 2, 3}
    assert meeting_port("[::1]:29500") == 29500
    assert meeting_port("localhost:0") is None
    assert meeting_port("localhost") is None


def test_options_of_ours_behind_the_command_are_the_commands_and_that_is_said(tmp_path: Path) -> None:
    """Goal: `penstock run train.py --ranks 2` starts one rank, as torchrun would, but not without a word."""
    knows, plain = tmp_path / "knows.py", tmp_path / "plain.py"
    knows.write_text("parser.add_argument('--ranks')\n")
    plain.write_text("import sys\n")
    said = lambda *words: notes(read(words, {}))  # noqa: E731 - short, and used in a row

    (note,) = said(str(plain), "--ranks", "2", "--lr", "1")
    assert note.startswith(f"--ranks stands after {plain}, so {plain} gets it")
    assert len(said(str(plain), "--nproc_per_node=2", "--restarts=3")) == 2
    assert said("--ranks", "2", str(plain), "--name", "x", "--seed", "1") == []
    assert said(str(knows), "--ranks", "2") == []
    assert said("--", str(plain), "--ranks", "2") == []
    assert job_of_command(read([str(plain), "--ranks", "2"], {})).roles[0].ranks == 1
