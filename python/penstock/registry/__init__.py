"""The registry: names, immutable versions, tags and lineage, on any store and without a server."""

from penstock.registry.manifest import Field, Manifest, Shard
from penstock.registry.record import About
from penstock.registry.registry import Registry
from penstock.registry.version import Version

__all__ = ["About", "Field", "Manifest", "Registry", "Shard", "Version"]
