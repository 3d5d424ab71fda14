"""Who restarts with whom over hosts: a rank that restarts alone leaves every other one on every host untouched (H2, P1)."""

import os
import signal
from pathlib import Path

from tests.hosts.job_of_hosts import PENSTOCK, PORT, job_of_hosts, until

ALONE = ("--lease", "2s", "--restart", "one")


def test_a_rank_that_restarts_alone_and_a_host_that_is_lost_cost_nobody_else_a_life(tmp_path: Path) -> None:
    """Goal: item 7, scopes. Method: three hosts of two ranks; a rank is killed, then a host is lost and comes back."""
    with job_of_hosts(tmp_path, 3, ranks=2, options=ALONE) as job:
        job.start()
        job.await_life(0)
        before = job.rank_pids()
        os.kill(before[1][0], signal.SIGKILL)
        until(lambda: sorted(job.lives()) == [0, 0, 0, 0, 0, 1], job.account)
        until(lambda: len(job.rank_pids()[1]) == 2, job.account)
        assert job.lives()[2:4] in ([1, 0], [0, 1])
        after = job.rank_pids()
        assert (after[0], after[2]) == (before[0], before[2])
        assert before[1][1] in after[1]
        job.lose(2)
        until(lambda: job.states(0) == ["here", "here", "expired"], job.account)
        job.start(2)
        until(lambda: job.lives()[4:] == [1, 1], job.account)
        again = job.rank_pids()
        assert (again[0], again[1]) == (after[0], after[1])
        job.finish()
        assert job.codes() == [0, 0, 0], job.account()
        job.assert_nothing_left()


JOB = """
[roles.data]
kind = "service"
command = ["sh", "-c", "echo $RANK $WORLD_SIZE > {folder}/data-$RANK; exec sleep 600"]
[roles.trainer]
ranks = 2
after = "data"
command = ["sh", "-c", "echo $RANK $WORLD_SIZE $GROUP_RANK $LOCAL_RANK > {folder}/trainer-$RANK"]
[roles.eval]
kind = "task"
after = "trainer"
restart = "one"
command = ["sh", "-c", "echo $RANK $WORLD_SIZE > {folder}/eval-$RANK"]
"""


BOUND = """
[roles.data]
kind = "service"
host = 1
ranks = 2
restart = "one"
restarts = 5
command = ["sh", "-c", "echo $RANK $WORLD_SIZE $GROUP_RANK $GROUP_WORLD_SIZE > {folder}/data-$RANK-$$; exec sleep 601"]
[roles.trainer]
after = "data"
command = ["sh", "-c", "echo $RANK $WORLD_SIZE $GROUP_RANK > {folder}/trainer-$RANK; while ! test -e {folder}/end; do sleep 0.2; done"]
[roles.eval]
kind = "task"
host = 2
ranks = 2
after = "trainer"
command = ["sh", "-c", "echo $RANK $WORLD_SIZE $MASTER_ADDR $MASTER_PORT > {folder}/eval-$RANK"]
"""


def test_roles_that_are_bound_to_one_host_run_there_and_restart_for_themselves(tmp_path: Path) -> None:
    """Goal: item 7, a role of one host. Method: a service on host 1 whose rank is killed, a task on host 2 that meets there, and a gang
    on all three hosts, of which none notices anything."""
    with job_of_hosts(tmp_path, 3) as job:
        file = tmp_path / "job.toml"
        file.write_text(BOUND.format(folder=tmp_path))
        for index in range(3):
            meeting = ["--rdzv-endpoint", f"{job.host(0).address}:{PORT}"]
            hosts = ["--nnodes", "3", "--node-rank", str(index), *meeting]
            words = [*PENSTOCK, "run", "--file", str(file), "--lease", "2s", *hosts]
            output = tmp_path / f"output-{index}"
            job.launchers[index] = job.host(index).start(words, output=output, variables=job.variables())

        def said(role: str) -> list[str]:
            return sorted(path.read_text().strip() for path in tmp_path.glob(f"{role}-*"))

        until(lambda: len(said("trainer")) == 3 and all(said("trainer")), job.account)
        assert said("data") == ["0 2 0 1", "1 2 0 1"]
        assert said("trainer") == ["0 3 0", "1 3 1", "2 3 2"]
        places = [job.host(index).pids("sleep 601") for index in range(3)]
        assert [len(pids) for pids in places] == [0, 2, 0]
        shown = job.penstock(2, "ps", "--json").stdout
        assert shown.count('"data"') == 2, shown
        os.kill(places[1][0], signal.SIGKILL)
        until(lambda: len(said("data")) == 3 and all(said("data")), job.account)
        assert places[1][1] in job.host(1).pids("sleep 601")
        (tmp_path / "end").touch()
        assert job.codes() == [0, 0, 0], job.account()
        met = [line.split() for line in said("eval")]
        assert [line[:3] for line in met] == [
            ["0", "2", job.host(2).address],
            ["1", "2", job.host(2).address],
        ]
        assert met[0][3] == met[1][3]
        job.assert_nothing_left()


def test_a_role_of_a_host_that_the_job_does_not_have_is_refused_with_its_place(tmp_path: Path) -> None:
    """Goal: a typed error with role, value and what there is, before anything starts."""
    with job_of_hosts(tmp_path, 1) as job:
        file = tmp_path / "job.toml"
        file.write_text(BOUND.format(folder=tmp_path))
        meeting = ["--rdzv-endpoint", f"{job.host(0).address}:{PORT}", "--node-rank", "0"]
        for hosts, words in (
            ([], "is 1, and the job has host 0 alone"),
            (["--nnodes", "2", *meeting], "is 2, and the job has hosts 0 to 1"),
            (["--nnodes", "2:3", *meeting], "may go on without that host"),
        ):
            refused = job.penstock(0, "run", "--file", str(file), *hosts)
            assert refused.returncode == 2
            assert words in refused.stderr, refused.stderr


def test_roles_of_a_job_file_run_on_every_host_with_ranks_over_all(tmp_path: Path) -> None:
    """Goal: item 7, roles and services. Method: a service, a gang and a task on two hosts; each writes down who it is."""
    with job_of_hosts(tmp_path, 2) as job:
        file = tmp_path / "job.toml"
        file.write_text(JOB.format(folder=tmp_path))
        for index in range(2):
            meeting = [
                "--nnodes",
                "2",
                "--node-rank",
                str(index),
                "--rdzv-endpoint",
                f"{job.host(0).address}:{PORT}",
            ]
            words = [*PENSTOCK, "run", "--file", str(file), "--lease", "2s", *meeting]
            output = tmp_path / f"output-{index}"
            job.launchers[index] = job.host(index).start(words, output=output, variables=job.variables())
        assert job.codes() == [0, 0], job.account()

        def said(role: str) -> list[str]:
            return [path.read_text().strip() for path in sorted(tmp_path.glob(f"{role}-*"))]

        assert said("data") == ["0 2", "1 2"]
        assert said("trainer") == ["0 4 0 0", "1 4 0 1", "2 4 1 0", "3 4 1 1"]
        assert said("eval") == ["0 2", "1 2"]
        job.assert_nothing_left()
