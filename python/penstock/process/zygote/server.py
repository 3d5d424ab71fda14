"""Requests of the agent, and the births that follow.

A request comes as one packet with descriptors: a sealed memory file with what is asked for, the gate, and the files of each worker.
Its size is not limited by the socket, and the agent never waits for us to read.
For each request a *forker* is forked, which forks the ranks and ends, so that they are adopted by the agent (a subreaper) and
outlive us. Several forkers work at a time: copying the tables of a large process is the cost of a fork, and is done per process.
A rank waits at the gate: one byte each is "go", its end is "leave". So the agent knows all numbers before any program runs.
"""

from __future__ import annotations

import gc
import json
import os
import select
import socket
import sys
import time
from typing import Any

from .birth import Birth, Warm
from .late_variables import listen
from .preload import Unfit, preload
from .program import compiled, first_folder
from .rules import check, descriptors, loaded_from, rehearse, shadowed

PACKET_BYTES_MAX = 1 << 16
DESCRIPTORS_MAX = 253


def serve(link: int) -> Birth:
    """Serve for ever; returns in ranks only."""
    inherited = descriptors()
    talk = socket.socket(fileno=link)
    first = json.loads(talk.recv(PACKET_BYTES_MAX))
    try:
        about = _warm(first, inherited)
    except Unfit as problem:
        _say(talk, {"unfit": str(problem)})
        sys.exit(0)
    kept = [fd for fd in inherited if fd != link]
    server = _ForkServer(talk, Warm(first, pid=os.getpid(), kept=kept, loaded=loaded_from()))
    # What is here now stays; looking at it again in every rank would only copy its pages.
    gc.collect()
    gc.freeze()
    _say(talk, {"ready": about})
    return server.serve()


def _warm(first: dict[str, Any], inherited: dict[int, str]) -> dict[str, Any]:
    begun = time.perf_counter()
    loaded, absent = preload(first["preload"])
    check(inherited, descriptors())
    rehearse()
    listen()
    took_s = round(time.perf_counter() - begun, 3)
    return {"loaded": loaded, "absent": absent, "took_s": took_s, "python": sys.version.split()[0]}


def _say(talk: socket.socket, message: dict[str, Any]) -> None:
    try:
        talk.send(json.dumps(message).encode())
    except OSError:
        # The agent is gone; so are we.
        os._exit(0)


class _ForkServer:
    """The loop of the zygote: requests in, forkers out, numbers back."""

    def __init__(self, talk: socket.socket, warm: Warm) -> None:
        self.talk = talk
        self.warm = warm
        #: Forkers at work, by the pipe that each writes numbers into: its own number and the request's.
        self.forkers: dict[int, tuple[int, int]] = {}

    def serve(self) -> Birth:
        watch = select.poll()
        watch.register(self.talk, select.POLLIN)
        while True:
            for fd, _ in watch.poll():
                if fd in self.forkers:
                    watch.unregister(fd)
                    self._announce(fd)
                    continue
                born = self._take()
                if isinstance(born, Birth):
                    # The number is closed with all others; an object that is taken apart while it is open would be complained about.
                    self.talk.detach()
                    return born
                if born is not None:
                    watch.register(born, select.POLLIN)

    def _take(self) -> Birth | int | None:
        """One request: in a rank its birth, in the zygote the pipe of the forker, if there is one."""
        packet, fds, _, _ = socket.recv_fds(self.talk, PACKET_BYTES_MAX, DESCRIPTORS_MAX)
        if not packet:
            os._exit(0)
        try:
            with open(fds[0], "rb", closefd=False) as body:
                request = json.loads(body.read())
            if why := shadowed(_folder(request), self.warm.loaded):
                _say(self.talk, {"refused": why, "request": request["request"]})
                return None
            self.warm.compiled = compiled(request, self.warm.compiled)
            return self._fork(request, fds)
        finally:
            # In a rank they are needed, and closed when it settles.
            if os.getpid() == self.warm.pid:
                for fd in fds:
                    os.close(fd)

    def _fork(self, request: dict[str, Any], fds: list[int]) -> Birth | int | None:
        numbers, report = os.pipe()
        try:
            forker = os.fork()
        except OSError as problem:
            os.close(numbers)
            os.close(report)
            _say(self.talk, {"refused": f"fork failed: {problem.strerror}", "request": request["request"]})
            return None
        if forker == 0:
            return self._fork_ranks(request, fds, report)
        os.close(report)
        self.forkers[numbers] = (forker, request["request"])
        return numbers

    def _fork_ranks(self, request: dict[str, Any], fds: list[int], report: int) -> Birth:
        """The forker: forks the ranks, says their numbers, ends. Returns in ranks only."""
        pids: list[int] = []
        place = 2
        why = None
        for worker in request["workers"]:
            own = {name: fds[place + offset] for offset, name in enumerate(worker["files"])}
            own["gate"] = fds[1]
            place += len(worker["files"])
            try:
                pid = os.fork()
            except OSError as problem:
                why = f"fork failed: {problem.strerror}"
                break
            if pid == 0:
                return Birth(request, worker, own, self.warm)
            pids.append(pid)
        os.write(report, json.dumps({"refused": why} if why else {"born": pids}).encode())
        os._exit(0)

    def _announce(self, numbers: int) -> None:
        """Passes on what a forker said, once it is gone: only then the agent is the parent of the ranks."""
        forker, request = self.forkers.pop(numbers)
        said = os.read(numbers, PACKET_BYTES_MAX)
        os.close(numbers)
        os.waitpid(forker, 0)
        message = json.loads(said) if said else {"refused": "the process that forks the ranks was killed"}
        _say(self.talk, {**message, "request": request})


def _folder(request: dict[str, Any]) -> str | None:
    """Where the program will look for modules first; where it stands, for a program without a file."""
    folder = first_folder(request["argv"], module=request["module"], directory=request["directory"])
    return request["directory"] if folder == "" else folder
