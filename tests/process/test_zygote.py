"""A rank that is forked from a warm Python cannot tell, nor can anybody else, but for the time it took to start.

Method: the same program is run by the interpreter itself and by a fork of a real zygote, and everything that can be seen is compared.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process.jobs import is_alive, wait_until
from tests.process.nursing import Ended, Program, Zygote, ended, zygote

FACTS = """
import json, os, sys
main = sys.modules["__main__"]
print(json.dumps({
    "names": sorted(vars(main)), "name": __name__, "file": globals().get("__file__"), "package": __package__,
    "spec": __spec__ and [__spec__.name, __spec__.origin], "loader": str(type(__loader__)), "is_main": vars(main) is globals(),
    "builtins": type(__builtins__).__name__, "argv": sys.argv, "orig_argv": sys.orig_argv[1:], "path": sys.path, "flags": list(sys.flags),
    "executable": sys.executable, "directory": os.getcwd(), "stdin": os.fstat(0).st_rdev, "unbuffered": sys.stdout.write_through,
    "line_buffering": sys.stdout.line_buffering, "warnings": sys.warnoptions, "sigint": str(__import__("signal").getsignal(2)),
    "leftovers": [name for name in sys.modules if "zygote" in name],
}))
"""


@pytest.fixture(scope="module")
def warm() -> Iterator[Zygote]:
    """A zygote without preloads, shared: what one rank does is nothing to the next."""
    with zygote() as warmed:
        assert "ready" in warmed.hear()
        yield warmed


def plainly(program: Program, flags: list[str]) -> Ended:
    """The same program, run by the interpreter itself."""
    words = [sys.executable, *flags, *(["-m"] if program.module else []), *program.argv]
    environment = {**os.environ, "RANK": "0"}
    done = subprocess.run(
        words,
        cwd=program.directory,
        env=environment,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Programs of every kind that say what they see."""
    (tmp_path / "facts.py").write_text(FACTS)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/real.py").write_text(FACTS)
    (tmp_path / "link.py").symlink_to(tmp_path / "elsewhere/real.py")
    (tmp_path / "package").mkdir()
    (tmp_path / "package/__init__.py").write_text("import sys; print(sys.argv[0])\n")
    (tmp_path / "package/__main__.py").write_text(FACTS)
    (tmp_path / "package/part.py").write_text(FACTS)
    return tmp_path


@pytest.mark.parametrize(
    ("argv", "module"),
    [
        (["facts.py", "--lr", "3e-4"], False),
        (["./facts.py"], False),
        (["{}/facts.py"], False),
        (["link.py"], False),
        (["elsewhere/../facts.py"], False),
        (["-c", FACTS, "x"], False),
        (["package.part", "-v"], True),
        (["package"], True),
        (["package.missing"], True),
        (["missing.py"], False),
    ],
)
def test_a_program_sees_what_it_sees_under_the_interpreter(
    warm: Zygote, folder: Path, argv: list[str], module: bool
) -> None:
    program = Program(
        [word.format(folder) if len(word) < 50 else word for word in argv], folder, module=module
    )
    (forked,) = warm.run(program)
    assert forked == plainly(program, [])


@pytest.mark.parametrize("flags", [["-O"], ["-u", "-X", "dev"], ["-I"], ["-P", "-W", "error::UserWarning"]])
def test_options_of_the_interpreter_are_the_zygotes(folder: Path, flags: list[str]) -> None:
    program = Program(["facts.py"], folder)
    with zygote(flags=flags) as own:
        assert "ready" in own.hear()
        (forked,) = own.run(program)
    expected = plainly(program, flags)
    # What was typed is not known to the test's zygote; the agent tells it.
    assert _without(forked, "orig_argv") == _without(expected, "orig_argv")


def _without(outcome: Ended, name: str) -> tuple[int, dict[str, object], str]:
    return (
        outcome.code,
        {key: value for key, value in json.loads(outcome.out).items() if key != name},
        outcome.err,
    )


@pytest.mark.parametrize(
    "text",
    [
        "raise SystemExit",
        "import sys; sys.exit(3)",
        "import sys; sys.exit('a word about it')",
        "def deep():\n    1 / 0\ntry:\n    deep()\nexcept ZeroDivisionError:\n    {}['key']\n",
        "def wrong(:\n",
        "raise KeyboardInterrupt",
        "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
        "import os; print('lost', end=''); os._exit(4)",
        "import atexit, sys; atexit.register(print, 'last'); sys.excepthook = lambda *a: print('caught', a[0], a[2].tb_lineno); 1 / 0",
        "import threading\ndef late():\n    threading.main_thread().join()\n    print('joined')\nthreading.Thread(target=late).start()\nprint('main ends')",
        "class Loud:\n    def __del__(self):\n        print('gone')\nkept = Loud()\nprint('end')",
        "import traceback, inspect\ndef inner():\n    print(len(inspect.trace()))\ntry:\n    1 / 0\nexcept ZeroDivisionError:\n    traceback.print_exc()\n    inner()",
        "import warnings\nwarnings.warn('look')\nraise ExceptionGroup('two', [ValueError(1), KeyError(2)])",
        "# -*- coding: latin-1 -*-\nprint(len('\u00e4'))",
        "import sys; sys.stdout.write('no end of line'); sys.stderr.write('neither')",
    ],
)
def test_a_program_ends_as_under_the_interpreter(warm: Zygote, tmp_path: Path, text: str) -> None:
    """Goal: exit code or signal, output, and every character of the traceback are the same."""
    (tmp_path / "program.py").write_text(text, encoding="utf-8")
    program = Program(["program.py"], tmp_path)
    (forked,) = warm.run(program)
    assert forked == plainly(program, [])


def test_processes_can_be_started_by_every_method_of_multiprocessing(warm: Zygote, tmp_path: Path) -> None:
    """Goal: `__main__` can be imported again and its classes pickled, as children of a script need it."""
    (tmp_path / "program.py").write_text(
        "import multiprocessing as mp, pickle, os\n"
        "from concurrent.futures import ProcessPoolExecutor\n"
        "class Thing:\n    def __init__(self, n): self.n = n\n"
        "def twice(thing): return Thing(thing.n * 2)\n"
        "def say(method, queue): queue.put((method, __name__, os.environ['RANK']))\n"
        "if __name__ == '__main__':\n"
        "    for method in ('fork', 'spawn', 'forkserver'):\n"
        "        context = mp.get_context(method)\n"
        "        queue = context.Queue()\n"
        "        child = context.Process(target=say, args=(method, queue))\n"
        "        child.start(); print(queue.get()); child.join(); print(child.exitcode)\n"
        "        with ProcessPoolExecutor(2, mp_context=context) as pool:\n"
        "            print([thing.n for thing in pool.map(twice, [Thing(1), Thing(2)])])\n"
        "    print(type(pickle.loads(pickle.dumps(Thing(1)))))\n"
    )
    program = Program(["program.py"], tmp_path)
    (forked,) = warm.run(program)
    assert forked == plainly(program, [])
    assert forked.out.count("\n[2, 4]\n") == 3


def test_ranks_are_processes_of_their_own(warm: Zygote, tmp_path: Path) -> None:
    """Goal: session, descriptors, environment, parent and what /proc shows are a rank's, not the zygote's."""
    (tmp_path / "program.py").write_text(
        "import json, os, random, sys, uuid\n"
        "here = lambda name: open('/proc/self/' + name, 'rb').read().decode()\n"
        "print(json.dumps({'pid': os.getpid(), 'session': os.getsid(0), 'parent': os.getppid(),\n"
        "    'files': sorted(int(fd) for fd in os.listdir('/proc/self/fd'))[:-1], 'words': here('cmdline').rstrip(chr(0)).split(chr(0)),\n"
        "    'mark': [e for e in here('environ').split(chr(0)) if e.startswith('PENSTOCK_WORKER')], 'rank': os.environ['RANK'],\n"
        "    'gone': os.environ.get('GONE'), 'blas': os.environ.get('OPENBLAS_NUM_THREADS'), 'c': os.popen('echo $RANK $COLOUR').read(),\n"
        "    'drawn': [random.random(), uuid.uuid4().hex], 'hash': hash('penstock')}))\n"
    )
    environment: dict[str, str | None] = {"COLOUR": "red", "GONE": None, "PENSTOCK_WORKER": "trainer-7"}
    with zygote(environment={"GONE": "here", "PENSTOCK_WORKER": "." * 40}) as own:
        assert "ready" in own.hear()
        outcomes = own.run(Program(["program.py", "a b"], tmp_path, environment=environment), ranks=2)
    facts = [json.loads(one.out) for one in outcomes]
    for rank, fact in enumerate(facts):
        assert fact["session"] == fact["pid"]
        assert (fact["parent"], fact["files"]) == (os.getpid(), [0, 1, 2])
        assert fact["words"] == ["python", "program.py", "a b"]
        assert fact["mark"] == ["PENSTOCK_WORKER=trainer-7"]
        assert (fact["rank"], fact["gone"], fact["c"]) == (str(rank), None, f"{rank} red\n")
        assert fact["blas"] == os.environ.get("OPENBLAS_NUM_THREADS")
    assert not set(facts[0]["drawn"]) & set(facts[1]["drawn"])
    # The seed of hashes is the interpreter's, so ranks see sets in the same order.
    assert facts[0]["hash"] == facts[1]["hash"]


def test_numpy_draws_differ_and_so_do_the_keys_of_multiprocessing(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import numpy, multiprocessing as mp, threading\n"
        "print(numpy.random.random(), bytes(mp.current_process().authkey).hex(), threading.active_count())\n"
    )
    with zygote("numpy.random", "multiprocessing", environment={"OMP_NUM_THREADS": "1"}) as own:
        said = own.hear()
        assert list(said["ready"]["loaded"]) == ["numpy.random", "multiprocessing"], said
        first, second = own.run(Program(["program.py"], tmp_path), ranks=2)
    assert first.code == second.code == 0, first.err
    assert not set(first.out.split()[:2]) & set(second.out.split()[:2])


def test_nobody_begins_before_the_gate_and_a_closed_gate_leaves_nobody(warm: Zygote, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("import os; open(f'{os.getpid()}.began', 'w')")
    answer, gate = warm.bear(Program(["program.py"], tmp_path), ranks=5)
    assert len(set(answer["born"])) == 5
    assert all(map(is_alive, answer["born"]))
    os.close(gate)
    for rank, pid in enumerate(answer["born"]):
        assert ended(tmp_path, rank, pid) == Ended(0, "", "")
    assert list(tmp_path.glob("*.began")) == []


def test_ranks_outlive_their_zygote(tmp_path: Path) -> None:
    """Goal: it owns nothing. Method: it is killed while ranks wait at the gate, and they run all the same."""
    (tmp_path / "program.py").write_text("import os; print(os.environ['RANK'])")
    with zygote() as own:
        assert "ready" in own.hear()
        answer, gate = own.bear(Program(["program.py"], tmp_path), ranks=3)
        own.process.kill()
        own.process.wait()
        os.write(gate, b"...")
        os.close(gate)
        outcomes = [ended(tmp_path, rank, pid) for rank, pid in enumerate(answer["born"])]
    assert outcomes == [Ended(0, f"{rank}\n", "") for rank in range(3)]


def test_a_zygote_leaves_with_whoever_talks_to_it() -> None:
    with zygote() as own:
        assert "ready" in own.hear()
        own.talk.close()
        assert own.process.wait(20) == 0


def test_a_rank_is_killed_with_its_parent(tmp_path: Path) -> None:
    """Goal: P2, nothing outlives the agent. Method: a process plays the agent and is killed."""
    (tmp_path / "program.py").write_text("import os, signal; print(os.getpid(), flush=True); signal.pause()")
    (tmp_path / "agent.py").write_text(
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from tests.process.nursing import Program, zygote\n"
        "with zygote() as own:\n"
        "    own.hear()\n"
        "    answer, gate = own.bear(Program(['program.py'], Path(sys.argv[1])), ranks=2)\n"
        "    os.write(gate, b'..')\n"
        "    print(own.process.pid, *answer['born'], flush=True)\n"
        "    signal.pause()\n"
    )
    tree = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([tree, os.environ.get("PYTHONPATH", "")])}
    agent = subprocess.Popen(
        [sys.executable, tmp_path / "agent.py", tmp_path], env=environment, stdout=subprocess.PIPE, text=True
    )
    assert agent.stdout is not None
    pids = [int(word) for word in agent.stdout.readline().split()]
    for rank in range(2):
        wait_until((tmp_path / f"{rank}.out").read_text, "ranks are in their program")
    agent.send_signal(signal.SIGKILL)
    agent.wait()
    agent.stdout.close()
    wait_until(lambda: not any(map(is_alive, pids)), "zygote and ranks are gone")


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        (
            "starts_a_thread",
            "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True, name='busy').start()",
            "an import started threads: busy",
        ),
        ("keeps_a_file", "kept = open(__file__)", "keeps_a_file.py open as descriptor"),
        ("keeps_a_device", "kept = open('/dev/full', 'w')", "a device, /dev/full open as descriptor"),
        ("breaks", "1 / 0", "`import breaks` failed: ZeroDivisionError"),
        (
            "lacks",
            "import not_installed_at_all",
            "`import lacks` failed: No module named 'not_installed_at_all'",
        ),
    ],
)
def test_a_zygote_that_cannot_be_forked_says_why(tmp_path: Path, name: str, text: str, reason: str) -> None:
    (tmp_path / f"{name}.py").write_text(text)
    with zygote(name, environment={"PYTHONPATH": str(tmp_path)}) as own:
        assert reason in own.hear()["unfit"]
        assert own.process.wait(20) == 0


def test_what_is_not_installed_is_left_out() -> None:
    with zygote("not_installed_at_all", "json.nothing", "colorsys") as own:
        said = own.hear()["ready"]
    assert (list(said["loaded"]), said["absent"]) == (["colorsys"], ["not_installed_at_all", "json.nothing"])


def test_a_file_that_would_be_imported_instead_of_a_preloaded_module_is_respected(tmp_path: Path) -> None:
    """Goal: never other code than the interpreter would run. A package without files does not stand before an installed one."""
    (tmp_path / "program.py").write_text("import colorsys; print(colorsys.__file__)")
    (tmp_path / "colorsys").mkdir()
    with zygote("colorsys") as own:
        assert "ready" in own.hear()
        (outcome,) = own.run(Program(["program.py"], tmp_path))
        assert outcome == plainly(Program(["program.py"], tmp_path), [])
        (tmp_path / "colorsys.py").write_text("")
        answer, gate = own.bear(Program(["program.py"], tmp_path))
        os.close(gate)
    assert answer == {
        "refused": f"{tmp_path}/colorsys.py has the name of a module that is preloaded",
        "request": 2,
    }
