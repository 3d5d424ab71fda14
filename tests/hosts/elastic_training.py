"""A training run over hosts that goes on with half of them and has all again, looked at afterwards: for tests and benchmarks."""

from pathlib import Path

from penstock.run.journal import step_records as records
from tests.conftest import ROOT
from tests.hosts.job_of_hosts import job_of_hosts, until
from tests.hosts.train_with_sizes import STEPS
from tests.torch.stream import make_stream

#: Three lives that load torch, of a machine that does other things as well.
TRAINING_S = 240.0
OPTIONS = ("--lease", "3s", "--replace-within", "1s", "--grow", "saved")


def shrink_and_grow(folder: Path, kind: str, hosts: int) -> None:
    """All train; half of them are lost for a while; every global batch is what it would have been (L1), and each step is there once."""
    nnodes, lost = f"{hosts // 2}:{hosts}", range(1, hosts, 2)
    (folder / "stream").mkdir()
    stream = make_stream(folder / "stream")
    program = [
        "-m",
        "tests.hosts.train_with_sizes",
        kind,
        str(folder / "stream"),
        str(folder / "run"),
        str(folder),
    ]
    with job_of_hosts(folder, hosts, options=OPTIONS) as job:
        job.path = (ROOT,)
        job.start(nnodes=nnodes, program=program)
        until((folder / "waits").exists, job.account, TRAINING_S)
        for index in lost:
            job.lose(index)
        until((folder / "small").exists, job.account, TRAINING_S)
        for index in lost:
            job.start(index, nnodes=nnodes, node_rank=None, program=program)

        def story() -> str:
            return job.penstock(0, "events", job.name(0)).stdout

        until(lambda: "asked to save and leave" in story(), job.account, TRAINING_S)
        (folder / "asked").touch()
        assert job.codes(patience_s=TRAINING_S) == [0] * hosts, job.account()
    worlds = [(folder / f"world-{life}").read_text() for life in range(3)]
    assert worlds == [str(hosts), str(hosts // 2), str(hosts)], worlds
    trained = records.read(folder / "run")
    assert list(trained) == list(range(STEPS))
    expected = [batch.digest for batch in stream.batches(STEPS)]
    assert [trained[step].batch for step in trained] == expected
