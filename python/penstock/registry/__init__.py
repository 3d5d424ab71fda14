"""The registry: names, immutable versions, tags and lineage, on any store and without a server."""

from penstock.registry.manifest import Field, Manifest, Shard
from penstock.registry.registry import Registry
from penstock.registry.version import Version
from penstock.registry.version_entry import About

__all__ = ["About", "Field", "Manifest", "Registry", "Shard", "Version"]
