"""Which files a checkpoint names. Manifests never change, so each is read once."""

from penstock._rust import digest
from penstock.state.log.manifest_copies import get_manifest
from penstock.state.log.records import Commit
from penstock.state.manifest import Manifest
from penstock.state.save.duplicates import duplicate_files
from penstock.store import Store

#: Manifests whose names are kept; checkpoints that exist at the same time are usually a handful.
REMEMBERED_MAX = 1024


class References:
    """The files that each checkpoint names, read once per manifest."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, dict[str, int]] = {}

    def of(self, commit: Commit) -> dict[str, int]:
        """Bytes of every file of this place that a checkpoint names, by name. Those of other places are not ours to count.

        Raises ``CheckpointDamaged`` when the manifest is missing or is not what was committed.
        """
        known = self._known.get(commit.manifest)
        if known is not None:
            return known
        return self._remember(commit.manifest, get_manifest(self._store, commit.manifest))

    def remember(self, manifest: Manifest) -> None:
        """Take note of a manifest that is at hand, so that it need not be read."""
        self._remember(digest(manifest.encode()), manifest)

    def _remember(self, manifest_digest: str, manifest: Manifest) -> dict[str, int]:
        named = {file.name: file.bytes for file in manifest.files} | duplicate_files(manifest)
        names = {name: bytes_ for name, bytes_ in named.items() if is_ours(name)}
        self._known[manifest_digest] = names
        while len(self._known) > REMEMBERED_MAX:
            del self._known[next(iter(self._known))]
        return names


def is_ours(name: str) -> bool:
    """Whether a file is below the place of the checkpoints, not in that of another run."""
    return "://" not in name
