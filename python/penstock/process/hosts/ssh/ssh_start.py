"""Hosts started by ssh from one launcher: logins, bundles, output back, signals forth, and a goodbye whatever happens.

The job begins when all hosts are here, or enough of them; those that are missing, and others in place of lost ones, come later
(``ssh_again``).
"""

import os
import resource
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType
from typing import Any

from penstock.errors.process import HostsMissing
from penstock.process.hosts.bundle import SIGNALS, Bundle
from penstock.process.hosts.host_end import OWN_WORDS, end_line, wanted_rows
from penstock.process.hosts.launcher.equal_lines import EqualLines
from penstock.process.hosts.ssh.farewell import DONE, MORE
from penstock.process.hosts.ssh.ssh_again import LoginsAgain
from penstock.process.hosts.ssh.ssh_login import SSH_TROUBLE, Login, Shipment
from penstock.process.hosts.starter import BundleMaker, HostGreeting

LOGINS_MAX = 64
PING_S = 5.0
#: Between words about hosts that are waited for.
NEWS_S = 10.0
DESCRIPTORS_SPARE = 64
#: What a host says that cannot take a job.
REFUSALS = (b"error: ", b"hint: ")
#: Between two looks at what may have to be done.
TURN_S = 1.0
#: What a host is told that takes no part.
DISMISSED = "done"
#: Hosts that are told of the end of another; each tells the leader.
TOLD_MAX = 3
#: For the other hosts to answer as well, once one has failed: all troubles in one message.
OTHERS_S = 10.0
#: For spares to answer, once all others are here.
SPARES_S = 10.0
#: For hosts to end after one has ended with the job; who has not by then cannot be reached, and ends by its lease.
END_S = 120.0


@dataclass(frozen=True)
class SshLimits:
    """How long a launcher waits."""

    #: For hosts to be there.
    host_wait_s: float = 600.0
    #: That a host forgives a broken connection, for sentences about it.
    detach_after_s: float = 300.0
    #: How many hosts are enough to begin, and how many the job wants; all of those that are named, unless somebody says otherwise.
    least: int | None = None
    most: int | None = None
    #: For the rest of them, once enough are here.
    late_s: float = 600.0
    #: Whether the launcher stays with the job, and logs in to hosts that are wanted later.
    stays: bool = True


class SshStarter:
    """Keeps ``HostStarter`` by the system's ssh."""

    def __init__(
        self,
        hosts: Sequence[str],
        shipment: Shipment,
        limits: SshLimits,
        tell: Callable[[str], None],
        equal_lines: EqualLines | None = None,
    ) -> None:
        self._hosts, self._shipment, self._limits, self._tell = list(hosts), shipment, limits, tell
        #: Where lines of hosts wait for others like them; nothing where each is shown as it comes.
        self._equal_lines = equal_lines
        self._logins: dict[str, Login] = {}
        self._selector = selectors.DefaultSelector()
        self._signals: deque[int] = deque(maxlen=16)
        self._codes: list[int] = []
        self._lost_codes: list[int] = []
        #: What each host got.
        self._bundles: dict[str, Bundle] = {}
        #: Hosts that were not here at the start, and why; and those that ended before the job did.
        self._absent: dict[str, str] = {}
        self._lost: set[str] = set()
        #: Why hosts that came later did not take part.
        self._refusals: dict[str, str] = {}
        self._lifeline: socket.socket | None = None
        self._begun = False
        self._again: LoginsAgain | None = None
        #: When a host ended last.
        self._ended_s: float | None = None

    def start(self, bundles: BundleMaker) -> None:
        """Log in everywhere, wait until all hosts are there, or enough, and give each its bundle."""
        _allow_descriptors(3 * len(self._hosts) + DESCRIPTORS_SPARE)
        self._catch_signals()
        try:
            self._log_in()
            self._leave_out(bundles)
            here = [host for host in self._hosts if host in self._logins]
            greetings = self._greetings()
            parcels = bundles.first(greetings)
            assert len(parcels) == len(here), "one bundle for each host"
            self._stand_by()
            self._begun = True
            for host, bundle in zip(here, parcels, strict=True):
                self.give(host, bundle)
            if not self._limits.stays:
                return
            self._again = LoginsAgain(self._hosts, bundles, self._tell)
            for host, why in self._absent.items():
                self._again.note_absent(host, why)
        except BaseException:
            self.release()
            raise

    def _greetings(self) -> list[HostGreeting]:
        here = [host for host in self._hosts if host in self._logins]
        return [HostGreeting.of(host, self._logins[host].greeting or {}) for host in here]

    def _leave_out(self, bundles: BundleMaker) -> None:
        """Hosts that are here and may take no part are let go; whether enough are left is as if they had not come."""
        left_out = bundles.left_out(self._greetings())
        for host, why in left_out.items():
            self._logins[host].send({"goodbye": DISMISSED})
            self._absent[host] = why
            self._tell(f"note: {host} takes no part: {why}")
            self.drop(host)
        if left_out and len(self._absent) > len(self._hosts) - (self._limits.least or len(self._hosts)):
            problem = HostsMissing(asked=len(self._hosts), here=len(self._logins), problems=self._absent)
            problem.hint = "--spare-hosts N, or --nnodes MIN:MAX, lets a job begin without some of its hosts"
            raise problem

    def watch(self) -> int:
        """Until all hosts have ended."""
        ping_at = time.monotonic()
        while self._logins:
            if time.monotonic() >= ping_at:
                ping_at = time.monotonic() + PING_S
                self._send_all({"ping": 1})
            due_s = ping_at
            if self._again is not None:
                self._again.keep(self)
                due_s = min(due_s, self._again.due_s())
            if self._equal_lines is not None and self._equal_lines.due_s is not None:
                due_s = min(due_s, self._equal_lines.due_s)
            self._turn(min(max(due_s - time.monotonic(), 0.0), TURN_S), self._pass_on)
            self._show_equal_lines()
            self._pass_signals()
            for host in [host for host, login in self._logins.items() if login.is_over]:
                self._end(host)
            self._give_up_silent()
        self._show_equal_lines(all_=True)
        return self._code()

    def _code(self) -> int:
        """How the job ended."""
        # Hosts that were lost on the way have ended as they could; those that were there at the end say how the job did.
        if self._codes and self._limits.stays:
            return self._codes[-1]
        codes = self._codes or self._lost_codes
        return next((code for code in codes if code), 0 if codes else 1)

    def release(self) -> None:
        """Tell hosts that still run that their launcher has ended."""
        self._send_all({"goodbye": "killed" if self._begun else "done"})
        until = time.monotonic() + 2.0
        while any(login.wants_to_write for login in self._logins.values()) and time.monotonic() < until:
            self._turn(0.05, lambda _login, _number: None)
        self._show_equal_lines(all_=True)
        for login in self._logins.values():
            login.close()
        if self._lifeline is not None:
            with suppress(OSError):
                self._lifeline.send(DONE)
            self._lifeline.close()
            self._lifeline = None
        self._logins.clear()

    @property
    def logins(self) -> Mapping[str, Login]:
        """Those that there are, by name."""
        return self._logins

    def open(self, host: str) -> None:
        """Begin to log in."""
        try:
            login = Login(host, self._shipment)
        except FileNotFoundError:
            raise HostsMissing(
                asked=len(self._hosts), here=0, problems={host: "this machine has no program called ssh"}
            ) from None
        self._logins[host] = login
        for number in (login.out, login.err):
            self._selector.register(number, selectors.EVENT_READ, (login, number))

    def give(self, host: str, bundle: Bundle) -> None:
        """Send a host its bundle; what it says from now on is the ranks'."""
        login = self._logins[host]
        self._bundles[host] = bundle
        if self._again is not None and self._lifeline is not None:
            with suppress(OSError):
                socket.send_fds(self._lifeline, [MORE], [login.sink, login.out, login.err])
        login.send(bundle.to_json())

    def drop(self, host: str) -> None:
        """End a login whatever it does."""
        login = self._logins.pop(host)
        for number in login.open:
            self._selector.unregister(number)
        login.end()

    def _log_in(self) -> None:
        waiting = deque(self._hosts)
        begun_s = news_s = time.monotonic()
        failed_s: float | None = None
        enough_s: float | None = None
        allowed = len(self._hosts) - (self._limits.least or len(self._hosts))
        while True:
            silent = [host for host, login in self._logins.items() if login.greeting is None]
            hopeless = len(self._absent) > allowed
            while waiting and len(silent) < LOGINS_MAX and not hopeless:
                host = waiting.popleft()
                self.open(host)
                silent.append(host)
            if not silent:
                break
            now = time.monotonic()
            failed_s = (failed_s or now) if hopeless else None
            here = len(self._logins) - len(silent)
            enough_s = (enough_s or now) if here >= len(self._hosts) - allowed and not waiting else None
            late = failed_s is not None and now - failed_s > OTHERS_S
            late = late or (enough_s is not None and now - enough_s > self._late_s(here))
            if late or now - begun_s > self._limits.host_wait_s:
                for host in silent:
                    self._absent[host] = self._logins[host].trouble()
                    self.drop(host)
                break
            if now - news_s > NEWS_S:
                news_s = now
                self._tell(self._news(silent))
            self._turn(0.2, self._pass_on)
            if self._signals:
                raise KeyboardInterrupt
            for host in [host for host in silent if self._logins[host].is_over]:
                login = self._logins.pop(host)
                if login.greeting is None:
                    self._absent[host] = login.trouble()
                login.close()
        # Those that were not asked yet are not here either; their own words would only hide the first.
        if len(self._absent) > allowed or waiting:
            raise HostsMissing(asked=len(self._hosts), here=len(self._logins), problems=self._absent)
        if self._absent:
            words = HostsMissing(asked=len(self._hosts), here=len(self._logins), problems=self._absent)
            self._tell(f"note: {words}; the job begins without")

    def _late_s(self, here: int) -> float:
        """How long hosts are waited for that may be missing."""
        return SPARES_S if here >= (self._limits.most or len(self._hosts)) else self._limits.late_s

    def _news(self, silent: Sequence[str]) -> str:
        here = sum(login.greeting is not None for login in self._logins.values())
        some = ", ".join(silent[:4]) + (f" and {len(silent) - 4} more" if len(silent) > 4 else "")
        return f"{len(self._hosts)} asked · {here} here · waiting for {some}"

    def _turn(self, timeout_s: float, take: Callable[[Login, int], None]) -> None:
        """Wait for what can be read, and write what can be written."""
        pending = [login for login in self._logins.values() if login.wants_to_write]
        for login in pending:
            login.flush()
        for key, _ in self._selector.select(0.02 if pending else timeout_s):
            if key.data is None:
                os.read(key.fd, 64)
                continue
            login, number = key.data
            take(login, number)
            if number not in login.open:
                self._selector.unregister(number)

    def _pass_on(self, login: Login, number: int) -> None:
        for line in login.read(number):
            self._show(login, number, line)
        self._show_equal_lines()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()

    def _show(self, login: Login, number: int, line: bytes) -> None:
        bundle = self._bundles.get(login.host)
        if bundle is not None and number == login.out and line.startswith(OWN_WORDS):
            started = bundle.host.host
            if line == end_line(bundle.secret, started):
                self._lost.add(login.host)
                self._pass_end_on(login.host, started)
                return
            answer = wanted_rows(line, bundle.secret, started)
            if answer is not None and self._again is not None:
                self._again.hear(*answer)
                return
        if line.startswith(REFUSALS) and self._again is not None and self._again.is_settling(login.host):
            # Of a host that comes again, and perhaps again and again: told in one line, once.
            if line.startswith(REFUSALS[0]):
                self._refusals[login.host] = line.decode(errors="replace").strip().removeprefix("error: ")
            return
        stream = 1 if number == login.out else 2
        if self._equal_lines is None:
            self._write(stream, line)
        elif line.endswith(b"\n"):
            self._equal_lines.add(login.host.rpartition("@")[2], stream, line, time.monotonic())
        else:
            # A line whose end did not come for very long: nothing is like it, and what came before it stands before it.
            self._show_equal_lines(all_=True)
            self._write(stream, line)

    def _show_equal_lines(self, *, all_: bool = False) -> None:
        if self._equal_lines is None or self._equal_lines.due_s is None:
            return
        ready = self._equal_lines.take_all() if all_ else self._equal_lines.take(time.monotonic())
        for stream, line in ready:
            self._write(stream, line)
        for out in (sys.stdout, sys.stderr):
            out.flush()

    def _write(self, stream: int, line: bytes) -> None:
        (sys.stdout if stream == 1 else sys.stderr).buffer.write(line)

    def _end(self, host: str) -> None:
        login = self._logins.pop(host)
        code = login.process.returncode
        code = 128 - code if code < 0 else code
        settling = self._again is not None and self._again.is_settling(host)
        if self._again is not None:
            why = login.trouble() if code == SSH_TROUBLE else f"it ended with code {code}"
            self._again.note_absent(host, self._refusals.pop(host, why))
        if code == SSH_TROUBLE and self._logins:
            self._tell(
                f"note: the connection to {host} broke ({login.trouble()}); its ranks continue,"
                f" and end {self._limits.detach_after_s:g} s after it"
            )
        elif code != SSH_TROUBLE and not settling:
            (self._lost_codes if host in self._lost else self._codes).append(code)
            self._ended_s = time.monotonic()
        self._lost.discard(host)
        login.close()

    def _give_up_silent(self) -> None:
        """Hosts that do not end with the job cannot be reached: their ranks end by their lease, and nobody waits for that here."""
        heard_s = self._again.answered_s if self._again is not None else 0.0
        # A job that answers goes on, and so do the hosts that are left.
        if self._ended_s is None or time.monotonic() < max(self._ended_s, heard_s) + END_S:
            return
        left = list(self._logins)
        if left:
            self._tell(f"note: {', '.join(left[:4])} did not end with the job, and end by their lease")
        for host in left:
            self.drop(host)

    def _pass_end_on(self, host: str, started: str) -> None:
        """Let the others know that a host has ended: a few of them, because one is enough."""
        others = [login for other, login in self._logins.items() if other != host and not login.is_over]
        by = f"ssh saw its last process end on {host}"
        for login in others[:TOLD_MAX]:
            login.send({"ended": {"host": started, "by": by}})

    def _send_all(self, message: dict[str, Any]) -> None:
        for login in self._logins.values():
            login.send(message)

    def _pass_signals(self) -> None:
        names = {int(number): name for name, number in SIGNALS.items()}
        while self._signals:
            self._send_all({"signal": names[self._signals.popleft()]})

    def _catch_signals(self) -> None:
        read_end, write_end = os.pipe()
        os.set_blocking(write_end, False)
        self._selector.register(read_end, selectors.EVENT_READ, None)

        def note(number: int, _frame: FrameType | None) -> None:
            self._signals.append(number)

        for number in SIGNALS.values():
            # What somebody ignores stays ignored: nohup.
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, note)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)

    def _stand_by(self) -> None:
        """Start the process that says goodbye if this one is killed."""
        self._lifeline, other_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        read_end = other_end.detach()
        logins = list(self._logins.values())
        sinks, held = (
            [login.sink for login in logins],
            [n for login in logins for n in (login.out, login.err)],
        )
        words = [str(read_end), ",".join(map(str, sinks)), ",".join(map(str, held))]
        subprocess.Popen(
            [sys.executable, "-m", "penstock.process.hosts.ssh.farewell", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[read_end, *sinks, *held],
            start_new_session=True,
        )
        os.close(read_end)


def _allow_descriptors(wanted: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
