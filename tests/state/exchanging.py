"""As a program: import and export a state that is larger than the memory that may be used, and print how much was."""

import json
import sys
from pathlib import Path

import numpy as np

from penstock.state.exchange import (
    Choice,
    copy_checkpoint,
    export_dcp,
    export_safetensors,
    export_torch,
    import_state,
    need_torch,
    open_source,
)
from penstock.state.exchange.intake import Name
from penstock.state.inspect.piece_reader import Reader
from penstock.state.inspect.statistics import figures_of
from penstock.state.inspect.verify import Verifier
from penstock.store import open_store


def memory(kind: str) -> int:
    """What the kernel says that this process holds (``VmRSS``), or held at most (``VmHWM``) since it was told to forget."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(kind)).split()[1]) * 1024


def write_weights(path: Path, bytes_: int) -> None:
    """A safetensors file with one large tensor and some smaller ones, block by block."""
    shapes = {"large": [bytes_ // 8, 2], **{f"t{n}": [bytes_ // 32, 2] for n in range(4)}}
    header, at = {}, 0
    for name, shape in shapes.items():
        length = 2 * shape[0] * shape[1]
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + length]}
        at += length
    text = json.dumps(header).encode()
    block = np.random.default_rng(0).bytes(1 << 20)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _ in range(at >> 20):
            file.write(block)


def main(folder: Path, bytes_: int) -> None:
    """Everything once; the growth of memory by what was done."""
    need_torch()
    import penstock.torch.exchange.dcp  # noqa: F401 - imported now, so that it does not count

    write_weights(folder / "w.safetensors", bytes_)
    grown = {}
    before = 0

    def forget() -> None:
        nonlocal before
        Path("/proc/self/clear_refs").write_text("5")
        before = memory("VmRSS")

    def note(what: str) -> None:
        grown[what] = memory("VmHWM") - before
        forget()

    forget()
    checkpoint = import_state(
        open_source(folder / "w.safetensors"), open_store(folder / "a"), Name(1)
    ).checkpoint
    note("import safetensors")
    export_safetensors(checkpoint, folder / "hf", Choice(), shard_bytes_max=bytes_ // 3)
    note("export safetensors")
    export_torch(checkpoint, folder / "x.pt", Choice())
    note("export torch")
    export_dcp(checkpoint, folder / "dcp", Choice())
    note("export dcp")
    copies = [copy_checkpoint(checkpoint, open_store(folder / "copy")).checkpoint]
    note("copy")
    for name in ("x.pt", "dcp"):
        copies.append(
            import_state(open_source(folder / name), open_store(folder / f"of-{name}"), Name(1)).checkpoint
        )
        note(f"import {name}")
    assert all(Verifier().verify(copy).ok for copy in copies)
    note("verify")
    figures_of(Reader(checkpoint.manifest, checkpoint.store), ["t0"])
    note("figures")
    print(json.dumps({"bytes": checkpoint.bytes, "grown": grown}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
