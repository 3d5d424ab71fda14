"""The glossary has each word once, with a meaning and a word that readers may know already."""

import pytest

from tests.conftest import ROOT

PAGE = ROOT / "docs/concepts/words.md"


def complaints(text: str) -> list[str]:
    """Words that stand there twice, and rows without one of the three cells."""
    rows = [
        line
        for line in text.splitlines()
        if line.startswith("|") and not line.startswith(("|---", "| word |"))
    ]
    words: set[str] = set()
    said = []
    for row in rows:
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        if len(cells) != 3 or not all(cells):
            said.append(f"{cells[0]}: wants a word, a meaning and what to think of it as")
        for word in cells[0].casefold().split(", "):
            # "Record (of a step)" is the word "record" again: it wants a name of its own.
            plain = word.partition(" (")[0]
            if plain in words:
                said.append(f"{plain}: stands there twice")
            words.add(plain)
    return said


def test_every_word_has_one_meaning() -> None:
    assert complaints(PAGE.read_text()) == []


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ("| Batch | another meaning | a batch |", "batch: stands there twice"),
        ("| Batch (of tokens) | another meaning | a batch |", "batch: stands there twice"),
        ("| Bucket, Lane | other meanings | lanes |", "lane: stands there twice"),
        ("| Bucket | where bytes live |", "Bucket: wants a word, a meaning and what to think of it as"),
        ("| Bucket | where bytes live | |", "Bucket: wants a word, a meaning and what to think of it as"),
    ],
)
def test_a_planted_row_is_named(row: str, complaint: str) -> None:
    assert complaints(f"{PAGE.read_text()}\n{row}\n") == [complaint]
