"""Lineage: what a version came from, and what was made from it."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.registry.registry import Registry
    from penstock.registry.version import Version

_DEPTH_MAX = 100


@dataclass(frozen=True, slots=True)
class Lineage:
    """A version with the versions it came from (recursively) and those made from it (directly)."""

    #: ``web@3`` for a version of this registry, else the digest that was recorded.
    address: str
    digest: str
    parents: list["Lineage"] = field(default_factory=list)
    children: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """The tree as plain values."""
        parents = [parent.to_json() for parent in self.parents]
        return {"address": self.address, "digest": self.digest, "parents": parents, "children": self.children}


def trace(registry: "Registry", version: "Version") -> Lineage:
    """Follow ``derived_from`` upward, and look for versions that name this one."""
    known: dict[str, Version] = {}
    for name in registry.listed_datasets():
        for other in registry.versions(name):
            known.setdefault(other.digest, other)
    children = sorted(v.address for v in known.values() if version.digest in v.about.derived_from)
    upward = _parents(version.about.derived_from, known, _DEPTH_MAX)
    return Lineage(version.address, version.digest, upward, children)


def _parents(digests: tuple[str, ...], known: "dict[str, Version]", depth: int) -> list[Lineage]:
    parents = []
    for digest in digests:
        version = known.get(digest)
        above = (
            _parents(version.about.derived_from, known, depth - 1)
            if version is not None and depth > 0
            else []
        )
        parents.append(Lineage(version.address if version is not None else digest, digest, above))
    return parents
