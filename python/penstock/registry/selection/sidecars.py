"""Files that other tools and people leave beside data: marks, sums, descriptions, backups, unfinished downloads.

They are known by name. In a folder or behind a pattern they are left out, with a reason; a file that is named itself is
always taken.
"""

import fnmatch
import re

from penstock.formats.detection import ending_of

#: Pattern of the file's own name -> why it is no data. The first that matches counts.
_KINDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("a mark of the engine that wrote the folder", ("_SUCCESS", "_started_*", "_committed_*", "_FAILURE")),
    ("a summary of the files beside it", ("_metadata", "_common_metadata", "*.safetensors.index.json")),
    ("checksums", ("*.crc", "*.md5", "*.sha1", "*.sha256", "*.sha512", "SHA256SUMS", "MD5SUMS")),
    ("an unfinished download", ("*.incomplete", "*.crdownload", "*.partial", "*.part", "*.aria2", "*.!qB")),
    ("a temporary file", ("*.tmp", "*.temp", "*.swp", "*.swo")),
    ("a backup of another file", ("*~", "*.bak", "*.backup", "*.orig", "*.old", "#*#")),
    ("a lock", ("*.lock",)),
    ("a pointer of DVC to data that `dvc pull` fetches", ("*.dvc", "dvc.yaml")),
    ("a cache of Hugging Face datasets", ("cache-????????????????.arrow", "cache-????????????????_*.arrow")),
    ("left by the operating system", ("Thumbs.db", "desktop.ini")),
    (
        "a description of the dataset",
        (
            "dataset_info.json",
            "dataset_infos.json",
            "dataset_dict.json",
            "state.json",
            "croissant.json",
            "features.json",
            "*.labels.txt",
        ),
    ),
    (
        "a description of the dataset",
        ("LICENSE*", "LICENCE*", "COPYING*", "NOTICE", "NOTICE.*", "CITATION.*", "CODEOWNERS"),
    ),
)
#: Folders that are never data.
_FOLDERS = {
    "_temporary": "unfinished output of an engine",
    "_spark_metadata": "a mark of the engine that wrote the folder",
    "__MACOSX": "left by the operating system",
    "__pycache__": "left by Python",
    "lost+found": "left by the operating system",
}
_README = ("README", "README.*", "DATASET_CARD.*")
_PROSE = (".md", ".rst")


def _any_of(patterns: tuple[str, ...]) -> str:
    return "|".join(fnmatch.translate(pattern) for pattern in patterns)


#: All patterns as one, since a folder may have millions of files; the group that matched says why.
_BESIDE = re.compile("|".join(f"(?P<k{at}>{_any_of(patterns)})" for at, (_, patterns) in enumerate(_KINDS)))
_IS_README = re.compile(_any_of(_README), re.IGNORECASE)


def why_beside(name: str) -> str | None:
    """Why a file is no data, from its name; None if it may be."""
    *folders, last = name.split("/")
    for folder in folders:
        if folder in _FOLDERS:
            return _FOLDERS[folder]
    if (match := _BESIDE.match(last)) is not None and match.lastgroup is not None:
        return _KINDS[int(match.lastgroup.removeprefix("k"))][0]
    return "a description of the dataset" if _IS_README.match(last) else None


def is_readme_among(name: str, others: set[str]) -> bool:
    """Whether a README is one of many documents: where others of its kind are data, it is too."""
    last = name.rpartition("/")[2]
    if _IS_README.match(last) is None:
        return False
    return last.lower().endswith(_PROSE) and ending_of(last) in others
