"""Splits of a folder: train, validation, test. They are never mixed by accident.

What ``DatasetDict.save_to_disk`` writes says so itself, in ``dataset_dict.json``. Otherwise the names do, by the rules of the
Hugging Face Hub: ``train-00000-of-00002.parquet``, ``data/test.jsonl``, ``validation/part-0.arrow``.
"""

import re

#: What names are taken for a split, as the Hub does.
_KEYWORDS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test", "testing", "eval", "evaluation"),
}
_OF = {word: split for split, words in _KEYWORDS.items() for word in words}
_NUMBERED = re.compile(r"(?P<split>\w+)-\d{5}-of-\d{5}(?:[-.].*)?")
_WORDS = re.compile(r"[^-._ 0-9]+")
#: The field that says of which split a row is, when several are taken.
FIELD = "split"
ALL = "all"
#: The split that is learned from; others are held out.
TRAIN = "train"


def split_of(name: str, declared: dict[str, list[str]]) -> str | None:
    """The split of a file, from its name below the folder that was given; None if it has none.

    ``declared`` are the folders that say themselves which splits they have: folder (with a slash, or empty) -> splits.
    """
    for folder, splits in declared.items():
        if name.startswith(folder):
            first = name[len(folder) :].partition("/")[0]
            return first if first in splits else None
    *folders, last = name.split("/")
    numbered = _NUMBERED.fullmatch(last)
    if numbered is not None and _keyword(numbered["split"]) is not None:
        return numbered["split"]
    # As the Hub reads `wiki.train.tokens`: every word but the ending counts.
    stem = last.rpartition(".")[0] or last
    return next((split for part in (stem, *reversed(folders)) if (split := _keyword(part)) is not None), None)


def _keyword(part: str) -> str | None:
    # The first word counts: `train-of-thought` is a name like any other, but so rarely one that asking is right.
    return next((_OF[word] for word in _WORDS.findall(part.lower()) if word in _OF), None)
