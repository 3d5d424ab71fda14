"""Runs as a picture of so many columns and lines: a table of them, the diagnosis and the numbers of one, curves, and rank by step."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.cli.escape import said
from penstock.cli.live.braille_plot import DOTS_WIDE, braille_rows, extent
from penstock.cli.live.heat_strip import SHADES, merged_ranks, shades_of
from penstock.cli.live.run_view import RunChoice, RunView, curve_names
from penstock.report.quantities import duration, measured, percent, rate, size
from penstock.view.model.run_summary import memory_of
from penstock.view.wire.run_answers import RunSummary

if TYPE_CHECKING:
    from rich.text import Text

#: Colours of runs, by number; the table says which is whose.
COLOURS = ("cyan", "yellow", "green", "magenta", "blue", "red", "bright_cyan", "bright_yellow")
#: Cells of a curve with its scale, and how many stand side by side.
PLOT_WIDTH, PLOTS_MAX = 40, 4
_SCALE_WIDTH = 9
#: Lines of a curve: fewer say nothing, more say no more.
_PLOT_LINES_MIN, _PLOT_LINES_USUAL, _PLOT_LINES_MAX = 4, 11, 18
_HEAT_LINES_MAX = 8
_LABEL_WIDTH = 8
_HEAT_STYLES = ("", "", "", "yellow", "red")
KEYS_LINE = "q quit   ↑↓ run   ←→ curve   m map   o overlay"
#: In a pipe, where nothing is cut.
PIPE_WIDTH = 10_000
#: Nothing to measure at all.
_ABSENT = "–"


def picture(views: Sequence[RunView], choice: RunChoice, width: int, height: int) -> "list[Text]":
    """At most so many lines, each at most so wide. What matters most comes first, so that small terminals have that."""
    view = views[min(choice.run, len(views) - 1)]
    lines = _table(views, view, max(2, height // 3), width) if len(views) > 1 else []
    lines += _facts(view, width, height)
    footer = 1 if height >= 8 else 0
    room = height - len(lines) - footer
    heat = _heat(view, choice, width, min(_HEAT_LINES_MAX, max(1, room // 3))) if room >= 4 else []
    curves = _curves(views, view, choice, width, room - len(heat))
    lines += curves + heat
    lines = [_cut(line, width) for line in lines[: max(1, height - footer)]]
    if footer:
        lines.append(_cut(_text(KEYS_LINE, "dim"), width))
    return lines


def plain_lines(views: Sequence[RunView]) -> list[str]:
    """For a pipe: a table, and below it the diagnosis of each run."""
    lines = [line.plain for line in _table(views, None, len(views) + 1, PIPE_WIDTH)]
    for view in views:
        words = view.problem or (view.summary["line"] if view.summary is not None else "")
        lines.append(f"{said(view.name)}: {_one_line(words)}")
    return lines


class Cell(NamedTuple):
    """A column of the table."""

    head: str
    value: Callable[[RunSummary], str]


COLUMNS = (
    Cell("state", lambda run: run["state"]),
    Cell("step", lambda run: _ABSENT if run["step"] is None else str(run["step"])),
    Cell("loss", lambda run: _loss(run)),
    Cell("tokens/s", lambda run: measured(run["speed"]["tokens_per_s"], rate)),
    Cell("MFU", lambda run: measured(run["mfu"]["value"], percent)),
    Cell("goodput", lambda run: measured(run["goodput"]["runtime"], percent)),
    Cell("p50", lambda run: measured(run["speed"]["p50_ns"], duration)),
    Cell("p99", lambda run: measured(run["speed"]["p99_ns"], duration)),
    Cell("memory", lambda run: _memory(run)[1]),
)


def _loss(run: RunSummary) -> str:
    return _ABSENT if run["loss"] is None else f"{run['loss']:.4g}"


def _memory(run: RunSummary) -> tuple[str, str]:
    label, count = memory_of(run["memory"])
    return label, _ABSENT if count is None else size(count)


def _short(text: str) -> str:
    """In a table a dash says it."""
    return _ABSENT if text == "unmeasured" else text


def _table(views: Sequence[RunView], chosen: RunView | None, lines_max: int, columns: int) -> "list[Text]":
    """A line for each run; where they do not all fit, those around the chosen one."""
    rows = [
        [_one_line(view.name)[:24], *(_short(cell.value(view.summary)) for cell in COLUMNS)]
        if view.summary is not None
        else [_one_line(view.name)[:24], _one_line(view.problem)]
        for view in views
    ]
    heads = ["run", *(cell.head for cell in COLUMNS)]
    whole = [row for row in [heads, *rows] if len(row) == len(heads)]
    widths = [max(len(row[place]) for row in whole) for place in range(len(heads))]
    place = next((number for number, view in enumerate(views) if view is chosen), 0)
    shown_max = max(1, lines_max - 1)
    first = min(max(0, place - shown_max // 2), max(0, len(views) - shown_max))
    mark = "  " if chosen is not None else ""
    is_narrow = len(mark) + sum(widths) + 2 * len(widths) > columns
    gap = " " if is_narrow else "  "
    lines = [_text(mark + _aligned(heads, widths, gap), "dim")]
    for number, row in list(enumerate(rows))[first : first + shown_max]:
        line = _text("")
        if chosen is not None:
            line.append("▸" if views[number] is chosen else "■", COLOURS[number % len(COLOURS)])
            line.append(" ")
        line.append(_aligned(row, widths, gap), "bold" if views[number] is chosen else "")
        lines.append(line)
    return lines


def _aligned(row: Sequence[str], widths: Sequence[int], gap: str) -> str:
    """Names and states at the left, numbers at the right."""
    cells = [
        cell.ljust(width) if place < 2 else cell.rjust(width)
        for place, (cell, width) in enumerate(zip(row, widths, strict=False))
    ]
    return gap.join(cells).rstrip()


def _facts(view: RunView, width: int, height: int) -> "list[Text]":
    """Title, diagnosis and numbers of one run."""
    lines = []
    if view.problem:
        lines.append(_text(_one_line(view.problem), "red"))
    run = view.summary
    if run is None:
        return [_text(_one_line(view.name), "bold"), *lines]
    title = _text(_one_line(run["name"]), "bold")
    counts = f"{_count(run['ranks'], 'rank', 'ranks')}  {_count(run['lives'], 'life', 'lives')}"
    title.append(
        f"  {run['state']}  step {_ABSENT if run['step'] is None else run['step']}  {counts}", "not bold"
    )
    style = {"named": "yellow", "none": "green"}.get(run["verdict"], "dim")
    words = _wrapped(_one_line(run["line"]), width, 2 if height >= 12 else 1)
    numbers = [
        f"loss {_loss(run)}",
        f"tokens/s {measured(run['speed']['tokens_per_s'], rate)}",
        f"MFU {measured(run['mfu']['value'], percent)}",
        f"goodput {measured(run['goodput']['runtime'], percent)}",
        f"step p50 {measured(run['speed']['p50_ns'], duration)} p99 {measured(run['speed']['p99_ns'], duration)}",
        " ".join(_memory(run)),
    ]
    return [title, *(_text(line, style) for line in words), *map(_text, _flowed(numbers, width)), *lines]


def _count(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


def _flowed(parts: Sequence[str], width: int) -> list[str]:
    """Parts on as few lines as they fit on, none broken."""
    lines = [""]
    for part in parts:
        joined = f"{lines[-1]} · {part}" if lines[-1] else part
        if len(joined) <= width or not lines[-1]:
            lines[-1] = joined
        else:
            lines.append(part)
    return lines


def _wrapped(text: str, width: int, lines_max: int) -> list[str]:
    import textwrap

    return textwrap.wrap(text, max(width, 8), max_lines=lines_max, placeholder="…") or [""]


def _curves(
    views: Sequence[RunView], view: RunView, choice: RunChoice, width: int, height: int
) -> "list[Text]":
    """Curves side by side and below each other, the chosen one first."""
    drawn = list(views) if choice.over else [view]
    names = curve_names(drawn)
    if height < _PLOT_LINES_MIN or not names or width < _SCALE_WIDTH + 4:
        return []
    count = min(PLOTS_MAX, max(1, width // PLOT_WIDTH), len(names))
    rows = min(max(1, height // _PLOT_LINES_USUAL), -(-len(names) // count))
    lines = min(height // rows, _PLOT_LINES_MAX)
    first = names.index(choice.curve) if choice.curve in names else 0
    shown = [*names[first:], *names[:first]][: rows * count]
    joined = []
    for start in range(0, len(shown), count):
        plots = [
            _plot(views, drawn, name, width // count - 1, lines) for name in shown[start : start + count]
        ]
        for row in zip(*plots, strict=True):
            line = _text("")
            for part in row:
                # A cell between two curves.
                part.pad_right(max(0, width // count - part.cell_len))
                line.append_text(part)
            joined.append(line)
    return joined


def _plot(
    views: Sequence[RunView], drawn: Sequence[RunView], name: str, width: int, lines: int
) -> "list[Text]":
    """A title, the curve of every run that has it over the same steps, and the steps below."""
    cells, rows = width - _SCALE_WIDTH, lines - 2
    screens = [(view, view.screen) for view in drawn if view.screen is not None]
    known = [screen.steps.steps for _, screen in screens if len(screen.steps.steps)]
    begin, end = min(int(steps[0]) for steps in known), max(int(steps[-1]) for steps in known) + 1
    values, styles, curve = [], [], None
    for view, screen in screens:
        document = screen.curves.to_json(buckets_max=cells * DOTS_WIDE, names=[name])
        for one in document["curves"]:
            curve = one
            # Runs of different lengths keep their places on one axis.
            spread = _spread(document["steps"], one["lines"][0]["values"], begin, end, cells * DOTS_WIDE)
            values.append(spread)
            styles.append(COLOURS[views.index(view) % len(COLOURS)])
    ends = extent(values)
    title = _text(f"{_one_line(curve['title'] if curve else name)[:width]}", "bold")
    if ends is None or curve is None:
        return [title, *(_text("") for _ in range(lines - 1))]
    form = FORMS.get(curve["unit"], _plain_number)
    out = [title]
    for number, row in enumerate(braille_rows(values, cells, rows, *ends)):
        scale = form(ends[1]) if number == 0 else form(ends[0]) if number == rows - 1 else ""
        line = _text(f"{scale[: _SCALE_WIDTH - 1]:>{_SCALE_WIDTH - 1}} ", "dim")
        for cell in row:
            line.append(cell.sign, styles[cell.line] if cell.line >= 0 else "")
        out.append(line)
    last = f"step {end - 1}"
    left = f"{begin}".ljust(max(1, cells - len(last)))
    out.append(_text(" " * _SCALE_WIDTH + (left + last if cells > len(last) + 2 else "")[:cells], "dim"))
    return out


def _spread(
    steps: Sequence[int], values: Sequence[float | None], begin: int, end: int, dots: int
) -> list[float | None]:
    """Values at their steps; what stands between two of them is the one before, so that a line has no holes."""
    spread: list[float | None] = [None] * dots
    span = max(1, end - begin)
    for place, (step, value) in enumerate(zip(steps, values, strict=True)):
        following = steps[place + 1] if place + 1 < len(steps) else step + 1
        first = (step - begin) * dots // span
        for dot in range(first, min(dots, max(first + 1, (following - begin) * dots // span))):
            spread[dot] = value
    return spread


def _heat(view: RunView, choice: RunChoice, width: int, lines_max: int) -> "list[Text]":
    """Rank by step of the chosen column."""
    cells = width - _LABEL_WIDTH
    if view.screen is None or not view.screen.steps.names or cells < 4 or lines_max < 2:
        return []
    column = choice.column if choice.column in view.screen.steps.names else view.screen.steps.names[0]
    heat = view.screen.heat_map(column, cells)
    if heat["low"] is None:
        return []
    form = FORMS.get(heat["unit"], _plain_number)
    title = _text(f"rank × step: {_one_line(column)}", "bold")
    title.append(f"  {form(heat['low'])} {SHADES[1:]} {form(heat['high'])}", "not bold")
    lines = [title]
    for label, values in merged_ranks(heat, lines_max - 1):
        line = _text(f"{label[: _LABEL_WIDTH - 1]:>{_LABEL_WIDTH - 1}} ", "dim")
        for shade in shades_of(values, heat["low"], heat["high"], cells):
            line.append("·" if shade < 0 else SHADES[shade], "dim" if shade < 0 else _HEAT_STYLES[shade])
        lines.append(line)
    return lines


def _plain_number(value: float) -> str:
    return f"{value:.4g}"


FORMS: dict[str, Callable[[float], str]] = {"ns": duration, "bytes": size, "share": percent, "rate": rate}


def _one_line(text: str) -> str:
    """A name or a reason of somebody else."""
    return said(text.replace("\n", "\\n").replace("\t", "\\t"))


def _text(words: str, style: str = "") -> "Text":
    from rich.text import Text

    return Text(words, style=style, no_wrap=True, end="")


def _cut(line: "Text", width: int) -> Any:
    line.truncate(max(1, width), overflow="ellipsis")
    return line
