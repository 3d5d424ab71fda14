"""``penstock data tag`` and ``migrate``: what versions are called, and the form in which they are written."""

from penstock.cli.output import Json, command_app, print_json, print_table, say
from penstock.cli.registry_place import Place, open_registry

tag_app = command_app(
    "tag",
    "Let a name stand for a version, as in web@gold.",
    examples="  penstock data tag web@3 gold\n  penstock data rows web@gold",
)


@tag_app.default
def tag_version(address: str, name: str, *, registry: Place = None, json: Json = False) -> int:
    """Moving a tag keeps its history in the registry.

    Parameters
    ----------
    address
        Which version: web@3.
    name
        The tag: a word that is neither a number nor a digest.
    """
    version = open_registry(registry).tag(address, name)
    if json:
        print_json({"address": version.address, "tag": name})
    else:
        say(f"{version.name}@{name} is {version.address}")
    return 0


migrate_app = command_app(
    "migrate",
    "Rewrite versions of an older form in the current one.",
    examples="  penstock data migrate\n  penstock data migrate web@1",
)


@migrate_app.default
def migrate_versions(address: str | None = None, *, registry: Place = None, json: Json = False) -> int:
    """Older forms are read for ever; this publishes them anew, with lineage.

    Parameters
    ----------
    address
        Which version; without one, the newest of every dataset.
    """
    opened = open_registry(registry)
    done = [opened.migrate(dataset) for dataset in ([address] if address is not None else opened.datasets())]
    if json:
        print_json(
            [
                {
                    "before": m.before,
                    "after": m.after,
                    "form_before": m.form_before,
                    "form_after": m.form_after,
                }
                for m in done
            ]
        )
    else:
        rows = [(m.before, m.form_before, m.after if m.after != m.before else "is current") for m in done]
        print_table(["version", "form", "now"], rows)
    return 0
