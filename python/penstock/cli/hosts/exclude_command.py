"""``penstock hosts exclude``: leave a host out of all jobs until somebody includes it."""

import time
from typing import Annotated

from cyclopts import Parameter

from penstock.cli.hosts.excluded_command import History
from penstock.cli.job.home import home
from penstock.cli.output import command_app, say
from penstock.errors import UsageError
from penstock.process.exclusion.history import open_history, pasts
from penstock.process.exclusion.identity import HostIdentity
from penstock.process.exclusion.records import EXCLUDED, new_record
from penstock.process.hosts.host_names import expand
from penstock.process.job import units

exclude_app = command_app(
    "exclude",
    "Leave a host out of all jobs, until it is included or the time is over.",
    examples="  penstock hosts exclude gpu07 --why 'fan is noisy'\n  penstock hosts exclude 'gpu[07-08]' --why moved --for 3d",
)
DAY_S = 86_400.0


@exclude_app.default
def exclude(
    hosts: str,
    *,
    why: Annotated[str, Parameter(help="Shown wherever the host is left out.")],
    for_: Annotated[
        str | None, Parameter(name="--for", help="Until then, as in 12h or 3d (default: for good).")
    ] = None,
    host_history: History = None,
) -> int:
    """Where it is known which machine has the name, that machine is left out, whatever it is called later.

    Parameters
    ----------
    hosts
        Names, or a pattern such as gpu[07-08].
    """
    if not why.strip():
        raise UsageError("--why must say why")
    until = 0.0 if for_ is None else time.time() + _seconds(for_)
    history = open_history(home(), host_history)
    known = pasts(history)
    records = []
    for name in expand(hosts, option="HOSTS"):
        past = known.named(name)
        identity = past.identity if past is not None else HostIdentity()
        records.append(new_record(EXCLUDED, name, why, identity=identity, until=until))
        if not identity.is_known:
            say(f"note: no job has seen {name} yet, so it is excluded by its name")
    history.append(records)
    return 0


def _seconds(text: str) -> float:
    days = text.removesuffix("d")
    seconds = float(days) * DAY_S if text.endswith("d") and days.isdecimal() else units.second_count(text)
    if not seconds:
        raise UsageError(f"--for must be a time above 0, as in 12h or 3d, got {text}")
    return seconds
