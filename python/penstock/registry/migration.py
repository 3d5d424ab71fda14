"""Migration: documents of an older form are read for ever, and can be rewritten in the current one.

A rule turns a document of form n, as plain values, into form n + 1. Rules are only ever added. Rewriting a manifest gives
it another digest, so a migrated version is published as a new one whose ``derived_from`` names the old; nothing is
changed in place, and cursors and lineage that name the old digest keep their meaning.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import ManifestNewer
from penstock.registry.manifest import FORM, Manifest
from penstock.registry.scan.scan import object_name
from penstock.registry.version_entry import About

if TYPE_CHECKING:
    from penstock.registry.registry import Registry
    from penstock.registry.version import Version

Rule = Callable[[dict[str, Any]], dict[str, Any]]
#: Form -> the rule that leads to the next one. Form 1 is the first, so there is none yet.
RULES: dict[int, Rule] = {}


@dataclass(frozen=True, slots=True)
class Migrated:
    """What became of a version."""

    before: str
    after: str
    form_before: int
    form_after: int


def upgrade(
    document: dict[str, Any], *, name: str, rules: Mapping[int, Rule] = RULES, newest: int = FORM
) -> dict[str, Any]:
    """A document in the newest form, whatever form it has."""
    form = int(document["form"])
    if form > newest:
        raise ManifestNewer(name=name, found=form, known=newest)
    while form < newest:
        document = rules[form](document)
        assert document["form"] == form + 1, f"the rule from form {form} led to form {document['form']}"
        form += 1
    return document


def migrate(registry: "Registry", version: "Version", *, rules: Mapping[int, Rule] = RULES) -> Migrated:
    """Publish a version in the current form; one that is current already stays as it is."""
    stored = msgspec.json.decode(registry.store.get(object_name(version.digest)))
    form = int(stored["form"])
    if form == FORM:
        return Migrated(version.address, version.address, form, form)
    manifest = msgspec.convert(upgrade(stored, name=version.address, rules=rules), Manifest)
    about = About(
        note=f"{version.address} in form {FORM}",
        owner=version.about.owner,
        licence=version.about.licence,
        derived_from=(version.digest,),
    )
    published = registry.publish(version.name, manifest, root=version.roots[0], about=about)
    return Migrated(version.address, published.address, form, FORM)
