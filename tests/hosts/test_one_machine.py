"""Several hosts of a job on one machine, as people try it out on a laptop, without namespaces."""

import os
import subprocess
from pathlib import Path

from tests.hosts.job_of_hosts import KEY, PATIENCE_S, PENSTOCK
from tests.report.scrapes import free_port

PROGRAM = """
import os
print(*(os.environ[name] for name in ("RANK", "WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")))
"""


def test_two_hosts_on_one_machine_meet_at_a_port_that_only_one_of_them_can_have(tmp_path: Path) -> None:
    """Goal: torchrun's rendezvous for two terminals of one machine works here too. Method: the same command twice, without ranks of hosts."""
    (tmp_path / "key").write_text(KEY)
    (tmp_path / "key").chmod(0o600)
    (tmp_path / "program.py").write_text(PROGRAM)
    environment = {
        **os.environ,
        "PENSTOCK_HOME": str(tmp_path / "home"),
        "PENSTOCK_LOCAL": str(tmp_path / "local"),
        "PENSTOCK_KEY_FILE": str(tmp_path / "key"),
    }
    meeting = ["--nnodes", "2", "--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--rdzv-id", "laptop"]
    command = [*PENSTOCK, "run", *meeting, "--ranks", "2", "--zygote", "never", str(tmp_path / "program.py")]
    hosts = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    try:
        outputs = [host.communicate(timeout=2 * PATIENCE_S) for host in hosts]
    finally:
        for host in hosts:
            host.kill()
    assert [host.returncode for host in hosts] == [0, 0], outputs
    seen = sorted(line.split() for out, _ in outputs for line in out.splitlines())
    ranks = [words[-5:] for words in seen]
    assert [words[:3] for words in ranks] == [[str(rank), "4", str(rank // 2)] for rank in range(4)]
    assert len({tuple(words[3:]) for words in ranks}) == 1
