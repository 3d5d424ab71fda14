"""What people see of a real job on three hosts while one of them is cut off: the table, the terminal, and the page in a real Chromium."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import pytest
from playwright.sync_api import expect

from tests.hosts.job_of_hosts import PENSTOCK, JobOfHosts, job_of_hosts, until
from tests.view.browsing import chromium, watching
from tests.view.terminals import Terminal

pytestmark = pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("ip"), reason="needs root and iproute2")
HOSTS, RANKS = 3, 2
COLUMNS, LINES = 80, 24


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JobOfHosts]:
    """Ranks that run until they are told; the lease is longer than any cut of these tests."""
    folder = tmp_path_factory.mktemp("screens")
    with job_of_hosts(folder, HOSTS, ranks=RANKS, options=("--lease", "20s")) as job:
        for index in range(HOSTS):
            job.start(index, variables={"PENSTOCK_RACK": "ab"[index % 2]})
        job.await_life(0)
        until(lambda: job.states(0) == ["here"] * HOSTS, job.account)
        yield job


class Cut:
    """A host that is cut off for a while."""

    def __init__(self, job: JobOfHosts, index: int) -> None:
        self._job, self._index = job, index

    def __enter__(self) -> Self:
        self._job.host(self._index).cut()
        return self

    def __exit__(self, *_: object) -> None:
        self._job.host(self._index).join()
        until(lambda: self._job.states(0) == ["here"] * HOSTS, self._job.account)


def _follower(job: JobOfHosts) -> int:
    """The last host that does not lead."""
    return next(index for index in reversed(range(HOSTS)) if index != job.leader(0))


def test_hosts_says_state_lease_lateness_and_part_in_eighty_columns(job: JobOfHosts) -> None:
    """Method: on a host that does not lead, while all are here and while one is cut off; --json has the same and more."""
    away, asked = _follower(job), job.leader(0) or 0
    done = job.penstock(away, "hosts", job.name(away))
    assert done.returncode == 0, done.stderr
    heads, _, *rows = done.stdout.splitlines()
    assert heads.split() == ["host", "state", "for", "ranks", "lease", "part", "rack"]
    assert len(rows) == HOSTS
    assert all(len(line) <= COLUMNS for line in done.stdout.splitlines())
    assert sorted(row.split()[-2] for row in rows) == ["leads", "votes", "votes"]
    assert f"{HOSTS} hosts here · term" in done.stderr
    with Cut(job, away):
        until(lambda: "unheard" in job.states(asked), job.account)
        document = json.loads(job.penstock(asked, "hosts", "--json").stdout)
        (host,) = [host for host in document["hosts"] if host["state"] == "unheard"]
        assert host["name"] == job.host(away).name
        assert host["late_beats"] >= 1.5
        assert 0 < host["lease_left_s"] < 21
        assert [host["leader"] for host in document["hosts"]].count(True) == 1
        assert all(host["late_beats"] == 0 for host in document["hosts"] if host["leader"])
        plain = job.penstock(asked, "top", job.name(asked)).stdout
        assert f"unheard: {job.host(away).name}" in plain


class OtherLeader(Cut):
    """The host that leads is cut off for a while, so that another leads. No rank notices: the lease is longer."""

    def __init__(self, job: JobOfHosts, asked: int) -> None:
        self.before, self._asked = job.leader(asked), asked
        assert self.before is not None
        super().__init__(job, self.before)

    @property
    def name(self) -> str:
        """The host that led."""
        return self._job.host(self.before or 0).name

    def await_leader(self) -> None:
        """Wait until another leads; on a busy machine yet another may lead soon after."""
        until(lambda: self._job.leader(self._asked) not in (None, self.before), self._job.account)


@contextmanager
def _terminal(job: JobOfHosts, index: int, *words: str) -> Iterator[Terminal]:
    """A command on a real terminal of one host."""
    host = job.host(index)
    variables = {**host.variables(job.variables()), "TERM": "xterm-256color", "NO_COLOR": "1"}
    for name in ("COLUMNS", "LINES"):
        variables.pop(name, None)
    command = [*host.entered(), *PENSTOCK, *words]
    with Terminal(command, columns=COLUMNS, rows=LINES, env=variables) as terminal:
        yield terminal


def _await(terminal: Terminal, pattern: str) -> None:
    shown = re.compile(pattern)
    terminal.wait_until(lambda: any(shown.search(line) for line in terminal.lines))


def test_top_shows_a_cell_for_each_host_opens_one_and_goes_on_when_a_host_is_unheard(job: JobOfHosts) -> None:
    """Method: a terminal of 80 x 24 without colours: the map, a cut host, its details, and its ranks when it is back."""
    away, here = _follower(job), job.leader(0) or 0
    with _terminal(job, here, "top", job.name(here), "--every", "0.2") as terminal:
        _await(terminal, r"3 hosts here")
        _await(terminal, r"^a\s+\.\.\s*$")
        with Cut(job, away):
            _await(terminal, rf"unheard: {job.host(away).name}")
            _await(terminal, r"\? unheard 1")
            terminal.press("w")
            _await(
                terminal,
                rf"▸ {job.host(away).name}  unheard for \d+ s · ranks \d-\d · lease \d+ s · \d+ heartbeats? late",
            )
        _await(terminal, r"3 hosts here")
        terminal.press("\r")
        _await(terminal, r"worker +state +step +phase +cpu % +memory")
        _await(terminal, rf"rank-{RANKS * away} ")
        terminal.press("\x1b")
        _await(terminal, r"arrows choose")
        terminal.press("q")
        assert terminal.wait_for_end() == 0


def test_top_goes_on_while_another_host_begins_to_lead(job: JobOfHosts) -> None:
    """Method: on a host that does not lead; the leader loses its cable, another leads, and the first one comes back."""
    here = _follower(job)
    with _terminal(job, here, "top", job.name(here), "--every", "0.2") as terminal:
        _await(terminal, r"3 hosts here")
        with OtherLeader(job, here) as change:
            _await(terminal, rf"leads (?!nobody|{change.name}\b)")
            _await(terminal, rf"unheard: {change.name}")
        _await(terminal, r"3 hosts here")
        _await(terminal, r"leads (?!nobody)")
        terminal.press("q")
        assert terminal.wait_for_end() == 0
    assert job.lives() == [0] * (HOSTS * RANKS)


QUESTIONS = {
    "ps": ("ps", "--by", "host"),
    "hosts": ("hosts",),
    "events": ("events",),
    "stacks": ("stacks", "--patience", "20"),
    "exec": ("exec", "--patience", "20", "--where", "here", "--", "true"),
    "logs": ("logs", "--patience", "20", "--grep", "."),
}


def test_every_question_is_answered_while_another_host_begins_to_lead(job: JobOfHosts) -> None:
    """Goal: a question needs no luck. Method: all are asked at once on a host that does not lead, when the leader has just lost its cable."""
    here = _follower(job)
    with OtherLeader(job, here) as change:
        asked = {}
        for name, (command, *words) in QUESTIONS.items():
            output = job.folder / f"answer-{name}"
            talk = [*PENSTOCK, command, job.name(here), *words]
            asked[name] = job.host(here).start(talk, output=output, variables=job.variables()), output
        ended = {name: talk.wait(timeout=60) for name, (talk, _) in asked.items()}
        said = {name: output.read_text() for name, (_, output) in asked.items()}
    for name, text in said.items():
        assert "Traceback" not in text, text
        assert ended[name] in (0, 1), text
    # Those with a patience wait for the next leader, and say who of the hosts is not heard.
    for name in ("stacks", "exec", "logs"):
        assert f"2 of 3 hosts · unheard: {change.name}" in said[name] or "2 of 2 hosts" in said[name], said[
            name
        ]


def test_the_page_moves_by_itself_when_a_host_is_cut_off_and_comes_back(
    job: JobOfHosts, chromium_path: str, tmp_path: Path
) -> None:
    """Goal: a change visible < 1 s after the leader says it, as deltas, under a prefix. Method: a server on a host, whose socket a browser reaches."""
    away, here = _follower(job), job.leader(0) or 0
    host = job.host(here)
    # All of the host but its network, so that a browser of this machine reaches the port.
    enter = [word for word in host.entered() if word != "--net"]
    words = ["web", "--port", "0", "--no-open", "--json", "--prefix", "/user/ada/proxy"]
    with subprocess.Popen(
        [*enter, sys.executable, "-m", "penstock.cli.main", *words],
        stdout=subprocess.PIPE,
        text=True,
        env=host.variables(job.variables()),
        cwd=job.folder,
    ) as server:
        try:
            assert server.stdout is not None
            url = json.loads(server.stdout.readline())["url"]
            with chromium(chromium_path) as browser, watching(browser, url) as watched:
                page = watched.open("#/hosts")
                page.get_by_role("link", name=job.name(here)).click()
                expect(page.locator(".host-legend")).to_contain_text("here 3")
                expect(page.locator(".host-deciders")).to_contain_text(job.host(here).name)
                boards = [asked for asked in watched.asked if "hosts/board" in asked]
                with Cut(job, away):
                    expect(page.locator(".host-legend")).to_contain_text("unheard 1")
                    expect(page.locator(".host-troubled li")).to_contain_text(
                        f"{job.host(away).name} unheard"
                    )
                    expect(page.locator(".host-events")).to_contain_text(f"{job.host(away).name} (rack")
                expect(page.locator(".host-legend")).to_contain_text("here 3")
                with OtherLeader(job, away) as change:
                    # Whoever leads and is alone says so; the page goes on when the host hears the others again.
                    change.await_leader()
                others = re.compile(rf"^(?!nobody$|{change.name}$)")
                expect(page.locator(".host-deciders dd").nth(1)).to_have_text(others)
                expect(page.locator(".host-legend")).to_contain_text("here 3")
                page.locator(".host-map canvas").focus()
                page.keyboard.press("Home")
                page.keyboard.press("Enter")
                expect(page.locator(".host-detail")).to_contain_text("rank-0")
                # Only what moved has travelled.
                assert [asked for asked in watched.asked if "hosts/board" in asked] == boards
        finally:
            server.kill()
