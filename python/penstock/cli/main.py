"""Entry point: fast answers first, then one command, then errors as sentences.

Exit codes: 0 done, 1 a check found something wrong or the work failed, 2 bad input, 130 interrupted.
"""

import os
import signal
import sys
from collections.abc import Sequence

from penstock.cli.commands import COMMANDS, overview
from penstock.cli.escape import harmless
from penstock.errors import JobElsewhere, NameUnwritable, PenstockError, UsageError

EXIT_INTERRUPTED = 130
#: Set where a command was carried to a host of its job.
REACHED = "PENSTOCK_REACHED"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    _open_closed_streams()
    debug = _take_debug(words)
    _let_streams_take_anything()
    try:
        code = _dispatch(words)
        if sys.stdout is not None:
            # Now, while what goes wrong can still be said.
            sys.stdout.flush()
        return code
    except JobElsewhere as problem:
        if debug:
            raise
        if problem.reach and REACHED not in os.environ:
            return _reach(problem.reach, words)
        _say(problem)
        return problem.exit_code
    except PenstockError as problem:
        if debug:
            raise
        _say(problem)
        return problem.exit_code
    except UnicodeEncodeError as problem:
        if debug:
            raise
        _say(NameUnwritable(name=problem.object, encoding=problem.encoding))
        return NameUnwritable.exit_code
    except KeyboardInterrupt:
        if debug:
            raise
        print("interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of our output left (`penstock events … | head`); that is no failure of ours.
        _drop_output()
        return 128 + signal.SIGPIPE
    except OSError as problem:
        # Files that a command reads and writes have errors of ours; what is left is mostly the output (`… > /full/disk`).
        if debug:
            raise
        if _is_adrift():
            gone = UsageError(
                "the directory that this command was started in is gone", hint="change to one that is there"
            )
            _say(gone)
            return gone.exit_code
        what = "standard output" if problem.filename is None else problem.filename
        print(f"error: {what}: {problem.strerror or problem}", file=sys.stderr)
        _drop_output()
        return 1


def _reach(reach: Sequence[str], words: Sequence[str]) -> int:
    """The same command on a host of the job; there it does not go further."""
    import subprocess

    code = subprocess.run([*reach, *words], env={**os.environ, REACHED: "1"}, check=False).returncode
    # A job that has ended takes its pod along, and what was asked there with it.
    return 0 if words[0] == "stop" and code == 128 + signal.SIGKILL else code


def _is_adrift() -> bool:
    """Whether the current directory was removed: then no relative path leads anywhere, and Python only says that some file is missing."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _drop_output() -> None:
    """What is still to be written goes nowhere, so that Python's own flush at the end does not fail again."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("--help", "-h", "help"):
        print(overview())
        return 0
    if words[0] == "--version":
        from penstock import __version__

        print(f"penstock {__version__}")
        return 0
    known = {command.name: command for command in COMMANDS}
    if words[0] not in known:
        raise UsageError(f"unknown command {words[0]!r}", hint=_did_you_mean(words[0], list(known)))
    quick = known[words[0]].quick
    if quick is not None:
        from importlib import import_module

        module, _, name = quick.partition(":")
        code: int = getattr(import_module(module), name)(words[1:])
        return code
    from penstock.cli.root import call

    return call(words)


def _did_you_mean(word: str, known: list[str]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(word, known, n=1)
    return f"did you mean `penstock {close[0]}`?" if close else "`penstock --help` lists the commands"


def _take_debug(words: list[str]) -> bool:
    """Removes ``--debug``; what follows ``--``, or the program of ``run``, belongs to somebody else's program."""
    ours = words[: words.index("--")] if "--" in words else words
    if "--debug" not in ours:
        return False
    if words[0] == "run":
        from penstock.cli.run.options import read

        if "--debug" not in read(words[1:], {}).aside:
            return False
    words.remove("--debug")
    return True


def _open_closed_streams() -> None:
    """What is closed (``>&-``) becomes a place where everything fits: else the next file that is opened would take its number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            try:
                os.fstat(number)
            except OSError:
                # The lowest number that is free: this one.
                os.open(os.devnull, os.O_RDWR)
                setattr(sys, name, os.fdopen(number, "r" if number == 0 else "w", closefd=False))


def _let_streams_take_anything() -> None:
    """What the encoding of a terminal or a pipe lacks is written as an escape, such as ``\\u2713``, and never ends a command."""
    for stream in (sys.stdout, sys.stderr):
        # Streams that a test or an embedding program has put there may be of any kind.
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def _say(problem: PenstockError) -> None:
    print(harmless(f"error: {problem}"), file=sys.stderr)
    if problem.hint:
        print(harmless(f"\nhint: {problem.hint}"), file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
