"""Tables of Delta Lake, Iceberg, Hudi and Lance: folders in which a log says which files, and which rows of them, count.

Beside those that count lie files of earlier versions and lists of rows deleted since. Taken as plain files, such a table
would give rows that were removed from it, so it is refused: the whole table, a folder inside it, and a pattern that leads
into it. Files that are named one by one are taken.
"""

import os
import re

from penstock.errors import FileUnusable, StoreError
from penstock.registry.selection.candidates import Candidates
from penstock.store import is_remote, to_path
from penstock.store.remote import RemoteStore

#: What lies in the folder of a table, as a path below it -> whose table it is.
_MARKS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("Delta Lake", re.compile(r"_delta_log/[^/]+")),
    ("Iceberg", re.compile(r"metadata/(v\d+|\d+-[0-9a-f-]{36})(\.gz)?\.metadata\.json(\.gz)?")),
    ("Hudi", re.compile(r"\.hoodie/(hoodie\.properties|[^/]+\.commit)")),
    ("Lance", re.compile(r"_versions/\d+\.manifest")),
)
_LOGS = ("_delta_log", "metadata", ".hoodie", "_versions")
_LOG_OF_ANY = re.compile(r"(?:^|/)(?:_delta_log|metadata|\.hoodie|_versions)/")
#: Files on a store that make it worth asking: only these are ever data of such a table.
_ENDINGS = (".parquet", ".orc", ".avro", ".lance", ".arrow")
#: How many folders above what was named are asked for on a store, where each costs requests.
_FAR_FOLDERS_MAX = 4


def refuse_tables(candidates: Candidates) -> None:
    """Refuse files that were found below the folder of a table."""
    below = [candidate for candidate in candidates.files if not candidate.named]
    far = {
        candidate.base
        for candidate in below
        if is_remote(candidate.url) and candidate.url.lower().endswith(_ENDINGS)
    }
    near = {
        os.path.dirname(str(to_path(candidate.url))) for candidate in below if not is_remote(candidate.url)
    }
    seen: set[str] = set()
    for folder in sorted(near):
        here = folder
        # Ends at the top of the file system, or where another file has been.
        while here not in seen:
            seen.add(here)
            _refuse(here, _marks_near(here))
            here = os.path.dirname(here)
    _refuse_listed(
        [candidate.url for candidate in candidates.files] + [place for place, _ in candidates.left_out]
    )
    for top in sorted(far):
        here = top
        for _ in range(_FAR_FOLDERS_MAX):
            if here.count("/") < 2:
                break
            _refuse(here, _marks_far(here))
            here = here.rpartition("/")[0]


def _refuse_listed(places: list[str]) -> None:
    """What a listing brought anyway needs no further look."""
    for place in places:
        if (log := _LOG_OF_ANY.search(place)) is not None and is_remote(place):
            folder = place[: log.start()]
            _refuse(folder, [place[len(folder) + 1 :]])


def _refuse(folder: str, marks: list[str]) -> None:
    for owner, pattern in _MARKS:
        if any(pattern.fullmatch(mark) for mark in marks):
            raise FileUnusable(
                path=folder,
                reason=f"it is a table of {owner}, whose folder also has files and rows that are no longer part of it",
                hint="write the table out as plain parquet with its own reader, or name the files that count one by one",
            )


def _marks_near(folder: str) -> list[str]:
    marks = []
    for log in _LOGS:
        try:
            marks += [f"{log}/{name}" for name in os.listdir(os.path.join(folder, log))]
        except OSError:
            # Not there, or not for us: then it says nothing.
            continue
    return marks


def _marks_far(folder: str) -> list[str]:
    marks = []
    for log in _LOGS:
        try:
            entries, _ = RemoteStore(folder).entries_beginning(f"{log}/")
        except StoreError:
            # A key that may read one folder need not be one that may list those above it.
            continue
        marks += [entry.name for entry in entries]
    return marks
