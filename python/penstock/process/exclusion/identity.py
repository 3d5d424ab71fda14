"""Who a host is, whatever it is called: its machine id, what its board and network cards say, and the UUIDs of its GPUs.

Images are cloned with their /etc/machine-id, so that id alone is not believed: two machines with other boards or other cards are two, and one
GPU is never in two machines. In a pod the image's id says nothing of the node; there it is what the pod was told (``PENSTOCK_MACHINE_ID``).
Ids are kept as digests, because systemd asks not to pass them on.
"""

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from penstock.process.health.facts.gpu_facts import gpu_uuids

#: What a pod is told of its node (``status.nodeInfo.machineID``, ``spec.nodeName``).
MACHINE_VARIABLE = "PENSTOCK_MACHINE_ID"
NODE_VARIABLES = ("PENSTOCK_NODE_NAME", "NODE_NAME")
_POD = "KUBERNETES_SERVICE_HOST"
#: Boards that were never given a number of their own.
_JUNK_BOARDS = frozenset(
    {"03000200-0400-0500-0006-000700080009", "00020003-0004-0005-0006-000700080009", "not settable", "none"}
)
_DIGEST_LETTERS = 16
_CARDS_MAX = 16


class HostIdentity(msgspec.Struct, frozen=True, omit_defaults=True):
    """What two looks at one machine have in common. Empty: not known."""

    #: What people call it; a node's name, never a pod's.
    name: str = ""
    machine: str = ""
    board: str = ""
    #: Addresses that network cards were made with.
    cards: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()

    @property
    def is_known(self) -> bool:
        """Whether there is anything to recognise it by but its name."""
        return bool(self.machine or self.board or self.cards or self.gpus)


def is_same_machine(one: HostIdentity, two: HostIdentity) -> bool:
    """Whether two identities are of one machine, or of two that had the same GPU.

    Equal machine ids need something beside them: the board, a card, a GPU, or at least the same name.
    """
    if set(one.gpus) & set(two.gpus):
        return True
    shares_card = bool(set(one.cards) & set(two.cards))
    other_board = bool(one.board and two.board and one.board != two.board)
    other_cards = bool(one.cards and two.cards and not shares_card)
    other_id = bool(one.machine and two.machine and one.machine != two.machine)
    if other_board or other_cards or other_id:
        return False
    if shares_card or (one.board and one.board == two.board):
        return True
    has_other_gpus = bool(one.gpus and two.gpus)
    same_name = not (one.name and two.name) or one.name == two.name
    return bool(one.machine and two.machine) and same_name and not has_other_gpus


def own_identity(
    environment: Mapping[str, str], *, root: Path = Path("/"), gpus: Sequence[str] | None = None
) -> HostIdentity:
    """Who this host is. ``gpus``: UUIDs that are known already."""
    in_pod = _POD in environment
    stated = environment.get(MACHINE_VARIABLE, "")
    machine = stated or ("" if in_pod else _line(root / "etc/machine-id"))
    named = next((environment[name] for name in NODE_VARIABLES if environment.get(name)), "")
    board = _line(root / "sys/class/dmi/id/product_uuid").lower()
    return HostIdentity(
        name=named or ("" if in_pod else os.uname().nodename.partition(".")[0]),
        machine=_digest("machine", machine) if _is_id(machine) else "",
        board=_digest("board", board) if _is_id(board) and board not in _JUNK_BOARDS else "",
        cards=_cards(root / "sys/class/net"),
        gpus=tuple(gpu_uuids(root) if gpus is None else gpus),
    )


def _is_id(text: str) -> bool:
    # "uninitialized" stands in images that have not begun yet; all zeros or all f are no number.
    letters = set(text.lower().replace("-", ""))
    return len(text) >= 8 and len(letters) > 1 and text != "uninitialized"


def _digest(kind: str, text: str) -> str:
    return hashlib.sha256(f"penstock {kind} {text}".encode()).hexdigest()[:_DIGEST_LETTERS]


def _line(path: Path) -> str:
    try:
        return path.read_text(errors="replace").partition("\n")[0].strip()[:200]
    except OSError:
        return ""


def _cards(folder: Path) -> tuple[str, ...]:
    """Cards that are hardware, with the address that they were made with: bridges, veths and random ones change with each start."""
    digests = []
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return ()
    for name in names:
        card = folder / name
        address = _line(card / "address").lower()
        is_address = re.fullmatch(r"[0-9a-f]{2}(:[0-9a-f]{2}){5,19}", address) and address.strip("0:")
        # 0: the card came with it; random and copied ones change with each start.
        if is_address and (card / "device").exists() and _line(card / "addr_assign_type") == "0":
            digests.append(_digest("card", address))
    return tuple(sorted(set(digests))[:_CARDS_MAX])
