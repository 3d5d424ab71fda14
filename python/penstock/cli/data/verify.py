"""``penstock data verify``: every byte of a version, all damage named."""

from penstock.cli.output import Json, command_app, print_json, print_table, say
from penstock.cli.progress import progress
from penstock.cli.registry_place import Place, open_registry
from penstock.report.quantities import size as as_size

verify_app = command_app(
    "verify",
    "Read every byte of a version and report all damage with file and offset.",
    examples="  penstock data verify web@3\n  penstock data verify web@3 --json",
)


@verify_app.default
def verify_version(address: str, *, registry: Place = None, json: Json = False) -> int:
    """Exit code 0 when everything is as registered, 1 when it is not.

    Parameters
    ----------
    address
        Which version: web@3.
    """
    version = open_registry(registry).resolve(address)
    with progress(f"verifying {version.address}", "bytes", quiet=json) as tell:
        report = version.verify(tell)
    if json:
        print_json(report.to_json())
    elif report.ok:
        say(f"{version.address} is as registered: {report.shards} shards, {as_size(report.bytes)}")
    else:
        print_table(
            ["file", "byte", "what is wrong"],
            [(d.file, d.offset, d.reason) for d in report.damages],
            right=["byte"],
        )
        say(f"{len(report.damages)} places are not as registered")
    return 0 if report.ok else 1
