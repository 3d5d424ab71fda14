"""Records, samples, arrays and tokens: TensorFlow, ArrayRecord, WebDataset, MosaicML, Megatron, numpy, safetensors, llm.c."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
import webdataset
from array_record.python.array_record_module import ArrayRecordReader, ArrayRecordWriter

from penstock.formats.contract import Policy
from tests.formats import tensors
from tests.formats.reread import read_by_peer
from tests.formats.test_flat import EOT, llm_c, nanogpt
from tests.peers.case import Case, Rows
from tests.peers.program import written

SAMPLES = [
    {
        "__key__": f"{number:03d}",
        "jpg": b"\xff\xd8" + bytes([number]),
        "cls": number,
        "json": {"a": [number, None]},
        "txt": "ü" * number,
        "npy": np.arange(number, dtype=np.float32),
        "left.png": b"",
    }
    for number in range(4)
]
ARRAYS = {"x": np.arange(12, dtype=np.int16).reshape(4, 3), "y": np.linspace(0, 1, 4)}


def _program(name: str) -> Callable[[Path], Path]:
    return lambda _: written() / name


def _tensors(name: str) -> Callable[[Path], Path]:
    return lambda _: tensors.written() / name


def _record_file(folder: Path) -> Path:
    path = folder / "a.array_record"
    writer = ArrayRecordWriter(str(path), "group_size:1")
    for number in range(5):
        writer.write(bytes([255, number]) * 3)
    writer.close()
    return path


def _read_records(path: Path) -> Rows:
    reader = ArrayRecordReader(str(path))
    return [{"data": record} for record in reader.read_all()]


def _archive(folder: Path) -> Path:
    with webdataset.TarWriter(str(folder / "a.tar")) as writer:
        for sample in SAMPLES:
            writer.write(sample)
    return folder / "a.tar"


def _read_archive(path: Path) -> Rows:
    read = webdataset.WebDataset(str(path), shardshuffle=False).decode()
    return [{name: value for name, value in sample.items() if name in SAMPLES[0]} for sample in read]


def _saved(name: str, save: Callable[[Path], Any]) -> Callable[[Path], Path]:
    def run(folder: Path) -> Path:
        save(folder / name)
        return folder / name

    return run


def _rows(arrays: dict[str, Any]) -> Rows:
    return [{name: np.asarray(array[number]) for name, array in arrays.items()} for number in range(4)]


def _example(row: dict[str, Any]) -> dict[str, Any]:
    """Features as values: numbers as an array, byte strings alone unless a record has several."""
    dtypes = {"int64_list": np.int64, "float_list": np.float32}
    features = {}
    for name, (kind, values) in row.items():
        if kind == "bytes_list":
            features[name] = values if name == "words" else values[0]
        else:
            features[name] = np.array(values, dtypes[kind])
    return features


def _flat(write: Callable[[Path], Any]) -> Callable[[Path], Path]:
    return _saved("train.bin", write)


def _memmap(path: Path) -> Rows:
    return [{"tokens": np.array(np.memmap(path, dtype=np.uint16, mode="r"))}]


def _llm_c_reader(path: Path) -> Rows:
    """As llm.c's and modded-nanogpt's loaders read a shard."""
    with path.open("rb") as file:
        header = np.frombuffer(file.read(256 * 4), dtype=np.int32)
        assert header[0] == 20240520
        tokens = np.frombuffer(file.read(), dtype=np.uint16)
    assert len(tokens) == header[2]
    return [{"tokens": tokens}]


CASES = [
    Case(
        "tfrecord",
        "tensorflow",
        "Examples",
        _tensors("examples.tfrecord"),
        read_by_peer,
        "a feature is its values, without the word for its kind",
        _example,
    ),
    Case(
        "tfrecord",
        "tensorflow",
        "Examples in gzip",
        _tensors("examples.tfrecord.gz"),
        read_by_peer,
        "a feature is its values, without the word for its kind",
        _example,
    ),
    Case("tfrecord", "tensorflow", "other records", _tensors("blobs.tfrecord"), read_by_peer),
    Case("arrayrecord", "array_record", "records", _record_file, _read_records),
    Case(
        "webdataset",
        "webdataset",
        "samples of bytes, text, numbers, JSON and arrays",
        _archive,
        _read_archive,
    ),
    Case(
        "mds",
        "mosaicml-streaming",
        "every encoding but pickles and pictures",
        _program("mds/shard.00000.mds"),
        read_by_peer,
    ),
    Case("megatron", "megatron-core", "documents of two sequences", _program("a.bin"), read_by_peer),
    Case(
        "npy",
        "numpy",
        "save",
        _saved("a.npy", lambda path: np.save(path, ARRAYS["x"])),
        lambda path: [{"array": row} for row in np.load(path)],
    ),
    Case(
        "npz",
        "numpy",
        "savez",
        _saved("a.npz", lambda path: np.savez(path, **ARRAYS)),
        lambda path: _rows(dict(np.load(path))),
    ),
    Case(
        "npz",
        "numpy",
        "savez_compressed",
        _saved("a.npz", lambda path: np.savez_compressed(path, **ARRAYS)),
        lambda path: _rows(dict(np.load(path))),
    ),
    Case(
        "safetensors",
        "safetensors",
        "save_file",
        _saved("a.safetensors", lambda path: safetensors.numpy.save_file(ARRAYS, path)),
        lambda path: _rows(safetensors.numpy.load_file(path)),
    ),
    Case(
        "flat",
        "nanoGPT",
        "train.bin, with `--dtype uint16`",
        _flat(nanogpt),
        _memmap,
        policy=Policy(dtype="uint16"),
    ),
    Case(
        "flat",
        "llm.c",
        "a shard with its header",
        _flat(lambda path: llm_c(path, 20240520, 1, "<u2")),
        _llm_c_reader,
    ),
    Case(
        "flat",
        "llm.c",
        "the same cut into documents, with `--eot 50256`",
        _flat(lambda path: llm_c(path, 20240520, 1, "<u2")),
        lambda path: [{"tokens": part} for part in _cut(_llm_c_reader(path)[0]["tokens"])],
        policy=Policy(eot=EOT),
    ),
]


def _cut(tokens: "np.ndarray[Any, Any]") -> "list[np.ndarray[Any, Any]]":
    return np.split(tokens, np.flatnonzero(tokens == EOT)[1:])
