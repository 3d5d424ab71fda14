"""Real Slurm over three hosts, and once over five: ``srun penstock run`` is one job, ``--signal`` is a notice, a requeue continues, hosts may be lost or cut."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from tests.hosts.job_of_hosts import KEY, until
from tests.hosts.slurm_cluster import SlurmCluster, slurm_cluster

PROGRAM = Path(__file__).with_name("slurm_program.py")
HOSTS = 3
#: Of one job, with one host in reserve.
WANTED, STARTED = 4, 5
#: Until a requeued job begins, on a machine that does other things as well.
REQUEUE_S = 120.0
#: A rank writes down what it saw.
_SAY = "open(os.path.join(__import__('sys').argv[1], os.environ['RANK']), 'w').write(json.dumps(say))"
#: Until hosts take the next start of a job for another one.
FORGOTTEN_S = 4


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    folder = tmp_path_factory.mktemp("slurm")
    (folder / "key").write_text(f"{KEY}\n")
    (folder / "key").chmod(0o600)
    (folder / PROGRAM.name).write_text(PROGRAM.read_text())
    with slurm_cluster(folder, STARTED) as found:
        # Compute hosts share a home; each has its own /tmp.
        found.variables |= {
            "PYTHONPATH": str(Path(penstock.__file__).parents[1]),
            "PENSTOCK_HOME": str(folder / "home"),
        }
        (folder / "home").mkdir()
        (folder / "key").rename(folder / "home/key")
        yield found


def _run(place: Path, part: str, *options: str) -> str:
    """The command of a task."""
    place.mkdir()
    usual = ["--ranks", "1", "--lease", "3s", "--zygote", "never", "--backoff", "0s"]
    words = [sys.executable, "-m", "penstock.cli.main", "run", *usual, *options]
    return " ".join([*words, str(place.parent / PROGRAM.name), str(place), part])


def _lives(place: Path, ranks: int = HOSTS) -> list[int]:
    """The newest life of every rank."""
    paths = [place / f"lives-{rank}" for rank in range(ranks)]
    # A file that was just made has no line yet.
    lives = [path.read_text().split() if path.exists() else [] for path in paths]
    return [int(life[-1]) if life else -1 for life in lives]


def _await_life(cluster: SlurmCluster, place: Path, least: int, output: Path, ranks: int = HOSTS) -> int:
    def together() -> bool:
        lives = set(_lives(place, ranks))
        return len(lives) == 1 and min(lives) >= least

    until(together, lambda: f"{_lives(place, ranks)}\n{_said(output)}\n{cluster.said('squeue')}")
    return _lives(place, ranks)[0]


def _said(output: Path) -> str:
    return output.read_text(errors="replace") if output.exists() else ""


def _ended(cluster: SlurmCluster, job: str) -> bool:
    return cluster.state(job).startswith(("COMPLET", "FAILED", "CANCEL")) or not cluster.state(job)


def _begins_soon(cluster: SlurmCluster, job: str) -> bool:
    words = ["scontrol", "update", f"JobId={job}", f"StartTime=now+{FORGOTTEN_S}"]
    return cluster.controller.run(*words, variables=cluster.variables).returncode == 0


def test_srun_starts_one_job_over_all_hosts_with_the_ranks_that_torch_expects(cluster: SlurmCluster) -> None:
    """Goal: `srun penstock run` needs no option about hosts. Method: torch adds up ranks; variables of Slurm are made true of the rank."""
    place = cluster.folder / "ranks"
    command = _run(place, "ranks", "--ranks", "2")
    first = ",".join(host.name for host in cluster.compute[:HOSTS])
    done = cluster.controller.run(
        *f"srun --nodelist={first} --ntasks-per-node=1 {command}".split(), variables=cluster.variables
    )
    assert done.returncode == 0, done.stderr
    facts = [json.loads((place / f"facts-{rank}.json").read_text()) for rank in range(2 * HOSTS)]
    for rank, about in enumerate(facts):
        assert about["sum"] == sum(range(2 * HOSTS))
        assert (about["WORLD_SIZE"], about["SLURM_PROCID"]) == (str(2 * HOSTS), str(rank))
        assert (about["GROUP_RANK"], about["LOCAL_RANK"]) == (str(rank // 2), str(rank % 2))
        assert about["host"] == cluster.compute[rank // 2].name


def test_a_heterogeneous_job_is_one_job_with_its_hosts_in_the_order_of_its_groups(
    cluster: SlurmCluster,
) -> None:
    """Goal: `srun --het-group=0-1` needs no option about hosts. Method: the first group has the host whose name comes last."""
    place = cluster.folder / "groups"
    first, second = cluster.compute[1].name, cluster.compute[0].name
    command = _run(place, "ranks")
    words = f"salloc -N1 -w {first} : -N1 -w {second} srun --het-group=0-1 --ntasks-per-node=1 {command}"
    done = cluster.controller.run(*words.split(), variables=cluster.variables)
    assert done.returncode == 0, done.stderr
    facts = [json.loads((place / f"facts-{rank}.json").read_text()) for rank in range(2)]
    assert [about["host"] for about in facts] == [first, second]
    assert [(about["GROUP_RANK"], about["WORLD_SIZE"], about["sum"]) for about in facts] == [
        ("0", "2", 1.0),
        ("1", "2", 1.0),
    ]


def test_a_directory_that_only_the_first_host_has_is_sent_to_all(cluster: SlurmCluster) -> None:
    """Goal: `--ship` below srun. Method: a checkout in the first host's own /tmp; its ranks read a module of it and an ignored file."""
    place, work = cluster.folder / "ship", Path("/tmp/checkout")
    place.mkdir()
    first = cluster.compute[0]
    program = f"import json, os, word; say = dict(word=word.SAID, weights=os.path.exists('model.pt'), at=os.getcwd()); {_SAY}"
    files = {"train.py": program, "word.py": "SAID = 'sent'", ".gitignore": "*.pt", "model.pt": "large"}
    for name, text in files.items():
        script = 'mkdir -p "$0" && printf %s "$1" > "$0/$2" && git -C "$0" init -q'
        assert first.run("sh", "-c", script, str(work), text, name).returncode == 0
    usual = "--ranks 1 --lease 3s --zygote never --rdzv-id ship"
    command = f"{sys.executable} -m penstock.cli.main run --ship {work} {usual} train.py {place}"
    nodes = ",".join(host.name for host in cluster.compute[:HOSTS])
    words = ["srun", f"--nodelist={nodes}", "--ntasks-per-node=1", "--chdir=/tmp", "sh", "-c"]
    # Whoever has the directory stands in it.
    script = f"[ ! -d {work} ] || cd {work}; exec {command}"
    done = cluster.controller.run(*words, script, variables=cluster.variables)
    assert done.returncode == 0, done.stderr
    for rank in range(HOSTS):
        seen = json.loads((place / str(rank)).read_text())
        assert (seen["word"], seen["weights"]) == ("sent", False)
        assert seen["at"] != str(work)


def test_a_signal_of_slurm_is_a_notice_to_save_with_the_time_that_is_left(cluster: SlurmCluster) -> None:
    """Goal: --signal asks for a checkpoint and ends nothing. Method: Slurm itself sends it, some time before the limit of the job."""
    place, output = cluster.folder / "signal", cluster.folder / "signal.log"
    # Slurm 22.05 does not say when a job will end, later ones do.
    end = "export SLURM_JOB_END_TIME=$(date -d $(squeue -h -j $SLURM_JOB_ID -o %e) +%s)"
    script = f"{end}\nsrun --ntasks-per-node=1 {_run(place, 'wait')}"
    with cluster.job(script, "--time=2", "--signal=USR1@118", output=output, nodes=HOSTS) as job:
        _await_life(cluster, place, 0, output)
        notices = [place / f"notice-{rank}" for rank in range(HOSTS)]
        until(lambda: all(path.exists() for path in notices), lambda: _said(output))
        for path in notices:
            about = json.loads(path.read_text())
            assert "SIGUSR1" in about["reason"]
            assert 0 < about["left_s"] <= 120
        assert _lives(place) == [0] * HOSTS
        (place / "finish").touch()
        until(lambda: _ended(cluster, job), lambda: cluster.state(job))
        assert "error" not in _said(output), _said(output)


def test_a_requeued_job_continues_its_lives_and_its_budget(cluster: SlurmCluster) -> None:
    """Goal: a requeue is the same job. Method: a rank fails once, the job is requeued, and the second failure is one too many."""
    place, output = cluster.folder / "requeue", cluster.folder / "requeue.log"
    script = f"srun --ntasks-per-node=1 {_run(place, 'wait', '--restarts', '1')}"
    with cluster.job(script, "--requeue", output=output, nodes=HOSTS) as job:
        _await_life(cluster, place, 0, output)
        (place / "fail-1-0").touch()
        life = _await_life(cluster, place, 1, output)
        cluster.said("scontrol", "requeue", job)
        until(lambda: "PENDING" in cluster.state(job), lambda: cluster.state(job))

        # A requeued job waits two minutes, unless somebody says otherwise. A host refuses one that begins in the second in which its first
        # start was ended: it takes it for that one, and Slurm then for a job that has ended.
        until(lambda: _begins_soon(cluster, job), lambda: cluster.state(job))
        until(
            lambda: "RUNNING" in cluster.state(job),
            lambda: f"{cluster.state(job)}\n{_said(output)}",
            REQUEUE_S,
        )
        again = _await_life(cluster, place, life + 1, output)
        for rank in range(HOSTS):
            (place / f"fail-{rank}-{again}").touch()
        until(lambda: _ended(cluster, job), lambda: cluster.state(job))
        assert "all 1 restarts are spent" in _said(output), _said(output)


def test_a_host_that_is_cut_off_beyond_its_lease_takes_part_again_when_it_is_back(
    cluster: SlurmCluster,
) -> None:
    """Goal: Slurm's word about a host is not waited for, and not needed. Method: the cable is pulled for longer than a lease."""
    place, output = cluster.folder / "cut", cluster.folder / "cut.log"
    script = f"srun --no-kill --kill-on-bad-exit=0 --ntasks-per-node=1 {_run(place, 'wait')}"
    with cluster.job(script, "--no-kill", output=output, nodes=HOSTS) as job:
        _await_life(cluster, place, 0, output)
        lost = cluster.compute[2]
        lost.cut()
        until(lambda: not lost.pids(PROGRAM.name, "wait", "python"), lambda: str(lost.processes()), 10.0)
        lost.join()
        _await_life(cluster, place, 1, output)
        (place / "finish").touch()
        until(lambda: _ended(cluster, job), lambda: cluster.state(job))


def test_a_host_that_is_lost_is_named_and_nothing_is_left_on_the_others(
    cluster: SlurmCluster,
) -> None:
    """Goal: H6. Method: everything on a host is killed, slurmd too, and it does not come back in time."""
    place, output = cluster.folder / "lost", cluster.folder / "lost.log"
    command = _run(place, "wait", "--host-wait", "2s")
    script = f"srun --no-kill --kill-on-bad-exit=0 --ntasks-per-node=1 {command}"
    with cluster.job(script, "--no-kill", output=output, nodes=HOSTS):
        _await_life(cluster, place, 0, output)
        lost = cluster.compute[1]
        lost.kill_all()
        until(lambda: "the job waited 2 s for a host for host rank 1" in _said(output), lambda: _said(output))
        cluster.start_slurmd(lost)
    for host in cluster.compute:
        until(lambda host=host: not host.pids(PROGRAM.name), lambda host=host: str(host.processes()))  # type: ignore[misc]


def test_of_five_tasks_for_four_hosts_one_is_in_reserve_and_takes_over_and_nothing_runs_twice(
    cluster: SlurmCluster,
) -> None:
    """Goal: H2 and spares through join. Method: one host is killed, slurmd and all, and the fifth takes its rank; another is cut off beyond its lease,
    and three of four go on until it is back. Each rank holds a lock in the shared directory."""
    place, output = cluster.folder / "reserve", cluster.folder / "reserve.log"
    elastic = ["--nnodes", f"3:{WANTED}", "--sizes", f"3,{WANTED}", "--replace-within", "1s"]
    command = _run(place, "wait", *elastic, "--grow", "saved", "--restarts", "5")
    script = f"srun --no-kill --kill-on-bad-exit=0 --ntasks-per-node=1 {command}"
    with cluster.job(script, "--no-kill", output=output, nodes=STARTED):
        _await_life(cluster, place, 0, output, WANTED)
        lost, cut = cluster.compute[1:3]
        lost.kill_all()
        life = _await_life(cluster, place, 1, output, WANTED)
        cluster.start_slurmd(lost)
        cut.cut()
        _await_life(cluster, place, life + 1, output, 3)
        until(lambda: not cut.pids(PROGRAM.name, "wait", "python"), lambda: str(cut.processes()), 10.0)
        cut.join()
        # All have a rank again, once it has been there for a lease.
        _await_life(cluster, place, life + 2, output, WANTED)
        (place / "finish").touch()
        # Slurm itself waits for the task that it lost.
        for host in cluster.compute:
            until(lambda host=host: not host.pids("penstock-agent"), lambda host=host: str(host.processes()))  # type: ignore[misc]
    assert not list(place.glob("twice-*"))
