"""What nanoGPT's ``prepare.py`` leaves behind: one file of tokens to train on and one to validate with. Here a token is a byte."""

import os
import sysconfig
from pathlib import Path

import numpy as np

WORDS = 256


def prepare(folder: Path) -> None:
    """Write ``train.bin`` and ``val.bin``, once."""
    if (folder / "val.bin").exists():
        return
    paths = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("[a-d]*.py"))
    tokens = np.frombuffer(b"\n".join(path.read_bytes() for path in paths), np.uint8).astype(np.uint16)
    folder.mkdir(parents=True, exist_ok=True)
    cut = len(tokens) * 9 // 10
    for name, part in (("train.bin", tokens[:cut]), ("val.bin", tokens[cut:])):
        part.tofile(folder / "part")
        os.replace(folder / "part", folder / name)
