"""The batch script that Slurm gets: what is asked for stands in it, what contradicts it is refused or overruled, and a shell reads it as meant."""

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.errors import UsageError
from penstock.process.engines.allocation import EngineOption, HostRequest, HostStart
from penstock.process.engines.slurm_script import batch_script, slurm_time, step_command
from tests.process.jobs import PENSTOCK

REQUEST = HostRequest(
    hosts=4, spares=1, gpus_per_host=8, time_s=90 * 60, queue="gpu", own_options=[EngineOption("qos", "high")]
)


def _start(tmp_path: Path) -> HostStart:
    return HostStart(
        command=["penstock", "run", "train.py"], directory=tmp_path, variables={"A": "it's 'so' $HOME"}
    )


def test_a_script_asks_for_all_hosts_those_in_reserve_too(tmp_path: Path) -> None:
    lines = batch_script(REQUEST, _start(tmp_path), tmp_path / "train-1").text.splitlines()
    for option in (
        "nodes=5",
        "gpus-per-node=8",
        "time=1:30:00",
        "partition=gpu",
        "qos=high",
        "no-kill",
        "signal=USR1@120",
    ):
        assert f"#SBATCH --{option}" in lines, option
    assert lines[0] == "#!/bin/bash"
    assert "--nodes=5" in step_command(REQUEST.all_hosts, _start(tmp_path))


def test_our_option_wins_and_that_is_said(tmp_path: Path) -> None:
    wishes = [EngineOption("N", "9"), EngineOption("partition", "cpu"), EngineOption("signal", "USR2@600")]
    script = batch_script(
        HostRequest(hosts=2, queue="gpu", own_options=wishes), _start(tmp_path), tmp_path / "x"
    )
    assert script.notes == [
        "--with N=9 is overruled by nodes=2",
        "--with partition=cpu is overruled by partition=gpu",
    ]
    assert "#SBATCH --signal=USR2@600" in script.text
    assert "nodes=9" not in script.text


@pytest.mark.parametrize("name", ["array", "ntasks", "wrap", "a", "n"])
def test_options_that_contradict_a_job_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match=f"--with {name}"):
        batch_script(HostRequest(hosts=2, own_options=[EngineOption(name, "1")]), _start(tmp_path), tmp_path)


def test_a_value_of_two_lines_is_no_option(tmp_path: Path) -> None:
    wish = EngineOption("comment", "x\n#SBATCH --nodes=99")
    with pytest.raises(UsageError, match="one line"):
        batch_script(HostRequest(hosts=2, own_options=[wish]), _start(tmp_path), tmp_path)


def test_a_shell_reads_variables_as_they_were(tmp_path: Path) -> None:
    text = batch_script(HostRequest(hosts=1), _start(tmp_path), tmp_path / "odd 'name'").text
    shown = text.replace("exec ", 'printf "%s" "$A"; : ')
    done = subprocess.run(["bash", "-c", shown], capture_output=True, text=True, check=True)
    assert done.stdout == "it's 'so' $HOME"


@pytest.mark.parametrize(
    ("seconds", "said"), [(1, "0:01:00"), (60, "0:01:00"), (61, "0:02:00"), (43200, "12:00:00")]
)
def test_times_are_rounded_up_to_minutes(seconds: float, said: str) -> None:
    assert slurm_time(seconds) == said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--on", "moon", "x.py"], "--on must be one of slurm, kubernetes, ssh, auto, got moon"),
        (["--queue", "gpu", "x.py"], "--queue goes with --on"),
        (["--on", "ssh", "x.py"], "--on ssh needs --hosts"),
        (["--on", "auto", "x.py"], "this runs in no engine"),
        (
            ["--on", "slurm", "--nnodes", "2", "--node-rank", "1", "x.py"],
            "--node-rank and --on slurm exclude",
        ),
        (["--on", "slurm", "--with", "=3", "x.py"], "--with must be NAME=VALUE"),
        (["--on", "slurm", "--nnodes", "2", "x.py"], "there is no file x.py"),
    ],
)
def test_what_makes_no_sense_is_said_before_an_engine_is_asked(
    words: list[str], said: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        [*PENSTOCK, "run", *words], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 2
    assert said in done.stderr


def test_a_dry_run_prints_the_script_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    words = [
        "--on",
        "slurm",
        "--nnodes",
        "2",
        "--spare-hosts",
        "1",
        "--ranks",
        "2",
        "--dry-run",
        "train.py",
        "--lr",
        "3 4",
    ]
    done = subprocess.run(
        [*PENSTOCK, "run", *words], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert done.stdout.startswith("#!/bin/bash\n")
    assert "#SBATCH --nodes=3" in done.stdout
    assert sys.executable in done.stdout


def test_hosts_that_failed_are_not_asked_for_beside_what_a_person_excludes(tmp_path: Path) -> None:
    wishes = [EngineOption("x", "login1")]
    request = HostRequest(hosts=2, own_options=wishes, excluded=("gpu07", "gpu08", "gpu10"))
    lines = batch_script(request, _start(tmp_path), tmp_path / "x").text.splitlines()
    assert "#SBATCH --exclude='login1,gpu[07-08,10]'" in lines
    assert batch_script(request, _start(tmp_path), tmp_path / "x").notes == []
    assert "exclude" not in batch_script(HostRequest(hosts=2), _start(tmp_path), tmp_path / "x").text
