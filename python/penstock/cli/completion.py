"""``penstock completion``: tab completion for a shell."""

from typing import Literal

from penstock.cli.output import Json, command_app, print_json
from penstock.cli.root import root

app = command_app(
    "completion",
    "Print the completion script for a shell.",
    examples=(
        "  penstock completion bash > ~/.local/share/bash-completion/completions/penstock\n"
        "  penstock completion zsh > ~/.zfunc/_penstock"
    ),
)


@app.default
def completion(shell: Literal["bash", "zsh", "fish"], *, json: Json = False) -> int:
    """Print the script; put it where the shell looks for completions.

    Parameters
    ----------
    shell
        The shell that will read the script.
    """
    script = root().generate_completion(shell=shell)
    if json:
        print_json({"shell": shell, "script": script})
    else:
        print(script)
    return 0
