"""The root cyclopts app, with every command loaded only when it is called."""

from functools import cache

from cyclopts import App, CycloptsError

from penstock.cli.commands import COMMANDS
from penstock.errors import UsageError


@cache
def root() -> App:
    """All commands under one app; building it imports none of them."""
    app = App(name="penstock", version_flags=(), result_action="return_value")
    for command in COMMANDS:
        app.command(command.home, name=command.name)
    return app


def call(words: list[str]) -> int:
    """Run a command line whose first word is a known command."""
    try:
        code = root()(words, exit_on_error=False, print_error=False)
    except CycloptsError as problem:
        raise UsageError(
            _first_sentence(problem), hint=f"`penstock {words[0]} --help` shows the options"
        ) from problem
    return code if isinstance(code, int) else 0


def _first_sentence(problem: CycloptsError) -> str:
    text = " ".join(str(problem).split())
    return text[:1].lower() + text[1:].rstrip(".")
