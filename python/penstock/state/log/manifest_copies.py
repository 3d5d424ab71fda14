"""Manifests are kept twice: a flipped bit in one of them costs nothing. The first copy is the one that others refer to."""

from penstock.errors import CheckpointDamaged, ObjectMissing
from penstock.state.manifest import Manifest, manifest_name, read_manifest
from penstock.store import Store


def manifest_copy_name(manifest: str) -> str:
    """Where the second copy of a manifest is kept."""
    return f"copies/{manifest_name(manifest)}"


def put_manifest(store: Store, manifest: str, data: bytes) -> None:
    """Put both copies of a manifest, whose digest is given. Nobody refers to it before its commit."""
    store.put_if_absent(manifest_name(manifest), data)
    store.put_if_absent(manifest_copy_name(manifest), data)


def get_manifest(store: Store, manifest: str) -> Manifest:
    """The manifest of a digest, from the copy that is whole. ``CheckpointDamaged`` says what is wrong with the first one."""
    problem: CheckpointDamaged | None = None
    for name in (manifest_name(manifest), manifest_copy_name(manifest)):
        try:
            return read_manifest(name, store.get(name), manifest)
        except ObjectMissing:
            problem = problem or CheckpointDamaged(file=name, reason="the manifest is missing")
        except CheckpointDamaged as damage:
            problem = (
                problem if problem is not None and problem.reason != "the manifest is missing" else damage
            )
    assert problem is not None, "there are two to look at"
    raise problem
