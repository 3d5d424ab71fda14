"""``penstock hosts include``: use a host again."""

from penstock.cli.hosts.excluded_command import History
from penstock.cli.job.home import home
from penstock.cli.output import command_app, say
from penstock.errors import UsageError
from penstock.process.exclusion.history import open_history, pasts
from penstock.process.exclusion.records import INCLUDED, new_record
from penstock.process.hosts.host_names import expand

include_app = command_app(
    "include",
    "Use a host again: what it has shown so far counts no more.",
    examples="  penstock hosts include gpu07\n  penstock hosts include 'gpu[01-16]'",
)


@include_app.default
def include(hosts: str, *, why: str = "", host_history: History = None) -> int:
    """The machine that has the name now, and the one that was excluded under it.

    Parameters
    ----------
    hosts
        Names, or a pattern such as gpu[07-08].
    why
        Written down beside it.
    """
    history = open_history(home(), host_history)
    known = pasts(history)
    records = []
    for name in expand(hosts, option="HOSTS"):
        called = [past for past in known.excluded() if any(record.host == name for record in past.records)]
        those = [past for past in known.all if past.name == name] + [
            past for past in called if past.name != name
        ]
        if not those:
            raise UsageError(
                f"nothing is known of a host {name}",
                hint="`penstock hosts excluded --all` lists those that are",
            )
        records += [new_record(INCLUDED, name, why, identity=past.identity) for past in those]
        if not any(past.exclusion for past in those):
            say(f"note: {name} was not excluded")
    history.append(records)
    return 0
