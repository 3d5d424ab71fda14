"""Programs that hang for real, and programs that only seem to: what `bench_hangs` runs.

Each is the text of a function `stand()`, called after twenty quick steps; all ranks call it, and it knows `rank`. Programs that hang do so in
their first life only.
"""

#: Before every program: twenty steps, and a way to wait for the peers as a collective does.
HEAD = """
import ctypes, os, signal, subprocess, sys, threading, time
from penstock.process import pulse
rank, life, marks = int(os.environ["RANK"]), int(os.environ["PENSTOCK_INCARNATION"]), os.environ["MARKS"]
def steps(first, count):
    for step in range(first, first + count):
        pulse(step)
        time.sleep(0.02)
def wait_for(name):
    while not os.path.exists(f"{marks}/{name}"):
        time.sleep(0.1)
def finish(name):
    open(f"{marks}/{name}", "w").close()
def all_wait():
    threading.Event().wait()
"""
GLOO = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
"""
#: After it.
HANGS_TAIL = """
steps(0, 20)
if life == 0:
    stand()
"""
STALLS_TAIL = """
steps(0, 20)
stand()
steps(20, 20)
"""

#: Text, ranks, and whom the incident has to name; nothing for the gang.
HANGS: dict[str, tuple[str, int, int | None]] = {
    "gloo: rank 1 never comes to the all-reduce": (
        GLOO + "def stand():\n    dist.all_reduce(torch.ones(2)) if rank == 0 else time.sleep(10000)\n",
        2,
        1,
    ),
    "gloo: both ranks receive, nobody sends": (
        GLOO + "def stand():\n    dist.recv(torch.ones(2), src=1 - rank)\n",
        2,
        None,
    ),
    "C under the lock of the interpreter": (
        "def stand():\n    ctypes.PyDLL(None).sleep(10000) if rank == 1 else all_wait()\n",
        3,
        1,
    ),
    "a mutex of C, locked twice": (
        (
            "def stand():\n    if rank != 1: all_wait()\n    libc, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(64)\n"
            "    libc.pthread_mutex_lock(mutex); libc.pthread_mutex_lock(mutex)\n"
        ),
        3,
        1,
    ),
    "a regular expression that never ends": (
        "def stand():\n    import re\n    re.match('(a|a)*$', 'a' * 60 + 'b') if rank == 1 else all_wait()\n",
        3,
        1,
    ),
    "a lock of Python, taken twice": (
        "def stand():\n    lock = threading.Lock()\n    (lock.acquire(), lock.acquire()) if rank == 1 else all_wait()\n",
        3,
        1,
    ),
    "reads from a pipe that nobody writes": (
        "def stand():\n    os.read(os.pipe()[0], 1) if rank == 1 else all_wait()\n",
        3,
        1,
    ),
    "waits for a child that never ends": (
        "def stand():\n    subprocess.run(['sleep', '10000']) if rank == 1 else all_wait()\n",
        3,
        1,
    ),
    "waits for a thread, while a progress bar writes": (
        (
            "def bar():\n    while True:\n        sys.stderr.write('\\r42 %'); sys.stderr.flush(); time.sleep(1)\n"
            "def stand():\n    if rank != 1: all_wait()\n    one = threading.Thread(target=bar, daemon=True); one.start(); one.join()\n"
        ),
        3,
        1,
    ),
    "one rank alone, a lock between processes": (
        (
            "def stand():\n    import fcntl\n    child = os.fork()\n    file = open(f'{marks}/lock', 'w')\n    if child == 0:\n"
            "        fcntl.flock(file, fcntl.LOCK_EX); finish('locked'); time.sleep(10000)\n"
            "    wait_for('locked'); fcntl.flock(file, fcntl.LOCK_EX)\n"
        ),
        1,
        0,
    ),
}

#: Text, and what the benchmark does from outside meanwhile.
STALLS: dict[str, tuple[str, str]] = {
    "an evaluation of 14 s, idle": ("def stand():\n    time.sleep(14)\n", ""),
    "steps of 0.02 to 20 s": (
        "def stand():\n    for n in range(12):\n        pulse(20); time.sleep((0.1, 20, 3, 0.02)[n % 4])\n",
        "",
    ),
    "rank 0 saves for 80 s": (
        (
            "def stand():\n    if rank == 0:\n        with open(f'{marks}/saved', 'wb') as file:\n            for _ in range(80):\n"
            "                file.write(bytes(1 << 20)); file.flush(); time.sleep(1)\n        finish('save')\n    wait_for('save')\n"
        ),
        "",
    ),
    "rank 0 reads for 80 s": (
        (
            "def stand():\n    if rank == 0:\n        with open('/dev/zero', 'rb', 0) as file:\n            for _ in range(160):\n"
            "                file.read(1 << 18); time.sleep(0.5)\n        finish('read')\n    wait_for('read')\n"
        ),
        "",
    ),
    "a child of rank 0 writes for 80 s": (
        (
            "def stand():\n    if rank == 0:\n        line = 'for n in $(seq 80); do head -c 100000 /dev/zero; sleep 1; done > /dev/null'\n"
            "        subprocess.run(['sh', '-c', line]); finish('child')\n    wait_for('child')\n"
        ),
        "",
    ),
    "rank 0 evaluates in Python for 80 s": (
        (
            "def one(): time.sleep(1.3)\ndef two(): time.sleep(1.7)\ndef stand():\n    until = time.monotonic() + 80\n"
            "    while rank == 0 and time.monotonic() < until:\n        one(); two()\n    finish('python') if rank == 0 else wait_for('python')\n"
        ),
        "",
    ),
    "nobody reads the output for 80 s": (
        "def stand():\n    for _ in range(80):\n        os.write(1, b'y' * 65535 + b'\\n')\n",
        "unread",
    ),
    "both ranks are stopped for 80 s": ("def stand():\n    wait_for('go')\n", "stop"),
    "rank 1 is traced for 80 s": ("def stand():\n    wait_for('go')\n", "trace"),
    "the agent is stopped for 80 s": ("def stand():\n    wait_for('go')\n", "agent"),
}
