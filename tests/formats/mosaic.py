"""
Samples in every encoding of MDS, and their writing by mosaicml-streaming itself.

Run as a program, in a process of its own: the library brings torch, which has no place in the process of the tests.
"""

import importlib.util
import os
import subprocess
import sys
import types
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
COLUMNS = {
    "bytes": "bytes",
    "text": "str",
    "int": "int",
    "big": "str_int",
    "float": "str_float",
    "decimal": "str_decimal",
    "any": "ndarray",
    "typed": "ndarray:int16",
    "fixed": "ndarray:float32:2,3",
    "json": "json",
    **{name: name for name in ("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64")},
    **{name: name for name in ("float16", "float32", "float64")},
}
#: Compression as its writer takes it -> what it is called.
PACKINGS = {"zstd": "zstd", "gz": "gz", "bz2": "bz2", "br:3": "br"}
SAMPLES = 400


def samples() -> list[dict[str, Any]]:
    """What is written, and what must come back."""
    random = np.random.default_rng(3)
    dtypes = [
        "uint8",
        "int8",
        "uint16",
        "int16",
        "float16",
        "uint32",
        "int32",
        "float32",
        "uint64",
        "float64",
    ]
    rows = []
    for at in range(SAMPLES):
        scalars = {
            name: np.frombuffer(random.bytes(8), name)[0]
            for name, encoding in COLUMNS.items()
            if name == encoding and name.startswith(("uint", "int")) and name != "int"
        }
        floats = {name: np.dtype(name).type(random.normal()) for name in ("float16", "float32", "float64")}
        rows.append(
            {
                "bytes": random.bytes(at % 50),
                "text": "Wörter 言葉 " * (at % 60),
                "int": -(3**at % (1 << 60)),
                "big": 10 ** (at % 100) * (-1) ** at,
                "float": float(random.normal()) if at else float("inf"),
                "decimal": Decimal("0.1") ** (at % 20),
                "any": random.integers(0, 100, (1 + at % 3, 2, 1 + at % 300)).astype(dtypes[at % 10]),
                "typed": random.integers(-9, 9, 1 + at % 9).astype(np.int16),
                "fixed": random.normal(size=(2, 3)).astype(np.float32),
                "json": [{"a": [1, None, "ü"]}, [at], at, "text", None][at % 5],
                **scalars,
                **floats,
            }
        )
    return rows


def images() -> list[dict[str, Any]]:
    """Pictures; what comes back are their encoded bytes."""
    from PIL import Image

    random = np.random.default_rng(4)
    pictures = [Image.fromarray(random.integers(0, 255, (5 + at, 4, 3), np.uint8)) for at in range(4)]
    return [
        {
            "png": picture,
            "pil": picture,
            "pngs": pictures[: at + 1],
            "jpegs": [b"\xff\xd8" + bytes([at])] * at,
        }
        for at, picture in enumerate(pictures, start=1)
    ]


def bare_packages(*names: str) -> None:
    """Let modules of packages be imported without what the packages import first: here clouds and transformers."""
    for name in names:
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.submodule_search_locations is not None
        package = types.ModuleType(name)
        package.__path__ = list(spec.submodule_search_locations)
        sys.modules[name] = package


def main(folder: Path) -> None:
    """Write all datasets."""
    bare_packages("streaming", "streaming.base")
    from streaming.base.format.mds.writer import MDSWriter

    def write(name: str, columns: dict[str, str], rows: list[dict[str, Any]], **choices: Any) -> None:
        with MDSWriter(out=str(folder / name), columns=columns, **choices) as writer:
            for row in rows:
                writer.write(row)

    write("plain", COLUMNS, samples())
    write("many", COLUMNS, samples(), size_limit=1 << 16, hashes=["sha1"])
    for compression, packing in PACKINGS.items():
        write(packing, COLUMNS, samples(), compression=compression)
    write("snappy", {"text": "str"}, [{"text": "a"}], compression="snappy")
    write("pickled", {"bad": "pkl", "text": "str"}, [{"bad": {1, 2}, "text": "a"}])
    picture_columns = {"png": "png", "pil": "pil", "pngs": "list[png]", "jpegs": "jpeg_array"}
    pictures = [row if row["jpegs"] else {**row, "jpegs": [b"\xff\xd8"]} for row in images()]
    write("images", picture_columns, pictures)


def written(folder: Path) -> Path:
    """The folder, after the program has filled it."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.formats.mosaic", str(folder)]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return folder


if __name__ == "__main__":
    main(Path(sys.argv[1]))
