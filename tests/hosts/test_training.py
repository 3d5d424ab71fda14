"""Training over hosts: a host that was cut off in mid-run leaves no trace in the parameters, and torchrun's scripts run unchanged."""

from pathlib import Path

from penstock.run.journal import step_records as records
from tests.conftest import ROOT
from tests.hosts.job_of_hosts import job_of_hosts, until
from tests.hosts.train_on_hosts import STEPS
from tests.run.comparing import first_difference
from tests.torch.stream import make_stream

#: A script as torchrun's users have it.
ALL_REDUCE = """
import torch
from torch import distributed
distributed.init_process_group("gloo")
rank = distributed.get_rank()
total = torch.tensor([float(rank + 1)])
distributed.all_reduce(total)
print(f"rank {rank} of {distributed.get_world_size()}: {total.item()}", flush=True)
distributed.destroy_process_group()
"""


def test_a_script_for_torchrun_runs_on_two_hosts_with_one_word_changed(tmp_path: Path) -> None:
    script = tmp_path / "all_reduce.py"
    script.write_text(ALL_REDUCE)
    with job_of_hosts(tmp_path, 2, ranks=2) as job:
        job.start(program=[str(script)])
        assert job.codes() == [0, 0], job.account()
        said = job.output(0) + job.output(1)
        assert all(f"rank {rank} of 4: 10.0" in said for rank in range(4)), said
        job.assert_nothing_left()


def test_a_host_cut_off_in_mid_run_and_back_leaves_bit_equal_parameters(tmp_path: Path) -> None:
    """Goal: R1 over hosts. Method: two hosts train; once the second is cut off beyond its lease after a checkpoint."""
    (tmp_path / "stream").mkdir()
    make_stream(tmp_path / "stream")
    mark = tmp_path / "waits"
    for name, words in (("whole", []), ("cut", [str(mark)])):
        with job_of_hosts(tmp_path, 2) as job:
            job.path = (ROOT,)
            job.start(
                program=[
                    "-m",
                    "tests.hosts.train_on_hosts",
                    str(tmp_path / "stream"),
                    str(tmp_path / name),
                    *words,
                ]
            )
            if words:
                until(mark.exists, job.account)
                job.host(1).cut()
                until(lambda: job.states(0) == ["here", "expired"], job.account)
                job.host(1).join()
            assert job.codes() == [0, 0], job.account()
    assert list(records.read(tmp_path / "cut")) == list(range(STEPS))
    assert first_difference(tmp_path / "whole", tmp_path / "cut") == ""
