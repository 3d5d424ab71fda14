"""The rights that ``penstock run --on kubernetes`` needs, as a manifest. Pure."""

from collections.abc import Sequence
from typing import Any, NamedTuple

NAME = "penstock"


class Right(NamedTuple):
    """What may be done with some kind of object, and what for."""

    group: str
    resources: Sequence[str]
    verbs: Sequence[str]
    why: str


RIGHTS = (
    Right("batch", ("jobs",), ("create", "get", "list", "patch", "delete"), "the job is one Indexed Job"),
    Right(
        "",
        ("pods",),
        ("get", "list", "delete"),
        "looking at hosts; a pod is deleted when its lease has ended",
    ),
    Right("", ("pods/log",), ("get",), "the output of the ranks"),
    Right("", ("pods/exec",), ("create", "get"), "penstock ps, logs, stacks, stop from outside"),
    Right(
        "",
        ("secrets", "services"),
        ("create", "get", "patch", "delete"),
        "the key of the hosts, and their names",
    ),
)


def manifest(namespace: str, user: str) -> dict[str, Any]:
    """A role, and who has it; for the owner of the cluster to apply."""
    rules = [
        {"apiGroups": [right.group], "resources": list(right.resources), "verbs": list(right.verbs)}
        for right in RIGHTS
    ]
    about = {"name": NAME, **({"namespace": namespace} if namespace else {})}
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": about, "rules": rules}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": about,
        "subjects": [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}],
        "roleRef": {"kind": "Role", "name": NAME, "apiGroup": "rbac.authorization.k8s.io"},
    }
    return {"apiVersion": "v1", "kind": "List", "items": [role, binding]}
