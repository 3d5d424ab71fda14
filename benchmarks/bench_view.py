"""The terminal view in a real terminal: time to the first screen, bytes of a page-down, and far rows against near ones."""

import json
import os
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.table import Table
from penstock import Registry

#: Rows of a file that has no content yet all of its length.
ROWS = 1_100_000_000
FAR = 1_000_000_000
_BATCH, _LENGTH = 64, 8192
_ROUNDS = 5
_PLAIN = {"TERM": "xterm"}
_FULL = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}


def run() -> Table:
    """Measure in one run; the first screen is what the others are compared with."""
    from tests.view.terminals import Terminal

    table = Table(
        "`penstock view` shows its first screen in under 1,000 ms and sends under 30 KB for a page-down at 80×24; "
        "row 1,000,000,000 is opened as fast as row 0",
        "ms or KB",
    )
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        registry = Registry(place / "registry")
        recipe = _texts(place, registry)
        _sparse(place, registry)
        words = [sys.executable, "-m", "penstock.cli.main", "view", "--registry", str(place / "registry")]

        def seconds(address: str, text: str, line: int | None = None) -> tuple[float, float]:
            """The best of some starts, until a text is seen; and the processor time that the process took until it was ended then."""
            best = (float("inf"), float("inf"))
            for _ in range(_ROUNDS):
                with Terminal([*words, address], env=_PLAIN) as terminal:
                    wall = terminal.wait_for(text, line=line)
                    best = min(best, (wall, _processor_s(terminal.program.pid)))
            return best

        batch = f"{recipe}#step=3,row=7"
        wall, processor = seconds(batch, "opening ", 0)
        table.add("first screen", wall * 1e3, f"says what it opens; {processor * 1e3:.0f} ms of processor")
        wall, processor = seconds(batch, "row 7 token 0 ")
        table.add(
            "a batch of 64×8,192 on it",
            wall * 1e3,
            f"with the status of a token; {processor * 1e3:.0f} ms of processor",
        )
        near, near_processor = seconds("sparse@1/row/0", "uint8 1")
        far, far_processor = seconds(f"sparse@1/row/{FAR}", "uint8 1")
        table.add(
            "row 0 of 1,100,000,000",
            near * 1e3,
            f"from the start of the process; {near_processor * 1e3:.0f} ms of processor",
        )
        table.add(
            "row 1,000,000,000",
            far * 1e3,
            f"{far / near:.2f} of row 0; {far_processor * 1e3:.0f} ms of processor, {far_processor / near_processor:.2f} of row 0",
        )
        for columns, rows, env in ((80, 24, _PLAIN), (80, 24, _FULL), (160, 50, _FULL)):
            with Terminal([*words, batch], columns=columns, rows=rows, env=env) as terminal:
                terminal.wait_for("row 7 token 0 ")
                terminal.wait_until(lambda: True)
                sent = _page_down(terminal)
            table.add(
                f"page-down at {columns}×{rows}, {env['TERM']}",
                max(sent) / 1e3,
                f"KB, the largest of {len(sent)}",
            )
    return table


def _page_down(terminal: "Terminal") -> list[int]:  # type: ignore[name-defined]  # noqa: F821
    """Bytes that each of some page-downs sends, with the status that follows."""
    sizes = []
    for _ in range(_ROUNDS):
        before, status = len(terminal.sent), terminal.lines[-4]
        terminal.press("\x1b[6~")
        terminal.wait_until(lambda was=status: terminal.lines[-4] != was)
        sizes.append(len(terminal.sent) - before)
    return sizes


def _processor_s(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _texts(place: Path, registry: Registry) -> str:
    """Text, its tokenizer and its recipe."""
    from tests.view.library import byte_level

    byte_level(place / "tokenizer.json")
    chosen = np.random.default_rng(5)
    words = np.array(["plain", "words", "and", "some", "more", "of", "them", "snow ☃", "日本語", "line\n"])
    lines = [
        json.dumps({"text": " ".join(chosen.choice(words, 300))}, ensure_ascii=False) for _ in range(4000)
    ]
    (place / "texts.jsonl").write_text("\n".join(lines) + "\n")
    registry.register("texts", place / "texts.jsonl")
    recipe = place / "recipe.toml"
    recipe.write_text(
        f'seed = 5\nbatch = {_BATCH}\n[[sources]]\nname = "texts@1"\n[[stages]]\nkind = "tokenize"\n'
        f'tokenizer = "tokenizer.json"\n[[stages]]\nkind = "pack"\nlength = {_LENGTH}\n'
    )
    # Measured once; what is measured here is looking.
    from penstock import batch_at
    from penstock.data import Recipe

    batch_at(Recipe.load(recipe), step=3, registry=registry)
    return str(recipe)


def _sparse(place: Path, registry: Registry) -> None:
    """A version of more than a billion rows, in a file that takes no disk."""
    path = place / "sparse.npy"
    np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=(ROWS, 1)).flush()
    registry.register("sparse", path)
