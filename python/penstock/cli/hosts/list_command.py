"""``penstock hosts list``: the hosts of a job, as its leader sees them."""

import msgspec

from penstock.cli.hosts.host_choice import running_hosts_job
from penstock.cli.output import Json, command_app, print_json, print_table, say
from penstock.cli.questions.process_table import span
from penstock.process.hosts.host_table import HostRow, host_table

list_app = command_app(
    "list",
    "Show the hosts of a job: host rank, state, address, who votes and who leads.",
    examples="  penstock hosts list train-3f2a\n  penstock hosts list train-3f2a --json | jq -r .name",
)


@list_app.default
def list_(job: str, *, json: Json = False) -> int:
    """Ask on any host of the job. A host that is not heard is ``unheard``; it keeps its ranks until its lease ends.

    Parameters
    ----------
    job
        Name of the job, or how it begins.
    """
    chosen = running_hosts_job(job, "hosts list")
    table = host_table(chosen)
    hosts = table.hosts or []
    if json:
        for host in hosts:
            print_json({**msgspec.to_builtins(host), "leader": host.name == table.leader})
        return 0
    if not hosts:
        say(f"{chosen.id}: {table.line()}")
        return 0
    racks = any(host.rack for host in hosts)
    shown = [
        (
            _or_dash(host.rank),
            host.name,
            *([host.rack] if racks else []),
            host.state,
            span(host.since_s),
            host.slots,
            host.address,
            _part(host, table.leader),
        )
        for host in hosts
    ]
    heads = ["host rank", "host", *(["rack"] if racks else []), "state", "for", "slots", "address", "part"]
    print_table(heads, shown, right=["host rank", "for", "slots"])
    say(f"{chosen.id}: {table.line()}")
    for host in hosts:
        if host.trouble:
            say(f"{host.name}: {host.trouble}")
    return 0


def _part(host: HostRow, leader: str | None) -> str:
    if host.name == leader:
        return "leads"
    return "votes" if host.voter else ""


def _or_dash(value: int | None) -> object:
    return "-" if value is None else value
