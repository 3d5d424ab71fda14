"""What a launcher sends to a host, and the program that receives it there: ``python -m penstock.process.hosts.bundle AGENT``.

Launcher and host speak in lines of JSON over standard input and output of a login. The host says that it is here, with its addresses; the
launcher answers with the bundle: description of the job, ``host.json``, the job's secret. From then on the host's output is the
ranks', and the launcher sends pings, signals and in the end a goodbye. So secrets are in no argument and in no environment, and a
broken connection (silence) differs from a launcher that has ended (goodbye).
"""

import hashlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import msgspec

from penstock.errors.process import AgentUnusable, BundleInvalid
from penstock.errors.root import PenstockError
from penstock.process.exclusion.entry import entry_look, history_place, recent_failures, to_builtins
from penstock.process.exclusion.history import open_history
from penstock.process.hosts import addresses
from penstock.process.hosts.host_directory import HostFile, HostPlace, furnish_host, versions
from penstock.process.hosts.host_end import (
    adopt_orphans,
    ask_leader,
    end_line,
    has_ended_untold,
    tell_leader,
    wanted_line,
)
from penstock.process.hosts.launcher.attachment import is_kept, note_launcher
from penstock.process.hosts.line_channel import LineChannel
from penstock.process.hosts.output_pump import OutputPump
from penstock.process.hosts.ssh.ssh_login import CHECK
from penstock.process.job.local_home import local_home
from penstock.store.home import penstock_home

VERSION = 1
#: A launcher that does not send a bundle within this has forgotten us.
BUNDLE_PATIENCE_S = 900.0
#: After so long without a ping the connection is taken for broken: output is dropped instead of waited for.
SILENCE_S = 30.0
#: From the request to stop to the kill, when the launcher was not heard of for too long.
STOP_PATIENCE_S = 60.0
#: For the last output of a launcher that has ended, when nobody takes it.
LAST_WORDS_S = 5.0
#: For an agent to say how it is used.
TRIAL_S = 30.0
#: Lines that wait to be sent, and names in one question to the leader.
SAID_MAX, TRIED_MAX = 16, 64
#: Signals that a launcher may pass on.
SIGNALS = {"INT": signal.SIGINT, "TERM": signal.SIGTERM, "HUP": signal.SIGHUP, "QUIT": signal.SIGQUIT}


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """A job for one host."""

    description: dict[str, Any]
    host: HostFile
    secret: str
    detach_after_s: float

    def to_json(self) -> dict[str, Any]:
        """As it travels."""
        return {
            "bundle": {
                "version": VERSION,
                "description": self.description,
                "host": self.host.to_json(),
                "secret": self.secret,
                "detach_after_s": self.detach_after_s,
            }
        }

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> "Bundle":
        """What was received, checked."""
        body = message.get("bundle")
        if not isinstance(body, dict) or body.get("version") != VERSION:
            raise BundleInvalid(reason=f"version {VERSION} of a bundle is expected")
        known = {field.name for field in fields(HostFile)}
        try:
            host = HostFile(**{key: value for key, value in body["host"].items() if key in known})
            secret = bytes.fromhex(body["secret"])
            bundle = cls(
                description=dict(body["description"]),
                host=host,
                secret=body["secret"],
                detach_after_s=float(body["detach_after_s"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as problem:
            raise BundleInvalid(reason=f"a field is missing or wrong ({problem})") from problem
        if len(secret) != 32 or not isinstance(bundle.description.get("id"), str):
            raise BundleInvalid(reason="secret or id is wrong")
        return bundle


def greeting(environment: Mapping[str, str], *, checks: bool = False) -> dict[str, Any]:
    """What a host says first: where it can be reached. The address that the login came to is one that works."""
    own = addresses.own_addresses()
    login = environment.get("SSH_CONNECTION", "").split()
    address = login[2] if len(login) == 4 else addresses.outward_address(own)
    return {
        "penstock": "here",
        "name": os.uname().nodename,
        "address": address,
        "interfaces": own,
        "port": addresses.free_port(address),
        "versions": versions(),
        "machine": _machine(),
        "entry": _entry(environment, checks=checks),
    }


def _entry(environment: Mapping[str, str], *, checks: bool) -> dict[str, Any]:
    """Who this host is, what it shows, and what its home remembers of others: the launcher may have another home."""
    look = entry_look(environment, looks=checks)
    history = open_history(penstock_home(), history_place(None, environment))
    return to_builtins(msgspec.structs.replace(look, passed=recent_failures(history)))


def _machine() -> str:
    """What two logins to one host have in common, and two hosts never: its start, its name, and its processes' numbers."""
    try:
        start = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{start} {os.uname().nodename} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


class Receiver:
    """Stands between the login and the launcher of this host: passes output back and signals on."""

    def __init__(
        self, channel: LineChannel, child: "subprocess.Popen[bytes]", directory: Path, bundle: Bundle
    ) -> None:
        self._channel, self._child, self._bundle = channel, child, bundle
        self._detach_after_s = bundle.detach_after_s
        #: Lines for the launcher, from threads that asked the job's leader; and what wakes us for them.
        self._said: deque[bytes] = deque(maxlen=SAID_MAX)
        self._woken, self._wake = os.pipe()
        self._directory = directory
        assert child.stdout is not None
        assert child.stderr is not None
        self._pumps = [OutputPump(child.stdout.fileno(), 1), OutputPump(child.stderr.fileno(), 2)]
        self._heard = time.monotonic()
        #: When somebody who attached still wanted it.
        self._kept = self._heard
        self._is_unattended = False
        self._asked_at: float | None = None

    def run(self) -> int:
        """Until the launcher here has ended; its exit code."""
        end = os.pidfd_open(self._child.pid)
        ended_at: float | None = None
        try:
            while True:
                self._turn(end)
                if self._child.poll() is None:
                    continue
                ended_at = ended_at or time.monotonic()
                late = time.monotonic() - ended_at > LAST_WORDS_S
                if late or all(pump.is_done for pump in self._pumps):
                    code = self._child.returncode
                    return 128 - code if code < 0 else code
        finally:
            os.close(end)

    def _turn(self, end: int) -> None:
        silent = self._channel.is_closed or time.monotonic() - self._heard > SILENCE_S
        reads = [self._woken] if self._channel.is_closed else [self._woken, self._channel.number]
        reads += [] if self._child.poll() is not None else [end]
        writes: list[int] = []
        for pump in self._pumps:
            pump.drops = silent
            reads += pump.reads
            writes += pump.writes
        readable, writable, _ = select.select(reads, writes, [], 1.0)
        if self._woken in readable:
            os.read(self._woken, 64)
        while self._said:
            self._pumps[0].interject(self._said.popleft())
        for pump in self._pumps:
            pump.turn(readable, writable)
        if self._channel.number in readable:
            for message in self._channel.lines():
                self._obey(message)
        self._look_for_silence()

    def _obey(self, message: Mapping[str, Any]) -> None:
        self._heard = time.monotonic()
        number = SIGNALS.get(str(message.get("signal")))
        if number is not None:
            self._child.send_signal(number)
        ended = message.get("ended")
        if isinstance(ended, dict):
            tell_leader(self._directory, str(ended.get("host")), str(ended.get("by")))
        wanted = message.get("wanted")
        if isinstance(wanted, dict):
            self._ask(wanted)
        if message.get("goodbye") == "killed":
            # As if the launcher here had been killed: the agent ends all ranks at once.
            self._child.kill()

    def _ask(self, wanted: Mapping[str, Any]) -> None:
        """Ask the job's leader which hosts it wants, for the launcher."""
        secret, host, number = self._bundle.secret, self._bundle.host.host, int(wanted.get("number", 0))

        def answer(rows: list[dict[str, Any]] | None) -> None:
            self._said.append(wanted_line(secret, host, number, rows))
            os.write(self._wake, b"!")

        tried = [
            {"name": str(one.get("name")), "why": str(one.get("why"))}
            for one in list(wanted.get("tried") or [])[:TRIED_MAX]
            if isinstance(one, dict)
        ]
        ask_leader(self._directory, tried, answer)

    def _look_for_silence(self) -> None:
        now = time.monotonic()
        patience_s = min(SILENCE_S, self._detach_after_s / 2)
        unattended = self._channel.is_closed or now - self._heard > patience_s
        if unattended != self._is_unattended:
            self._is_unattended = unattended
            note_launcher(self._directory, is_heard=not unattended)
        if unattended and is_kept(self._directory, time.time()):
            self._kept = now
        self._end_if_forgotten(max(self._heard, self._kept), now)

    def _end_if_forgotten(self, heard: float, now: float) -> None:
        if self._asked_at is None and now - heard > self._detach_after_s:
            self._asked_at = now
            self._child.terminate()
        elif self._asked_at is not None and now - self._asked_at > STOP_PATIENCE_S:
            self._child.kill()


def receive(agent: Path, environment: Mapping[str, str], *, checks: bool = False) -> int:
    """Say that we are here, take a bundle, run it."""
    channel = LineChannel(0)
    _say(greeting(environment, checks=checks))
    message = channel.wait_line(BUNDLE_PATIENCE_S)
    if message is None or "goodbye" in message:
        return 0
    bundle = Bundle.of(message)
    folder = Path(bundle.description.get("directory", "/"))
    if not bundle.host.ships and not folder.is_dir():
        raise BundleInvalid(reason=f"the directory {folder} is not on this host")
    place = HostPlace(home=penstock_home(), local=local_home(environment))
    directory = furnish_host(place, bundle.description, bundle.host, bytes.fromhex(bundle.secret))
    adopt_orphans()
    child = subprocess.Popen(
        [str(agent), "launch", str(directory)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    code = Receiver(channel, child, directory, bundle).run()
    if not bundle.description.get("detached") and has_ended_untold(directory):
        os.set_blocking(1, True)
        os.write(1, end_line(bundle.secret, bundle.host.host))
    return code


def check_agent(agent: Path) -> None:
    """A copy that was cut short or changed is removed; its folder is called by its digest. And it has to run here."""
    digest = agent.parent.name
    if hashlib.sha256(agent.read_bytes()).hexdigest() != digest:
        agent.unlink(missing_ok=True)
        raise BundleInvalid(reason=f"the copy of the agent in {agent} is damaged; it is removed")
    try:
        # Without a word it says how it is used; a system that is too old for it says so before it begins.
        tried = subprocess.run([str(agent)], capture_output=True, text=True, timeout=TRIAL_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise AgentUnusable(agent=agent, reason=str(problem)) from problem
    if not tried.stderr.startswith("error: usage:"):
        lines = tried.stderr.strip().splitlines() or [f"it ended with code {tried.returncode}"]
        raise AgentUnusable(agent=agent, reason=lines[0])


def _say(message: Mapping[str, Any]) -> None:
    os.write(1, json.dumps(message).encode() + b"\n")


def main(words: list[str]) -> int:
    """The program."""
    agent = Path(words[0])
    try:
        check_agent(agent)
        return receive(agent, os.environ, checks=CHECK in words[1:])
    except PenstockError as problem:
        hint = f"hint: {problem.hint}\n" if problem.hint else ""
        sys.stderr.write(f"{hint}error: {problem}\n")
        return problem.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
