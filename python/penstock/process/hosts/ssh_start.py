"""Hosts started by ssh from one launcher: logins, bundles, output back, signals forth, and a goodbye whatever happens."""

import os
import resource
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

from penstock.errors.process import HostsMissing
from penstock.process.hosts.bundle import SIGNALS, Bundle
from penstock.process.hosts.farewell import DONE
from penstock.process.hosts.host_end import end_line
from penstock.process.hosts.launcher.equal_lines import EqualLines
from penstock.process.hosts.ssh_login import SSH_TROUBLE, Login, Shipment
from penstock.process.hosts.starter import HostGreeting

LOGINS_MAX = 64
PING_S = 5.0
#: Between words about hosts that are waited for.
NEWS_S = 10.0
DESCRIPTORS_SPARE = 64
#: Hosts that are told of the end of another; each tells the leader.
TOLD_MAX = 3
#: For the other hosts to answer as well, once one has failed: all troubles in one message.
OTHERS_S = 10.0


@dataclass(frozen=True)
class SshLimits:
    """How long a launcher waits."""

    #: For hosts to be there.
    host_wait_s: float = 600.0
    #: That a host forgives a broken connection, for sentences about it.
    detach_after_s: float = 300.0


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
        #: What each host says when nothing of the job is left on it, and which start of it that is.
        self._last_words: dict[str, tuple[bytes, str]] = {}
        self._lifeline: int | None = None
        self._begun = False

    def start(self, bundles: Callable[[Sequence[HostGreeting]], Sequence[Bundle]]) -> None:
        """Log in everywhere, wait until all hosts are there, give each its bundle."""
        _allow_descriptors(3 * len(self._hosts) + DESCRIPTORS_SPARE)
        self._catch_signals()
        try:
            self._log_in()
            greetings = [HostGreeting.of(host, self._logins[host].greeting or {}) for host in self._hosts]
            parcels = bundles(greetings)
            assert len(parcels) == len(self._hosts), "one bundle for each host"
            self._stand_by()
            self._begun = True
            for host, bundle in zip(self._hosts, parcels, strict=True):
                self._last_words[host] = end_line(bundle.secret, bundle.host.host), bundle.host.host
                self._logins[host].send(bundle.to_json())
        except BaseException:
            self.release()
            raise

    def watch(self) -> int:
        """Until all hosts have ended."""
        ping_at = time.monotonic()
        while self._logins:
            if time.monotonic() >= ping_at:
                ping_at = time.monotonic() + PING_S
                self._send_all({"ping": 1})
            due_s = self._equal_lines.due_s if self._equal_lines else None
            self._turn(max(min(ping_at, due_s or ping_at) - time.monotonic(), 0.0), self._pass_on)
            self._show_equal_lines()
            self._pass_signals()
            for host in [host for host, login in self._logins.items() if login.is_over]:
                self._end(host)
        self._show_equal_lines(all_=True)
        own = [code for code in self._codes if code != SSH_TROUBLE]
        return next((code for code in own if code), 0 if own else 1)

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
            os.write(self._lifeline, DONE)
            os.close(self._lifeline)
            self._lifeline = None
        self._logins.clear()

    def _log_in(self) -> None:
        waiting = deque(self._hosts)
        begun_s = news_s = time.monotonic()
        problems: dict[str, str] = {}
        failed_s: float | None = None
        while True:
            silent = [host for host, login in self._logins.items() if login.greeting is None]
            while waiting and len(silent) < LOGINS_MAX and not problems:
                host = waiting.popleft()
                self._open(host)
                silent.append(host)
            if not silent:
                break
            now = time.monotonic()
            failed_s = (failed_s or now) if problems else None
            late = failed_s is not None and now - failed_s > OTHERS_S
            if late or now - begun_s > self._limits.host_wait_s:
                problems |= {host: self._logins[host].trouble() for host in silent}
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
                    problems[host] = login.trouble()
                login.close()
        if problems:
            # Those that were not asked yet are not here either; their own words would only hide the first.
            here = sum(login.greeting is not None for login in self._logins.values())
            raise HostsMissing(asked=len(self._hosts), here=here, problems=problems)

    def _open(self, host: str) -> None:
        try:
            login = Login(host, self._shipment)
        except FileNotFoundError:
            raise HostsMissing(
                asked=len(self._hosts), here=0, problems={host: "this machine has no program called ssh"}
            ) from None
        self._logins[host] = login
        for number in (login.out, login.err):
            self._selector.register(number, selectors.EVENT_READ, (login, number))

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
        last_words, started = self._last_words.get(login.host, (None, ""))
        if number == login.out and line == last_words:
            self._pass_end_on(login.host, started)
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
        self._codes.append(128 - code if code < 0 else code)
        if code == SSH_TROUBLE and self._logins:
            self._tell(
                f"note: the connection to {host} broke ({login.trouble()}); its ranks continue,"
                f" and end {self._limits.detach_after_s:g} s after it"
            )
        login.close()

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
        read_end, self._lifeline = os.pipe()
        logins = list(self._logins.values())
        sinks, held = (
            [login.sink for login in logins],
            [n for login in logins for n in (login.out, login.err)],
        )
        words = [str(read_end), ",".join(map(str, sinks)), ",".join(map(str, held))]
        subprocess.Popen(
            [sys.executable, "-m", "penstock.process.hosts.farewell", *words],
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
