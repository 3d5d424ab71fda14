"""Networks as they are on real clusters: only IPv6, and hosts that call themselves 127.0.1.1, as Debian sets them up."""

from pathlib import Path

from tests.hosts.job_of_hosts import PORT, JobOfHosts, job_of_hosts

#: Ranks that meet where they are told to, over the network.
MEETING = """
import os, socket, time
rank, place = int(os.environ["RANK"]), (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
family = socket.AF_INET6 if ":" in place[0] else socket.AF_INET
if rank == 0:
    with socket.create_server(place, family=family) as door:
        peer, _ = door.accept()
        peer.sendall(b"met")
else:
    until = time.monotonic() + 20
    while True:
        try:
            with socket.create_connection(place) as link:
                assert link.recv(3) == b"met"
                break
        except ConnectionRefusedError:
            assert time.monotonic() < until
            time.sleep(0.01)
print("met at", place[0], flush=True)
"""


def _meet(job: JobOfHosts, endpoint: str) -> None:
    """Both hosts run a rank, and the ranks meet."""
    program = job.folder / "meeting.py"
    program.write_text(MEETING)
    job.start(endpoint=endpoint, program=[str(program)])
    assert job.codes() == [0, 0], job.account()


def test_hosts_with_ipv6_alone_are_one_job(tmp_path: Path) -> None:
    with job_of_hosts(tmp_path, 2) as job:
        for index in range(2):
            job.host(index).run("ip", "-4", "addr", "flush", "dev", "eth0")
            added = job.host(index).run("ip", "addr", "add", f"fd00::{index + 1}/64", "dev", "eth0", "nodad")
            assert added.returncode == 0, added.stderr
        _meet(job, f"[fd00::1]:{PORT}")
        assert "met at fd00::1" in job.output(1)


def test_a_host_that_calls_itself_a_loopback_address_is_reached_at_its_real_one(tmp_path: Path) -> None:
    """Goal: Debian's /etc/hosts, in which a host's own name is 127.0.1.1, misleads nobody. Method: hosts know each other by such names."""
    with job_of_hosts(tmp_path, 2) as job:
        for index in range(2):
            host, other = job.host(index), job.host(1 - index)
            lines = f"127.0.0.1 localhost\\n127.0.1.1 {host.name}\\n{other.address} {other.name}\\n"
            made = host.run("sh", "-c", f"printf '{lines}' > /tmp/etc; mount --bind /tmp/etc /etc/hosts")
            assert made.returncode == 0, made.stderr
        _meet(job, f"{job.host(0).name}:{PORT}")
        assert f"met at {job.host(0).address}" in job.output(1)


def test_hosts_with_a_second_interface_meet_on_the_one_that_leads_there(tmp_path: Path) -> None:
    """Goal: a network for administration, which has the default route and the host's own name, misleads nobody. Method: each host has
    one that leads nowhere; the endpoint is written in large letters, with a dot at its end."""
    with job_of_hosts(tmp_path, 2) as job:
        for index in range(2):
            host = job.host(index)
            names = "".join(f"{job.host(other).address} {job.host(other).name}-data\\n" for other in range(2))
            lines = f"127.0.0.1 localhost\\n192.168.99.{index + 1} {host.name}\\n{names}"
            script = (
                "ip link add admin0 type veth peer name admin1 && ip link set admin0 up && ip link set admin1 up"
                f" && ip addr add 192.168.99.{index + 1}/24 dev admin0 && ip route add default dev admin0"
                f" && printf '{lines}' > /tmp/etc && mount --bind /tmp/etc /etc/hosts"
            )
            made = host.run("sh", "-c", script)
            assert made.returncode == 0, made.stderr
        _meet(job, f"{job.host(0).name.upper()}-DATA.:{PORT}")
        assert f"met at {job.host(0).address}" in job.output(1)


def test_two_hosts_on_one_machine_meet_at_its_loopback_address_of_ipv6(tmp_path: Path) -> None:
    """Goal: [::1] is an endpoint like any other. Method: the same command twice, on one machine."""
    with job_of_hosts(tmp_path, 1) as job:
        program = tmp_path / "meeting.py"
        program.write_text(MEETING)
        for index in range(2):
            words = job.words(0, nnodes=2, node_rank=None, endpoint=f"[::1]:{PORT}", program=[str(program)])
            output = tmp_path / f"output-{index}"
            job.launchers[index] = job.host(0).start(words, output=output, variables=job.variables())
        assert job.codes(0, 1) == [0, 0], [job.output(index) for index in range(2)]
        assert "met at ::1" in job.output(1)
