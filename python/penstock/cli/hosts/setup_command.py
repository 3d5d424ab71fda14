"""``penstock hosts setup``: what the owner of an engine has to allow before hosts can be rented there."""

import json
import sys

from penstock.cli.output import command_app, say
from penstock.errors.root import UsageError
from penstock.process.engines.kubernetes.rights import RIGHTS, manifest

setup_app = command_app(
    "setup",
    "Print the rights that renting hosts needs, as a manifest for the owner of the cluster.",
    examples=(
        "  penstock hosts setup kubernetes --user ada\n"
        "  penstock hosts setup kubernetes --user ada --namespace research | kubectl apply -f -"
    ),
)


@setup_app.default
def setup(engine: str, *, user: str, namespace: str = "") -> int:
    """Print a role, and that a user has it. Nothing is changed.

    Parameters
    ----------
    engine
        ``kubernetes``. Slurm needs no rights beside those of everyone who submits jobs.
    user
        Who is to rent hosts, as the cluster calls that user.
    namespace
        Where (default: the namespace of whoever applies it).
    """
    if engine != "kubernetes":
        raise UsageError(
            f"the engine must be kubernetes, got {engine}",
            hint="Slurm needs no rights beside those of everyone who submits jobs",
        )
    sys.stdout.write(json.dumps(manifest(namespace, user), indent=2) + "\n")
    for right in RIGHTS:
        say(f"{', '.join(right.resources)}: {', '.join(right.verbs)} · {right.why}")
    return 0
