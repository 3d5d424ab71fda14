"""A second process beside a launcher: when the launcher is killed, it says goodbye to every host in its stead.

``python -m penstock.process.hosts.ssh.farewell LIFELINE SINKS HELD``: descriptors of a socket that the launcher holds open, of the connections'
inputs, and of their outputs, which stay open so that connections do not end before the goodbye has left. A killed launcher closes the socket
without a word; one that ends in order says one first. Connections that are made later come through the socket.
"""

import os
import select
import signal
import socket
import sys
import time

DONE = b"done"
#: With a connection that is new: its input, then its outputs.
MORE = b"more"
MORE_DESCRIPTORS = 3
#: For the goodbye to leave.
PATIENCE_S = 2.0
GOODBYE = b'{"goodbye": "killed"}\n'


def main(words: list[str]) -> int:
    """The program."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    sinks, held = _numbers(words[1]), _numbers(words[2])
    with socket.socket(fileno=int(words[0])) as lifeline:
        while True:
            word, more, _, _ = socket.recv_fds(lifeline, 64, MORE_DESCRIPTORS)
            if word == DONE:
                return 0
            if not word:
                break
            sinks += more[:1]
            held += more[1:]
    until = time.monotonic() + PATIENCE_S
    left = set(sinks)
    poll = select.poll()
    for sink in sinks:
        os.set_blocking(sink, False)
        poll.register(sink, select.POLLOUT)
    while left and time.monotonic() < until:
        for sink, _ in poll.poll(100):
            try:
                # A line of its own, even if the launcher was killed in the middle of one.
                os.write(sink, b"\n" + GOODBYE)
            except BlockingIOError:
                continue
            except OSError:
                pass
            poll.unregister(sink)
            left.discard(sink)
    _wait_gone(held, until)
    return 0


def _wait_gone(outputs: list[int], until: float) -> None:
    """Until the connections have ended, or the time is over."""
    poll = select.poll()
    for output in outputs:
        os.set_blocking(output, False)
        poll.register(output, select.POLLIN)
    left = set(outputs)
    while left and time.monotonic() < until:
        for output, _ in poll.poll(100):
            try:
                ended = not os.read(output, 1 << 16)
            except BlockingIOError:
                continue
            except OSError:
                ended = True
            if ended:
                poll.unregister(output)
                left.discard(output)


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",") if number]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
