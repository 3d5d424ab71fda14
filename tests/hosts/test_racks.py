"""Racks: hosts of one stand together in the list, and voters stand in different ones (H2)."""

import json
from pathlib import Path

from tests.hosts.job_of_hosts import job_of_hosts, until

RACKS = ["b", "a", "b", "a", "c"]


def test_hosts_that_say_their_rack_stand_together_and_voters_stand_apart(tmp_path: Path) -> None:
    """Goal: item 3. Method: five hosts of three racks join in any order; one of a rack is lost, and one of that rack takes its place."""
    with job_of_hosts(tmp_path, 5, world=7) as job:
        options = {rack: ("--lease", "2s", "--rack", rack) for rack in "abc"}
        for index, rack in enumerate(RACKS):
            job.start(index, node_rank=None, options=options[rack])
        job.await_life(0, patience_s=60.0)

        def rows() -> list[dict[str, object]]:
            said = job.penstock(0, "hosts", "list", job.name(0), "--json").stdout
            return [json.loads(line) for line in said.splitlines()]

        until(lambda: len(rows()) == 5, job.account)
        before = rows()
        assert [row["rack"] for row in before] == ["a", "a", "b", "b", "c"]
        assert sorted(str(row["rack"]) for row in before if row["voter"]) == ["a", "b", "c"]
        # Two hosts wait; the one of the lost host's rack gets its place.
        for index, rack in ((5, "c"), (6, "a")):
            job.start(index, node_rank=None, options=options[rack])
        until(lambda: job.states(0).count("spare") == 2, job.account)
        job.lose(3)
        until(lambda: [row["name"] for row in rows()].index(job.host(6).name) < 5, job.account)
        assert [row["rack"] for row in rows()] == ["a", "a", "b", "b", "c", "c"]
        job.finish()
        assert job.codes(0, 1, 2, 4, 6) == [0] * 5
