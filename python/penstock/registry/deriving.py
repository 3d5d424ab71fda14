"""
Derived copies: made once, content-addressed, and made again when somebody pruned them.

A copy follows from its original alone, so making it again gives the same bytes; if it does not, the original is not what
was registered, and that is what the error says.
"""

import tempfile
from pathlib import Path

from penstock._rust import digest_file
from penstock.errors import CorruptShard
from penstock.formats import format_named
from penstock.formats.contract import Policy, RawFile
from penstock.registry.manifest import Shard
from penstock.registry.scanning import object_name
from penstock.store import Store


def remake(raw: RawFile, format_name: str, shard: Shard, registry: Store) -> None:
    """Scan the original again for its copy, and put the copy back."""
    policy = Policy(skip_bad=1 << 62)
    with tempfile.TemporaryDirectory(prefix="penstock-remake-", dir=registry.local_path("work")) as folder:
        scanned = format_named(format_name).scan(raw, policy, Path(folder), lambda *_: None)
        if scanned.derived is None or digest_file(scanned.derived) != shard.derived:
            reason = "a copy made from it is not the copy that was made when it was registered"
            raise CorruptShard(shard=raw.url, offset=0, reason=reason)
        registry.put_file_if_absent(object_name(shard.derived, "derived"), scanned.derived)
