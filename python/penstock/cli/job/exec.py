"""``penstock exec``: a command or a Python expression beside a rank."""

import os
import selectors
import signal
import sys
from dataclasses import dataclass
from types import FrameType
from typing import Annotated

from cyclopts import Parameter

from penstock.cli.escape import coloured
from penstock.cli.job.choice import job_called, job_here
from penstock.cli.output import Json, command_app, print_json
from penstock.cli.questions.exec_on_hosts import HostChoice, exec_on_hosts
from penstock.errors import UsageError
from penstock.process.exec import Beside, find_workers, nothing_left, start
from penstock.process.questions.answers import PATIENCE_S

app = command_app(
    "exec",
    "Run a command or a Python expression beside a rank: its environment, directory, processors.",
    examples=(
        "  penstock exec train-3f2a --rank 3 -- bash\n"
        "  penstock exec train-3f2a --rank 0-3 -- nvidia-smi\n"
        "  penstock exec train-3f2a --rank 3 --python 'os.environ[\"MASTER_PORT\"]'\n"
        "  penstock exec train-3f2a --hosts 'gpu[01-16]' -- nvidia-smi\n"
        "  penstock exec train-3f2a --ranks 0,8-15 --patience 10 -- df -h /dev/shm"
    ),
)
#: Evaluates an expression, or runs statements where it is none. Modules that people mostly want are there when named.
EVALUATE = """
import builtins, importlib, sys
class _Names(dict):
    def __missing__(self, name):
        if hasattr(builtins, name):
            return getattr(builtins, name)
        try:
            return importlib.import_module(name)
        except ImportError:
            raise NameError(f"name {name!r} is not defined") from None
text, names = sys.argv.pop(), _Names(__builtins__=__builtins__, __name__="__main__")
try:
    code = compile(text, "<expression>", "eval")
except SyntaxError:
    code = None
if code is None:
    exec(compile(text, "<statements>", "exec"), names)
else:
    value = eval(code, names)
    if value is not None:
        print(repr(value))
"""


@dataclass(frozen=True, kw_only=True)
class OtherHosts:
    """Which hosts of a job of many."""

    hosts: Annotated[str | None, Parameter(help="On these hosts of the job, as in gpu[01-16].")] = None
    ranks: Annotated[str | None, Parameter(help="Beside these ranks on all hosts, as in 0,8-15.")] = None
    where: Annotated[str | None, Parameter(help="On hosts in this state, such as here or unheard.")] = None
    patience: Annotated[float, Parameter(help="Seconds that all of it may take, on many hosts.")] = PATIENCE_S

    @property
    def choose(self) -> bool:
        """Whether hosts were named in any way."""
        return (self.hosts, self.ranks, self.where) != (None, None, None)


@app.default
def exec_(
    job: str,
    *command: Annotated[str, Parameter(help="Program and arguments, after `--`.")],
    rank: Annotated[
        str | None, Parameter(help="Which ranks of this host: 3, 0-3,8 or trainer-3 (default: 0).")
    ] = None,
    role: Annotated[str | None, Parameter(help="Ranks of this role, where a job has several.")] = None,
    python: Annotated[
        str | None, Parameter(help="An expression or statements, instead of a command.")
    ] = None,
    over: Annotated[OtherHosts | None, Parameter(name="*")] = None,
    json: Json = False,
) -> int:
    """The command is a process of its own beside the rank, not inside it. Its exit code is passed on; nothing of it stays.

    With --hosts, --ranks or --where it runs on any hosts of the job: equal outputs are shown once, and the largest exit code is passed on.

    Parameters
    ----------
    job
        Name of the job, or how it begins.
    """
    if bool(command) == (python is not None):
        raise UsageError(
            "give a command after `--`, or --python EXPRESSION", hint="`penstock exec --help` has examples"
        )
    if over is not None and over.choose:
        if rank is not None or python is not None:
            raise UsageError(
                "--rank and --python are for this host alone", hint="--ranks counts over all hosts of the job"
            )
        choice = HostChoice(over.hosts, over.ranks, over.where, over.patience, role)
        return exec_on_hosts(job_called(job), command, choice, json=json)
    handle = job_here(job, "exec")
    workers = find_workers(handle, rank or "0", role)
    calls = [(worker, list(command) if python is None else _python(worker, python)) for worker in workers]
    with nothing_left():
        if len(calls) == 1 and not json:
            return _alone(*calls[0])
        return _together(calls, json=json)


def _python(worker: Beside, expression: str) -> list[str]:
    interpreter = worker.python()
    if interpreter is None:
        raise UsageError(
            f"{worker.name} is not Python, and the job has no other Python", hint="give a command after `--`"
        )
    return [interpreter, "-c", EVALUATE, expression]


def _alone(worker: Beside, words: list[str]) -> int:
    """With the person's own input and output; Ctrl-C is for the command."""
    sys.stdout.flush()
    pid = start(worker, words)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _leave)
    return _code(os.waitpid(pid, 0)[1])


def _leave(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _together(calls: list[tuple[Beside, list[str]]], *, json: bool) -> int:
    """On several workers at once, each line with its worker before it; the first exit code that is not 0."""
    signal.signal(signal.SIGTERM, _leave)
    watch = selectors.DefaultSelector()
    running: dict[int, Beside] = {}
    texts: dict[tuple[str, int], bytearray] = {}
    for worker, words in calls:
        ends = [os.pipe2(os.O_CLOEXEC) for _ in range(2)]
        running[start(worker, words, outputs=(ends[0][1], ends[1][1]))] = worker
        for stream, (reading, writing) in enumerate(ends, start=1):
            os.close(writing)
            texts[worker.name, stream] = bytearray()
            watch.register(reading, selectors.EVENT_READ, (worker.name, stream))
    while watch.get_map():
        for key, _ in watch.select():
            piece = os.read(key.fd, 1 << 16)
            texts[key.data] += piece
            if not piece:
                watch.unregister(key.fd)
                os.close(key.fd)
            if not json:
                _show(key.data[0], key.data[1], texts[key.data], whole=not piece)
    codes = {worker.name: _code(os.waitpid(pid, 0)[1]) for pid, worker in running.items()}
    if json:
        for name, code in codes.items():
            out, err = (texts[name, stream].decode(errors="replace") for stream in (1, 2))
            print_json({"worker": name, "code": code, "stdout": out, "stderr": err})
    return next((code for code in codes.values() if code), 0)


def _show(name: str, stream: int, text: bytearray, *, whole: bool) -> None:
    """Whole lines with a prefix; what is shown is taken from the text."""
    end = len(text) if whole else text.rfind(b"\n") + 1
    whole_lines = bytes(text[:end])
    for line in (coloured(whole_lines) if os.isatty(stream) else whole_lines).splitlines():
        os.write(stream, b"[%s] %s\n" % (name.encode(), line))
    del text[:end]


def _code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code
