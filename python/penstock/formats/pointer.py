"""Small texts that stand where a file should be: what Git LFS, git-annex and DVC leave in a clone without its data.

As a text, a document or a picture such a pointer would even be a row, so every small file is looked at.
"""

import re

from penstock.errors import FileUnusable
from penstock.formats.contract import RawFile

#: Pointers are shorter.
POINTER_BYTES_MAX = 1024
#: How it begins -> whose pointer it is, and how the file is fetched.
_KINDS: tuple[tuple[re.Pattern[bytes], str, str], ...] = (
    (
        re.compile(rb"version https://(git-lfs\.github\.com|hawser\.github\.com)/spec/"),
        "Git LFS",
        "git lfs pull",
    ),
    (re.compile(rb"/annex/objects/[A-Z0-9_]+-[^\s/]*--[^\s/]+\n?\Z"), "git-annex", "git annex get"),
)
_DVC = re.compile(rb"^outs:\s*$", re.MULTILINE)


def refuse_pointer(raw: RawFile, head: bytes) -> None:
    """Refuse a pointer, given its beginning."""
    kinds = ((owner, fetch) for pattern, owner, fetch in _KINDS if pattern.match(head))
    owner, fetch = next(kinds, ("", ""))
    if raw.name.endswith(".dvc") and _DVC.search(head):
        owner, fetch = "DVC", "dvc pull"
    if owner and raw.size_bytes <= POINTER_BYTES_MAX:
        reason = f"it is a pointer of {owner}, not the file"
        raise FileUnusable(path=raw.url, reason=reason, hint=f"fetch the files with `{fetch}`")


def refuse_pointers(raw: RawFile) -> None:
    """Look at a shard, or at every file that it is made of."""
    for file in raw.members or (raw,):
        if 0 < file.size_bytes <= POINTER_BYTES_MAX:
            refuse_pointer(file, file.read(0, file.size_bytes))
