"""A table of processes is made as narrow as a terminal, and says the most that fits."""

from rich.cells import cell_len

from penstock.cli.questions.table_fit import GAP, fitted

HEADS = ["what", "host", "pid", "state", "start", "command"]
SPARE = ("start", "pid")
ROWS = [
    ["job", "", "", "running", "", "as asked for"],
    ["  rank-0", "gpu01", "28", "sleeps", "exec", "/usr/bin/python train.py --rate 0.1 · größe"],
]


def _width(heads: list[str], rows: list[list[str]]) -> int:
    widths = [max(map(cell_len, column)) for column in zip(heads, *rows, strict=True)]
    return sum(widths) + GAP * (len(widths) - 1)


def test_columns_that_are_missed_least_go_first_and_the_last_is_cut() -> None:
    """Method: every width from one that has all to one that has the first columns alone."""
    whole = _width(HEADS, ROWS)
    assert fitted(HEADS, ROWS, columns=whole, spare=SPARE) == (HEADS, ROWS)
    seen = []
    for columns in range(whole, 25, -1):
        heads, rows = fitted(HEADS, ROWS, columns=columns, spare=SPARE)
        assert _width(heads, rows) <= columns, (columns, heads)
        if heads not in seen:
            seen.append(heads)
    assert seen == [
        HEADS,
        ["what", "host", "pid", "state", "command"],
        ["what", "host", "state", "command"],
        ["what", "host", "state"],
    ]


def test_a_column_without_a_word_goes_at_any_width() -> None:
    rows = [[*row[:4], "", row[5]] for row in ROWS]
    heads, _ = fitted(HEADS, rows, columns=1000, spare=SPARE)
    assert heads == ["what", "host", "pid", "state", "command"]
