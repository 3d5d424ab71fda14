"""The same rows of tokens in the form of each peer, read by the peer's own loader; each in a process of its own.

Rows are 2,048 tokens of two bytes; a row begins with its own number, so that what comes back can be held against what was
written. A peer is imported only by the process that reads with it. `python benchmarks/peers.py PURPOSE NAME FOLDER`:
`write` makes the form, `serve` reads for a while each time a line asks for it, `first` says when the first batch is there and
what the process holds after some more.
"""

import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

LENGTH = 2048
BATCH = 8
ROWS = 50_000
#: How long a round reads, and how often it looks at the clock.
ROUND_S = 0.7
STRIDE = 16


class Peer(NamedTuple):
    """One contender."""

    #: What must be importable; empty for what is always there.
    package: str
    #: Makes its form of the rows in a folder.
    write: Callable[[str], None]
    #: Endless shuffled batches from that form.
    read: Callable[[str], Iterator[Any]]
    #: Whether a batch holds rows as they were written, so that they can be checked.
    rows: bool = True


def make_rows(folder: str) -> None:
    """What every form is made of."""
    import numpy as np

    rows = np.random.default_rng(3).integers(0, 50_000, (ROWS, LENGTH), dtype=np.uint16)
    numbers = np.arange(ROWS)
    rows[:, 0], rows[:, 1] = numbers & 0xFFFF, numbers >> 16
    np.save(f"{folder}/rows.npy", rows)


def load_rows(folder: str) -> Any:
    """The rows, mapped; as a plain array, because slices of `numpy.memmap` take three times as long to make."""
    import numpy as np

    return np.asarray(np.load(f"{folder}/rows.npy", mmap_mode="r"))


def nothing(folder: str) -> None:
    """Reads the rows as they are."""


def read_memmap(folder: str) -> Iterator[Any]:
    """The limit: the rows of a batch copied by one call of numpy, nothing checked and nothing to resume."""
    import numpy as np

    rows = load_rows(folder)
    order = np.random.default_rng(5)
    while True:
        permutation = order.permutation(len(rows))
        for first in range(0, len(rows) - BATCH, BATCH):
            yield rows[permutation[first : first + BATCH]]


def write_sources(folder: str) -> None:
    """The rows as one version and as four, registered; opened once, so that everything is measured."""
    import numpy as np

    import penstock as ps

    registry = ps.Registry(f"{folder}/registry")
    registry.register("rows", f"{folder}/rows.npy")
    for number, part in enumerate(np.array_split(load_rows(folder), 4)):
        np.save(f"{folder}/part{number}.npy", part)
        registry.register(f"part{number}", f"{folder}/part{number}.npy")


def write_documents(folder: str) -> None:
    """The same tokens as documents of 50 to 1,500 tokens, registered and measured."""
    import pathlib

    import penstock as ps
    from benchmarks.bench_feed import write_megatron

    write_megatron(pathlib.Path(folder) / "docs", load_rows(folder).reshape(-1))
    ps.Registry(f"{folder}/documents").register("docs", f"{folder}/docs.bin")
    for policy in ("concat", "fit"):
        next(read_documents(policy)(folder))


def read_sources(*names: str, threads: int | None = None) -> Callable[[str], Iterator[Any]]:
    """Penstock over stored rows, checks on; with threads of its own unless told otherwise."""

    def read(folder: str) -> Iterator[Any]:
        import penstock as ps

        sources = tuple(ps.Source(f"{name}@1") for name in names)
        recipe = ps.Recipe(sources=sources, seed=1, batch=BATCH)
        for batch in ps.open(recipe, registry=ps.Registry(f"{folder}/registry"), threads=threads):
            yield batch["tokens"]

    return read


def read_documents(policy: Any) -> Callable[[str], Iterator[Any]]:
    """Penstock over documents, shuffled and packed on the fly, checks on."""

    def read(folder: str) -> Iterator[Any]:
        import penstock as ps

        recipe = ps.Recipe(
            sources=(ps.Source("docs@1"),), seed=1, batch=BATCH, stages=(ps.Pack(LENGTH, policy),)
        )
        for batch in ps.open(recipe, registry=ps.Registry(f"{folder}/documents")):
            yield batch["tokens"]

    return read


class _Rows:
    """A dataset as people write it for PyTorch: one row at a time."""

    def __init__(self, folder: str) -> None:
        self.rows = load_rows(folder)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, at: int) -> Any:
        import torch

        return torch.from_numpy(self.rows[at].copy())


class _RowsTogether(_Rows):
    """The same, tuned: all rows of a batch at once, and nothing left to collate."""

    def __getitems__(self, numbers: list[int]) -> Any:
        import torch

        return torch.from_numpy(self.rows[numbers])


def read_torchdata(workers: int, *, together: bool = False) -> Callable[[str], Iterator[Any]]:
    """StatefulDataLoader over a memmap, shuffled by its own sampler."""

    def read(folder: str) -> Iterator[Any]:
        from torchdata.stateful_dataloader import StatefulDataLoader

        dataset = _RowsTogether(folder) if together else _Rows(folder)
        collate = (lambda batch: batch) if together else None
        loader = StatefulDataLoader(
            dataset, batch_size=BATCH, shuffle=True, num_workers=workers, collate_fn=collate
        )
        while True:
            yield from loader

    return read


def write_litdata(folder: str) -> None:
    """Chunks of tokens, made by litdata."""
    import litdata
    import numpy as np

    parts = [part.tolist() for part in np.array_split(np.arange(ROWS), 50)]
    litdata.optimize(
        fn=_LitRows(folder),
        inputs=parts,
        output_dir=f"{folder}/litdata",
        chunk_bytes="64MB",
        num_workers=1,
        item_loader=litdata.TokensLoader(),
        verbose=False,
    )


class _LitRows:
    """Yields rows to litdata; a class because its workers are sent it."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, numbers: list[int]) -> Iterator[Any]:
        import torch

        rows = load_rows(self.folder)
        for number in numbers:
            yield torch.from_numpy(rows[number].copy())


def read_litdata(folder: str) -> Iterator[Any]:
    """The loader of litdata over its chunks."""
    import litdata

    dataset = litdata.StreamingDataset(
        f"{folder}/litdata", item_loader=litdata.TokensLoader(block_size=LENGTH), shuffle=True
    )
    loader = litdata.StreamingDataLoader(dataset, batch_size=BATCH, num_workers=0)
    while True:
        yield from loader


def write_huggingface(folder: str) -> None:
    """Arrow files, saved by datasets."""
    import datasets
    import pyarrow as pa

    flat = pa.array(load_rows(folder).reshape(-1))
    table = pa.table({"tokens": pa.FixedSizeListArray.from_arrays(flat, LENGTH)})
    datasets.Dataset(table).save_to_disk(f"{folder}/huggingface")


def read_huggingface(folder: str) -> Iterator[Any]:
    """Arrow, memory-mapped, shuffled by indices, as numpy arrays of the stored type."""
    import datasets
    import numpy as np

    datasets.disable_progress_bars()
    stored = datasets.load_from_disk(f"{folder}/huggingface").with_format("numpy", dtype=np.uint16)
    for epoch in range(sys.maxsize):
        shuffled = stored.shuffle(seed=epoch, keep_in_memory=True)
        for batch in shuffled.iter(batch_size=BATCH, drop_last_batch=True):
            yield batch["tokens"]


def write_grain(folder: str) -> None:
    """One ArrayRecord file, a record per row, as Grain's guide asks for."""
    from array_record.python.array_record_module import ArrayRecordWriter

    writer = ArrayRecordWriter(f"{folder}/rows.array_record", "group_size:1")
    for row in load_rows(folder):
        writer.write(row.tobytes())
    writer.close()


def read_grain(kind: str) -> Callable[[str], Iterator[Any]]:
    """Grain's loader over a memmap, or over ArrayRecord."""

    def read(folder: str) -> Iterator[Any]:
        import grain
        import numpy as np

        if kind == "array":
            dataset = grain.MapDataset.source(load_rows(folder)).seed(1).shuffle().map(np.array)
        else:
            source = grain.sources.ArrayRecordDataSource(f"{folder}/rows.array_record")
            dataset = grain.MapDataset.source(source).seed(1).shuffle()
            dataset = dataset.map(lambda record: np.frombuffer(record, np.uint16))
        yield from iter(dataset.repeat().batch(BATCH).to_iter_dataset())

    return read


def _mosaic() -> tuple[Any, Any]:
    """Its dataset and writer, without the clouds and models that its packages import first."""
    from tests.formats.mosaic import bare_packages

    bare_packages("streaming", "streaming.base")
    from streaming.base.dataset import StreamingDataset
    from streaming.base.format.mds.writer import MDSWriter

    return StreamingDataset, MDSWriter


def write_mosaic(folder: str) -> None:
    """MDS shards, made by mosaicml-streaming."""
    _, writer = _mosaic()
    columns = {"tokens": f"ndarray:uint16:{LENGTH}"}
    with writer(out=f"{folder}/mosaic", columns=columns) as shards:
        for row in load_rows(folder):
            shards.write({"tokens": row})


def read_mosaic(folder: str) -> Iterator[Any]:
    """mosaicml-streaming's dataset (shuffle py1e) in PyTorch's loader."""
    import numpy as np
    import torch

    dataset, _ = _mosaic()
    stored = dataset(local=f"{folder}/mosaic", shuffle=True, shuffle_algo="py1e", batch_size=BATCH)
    loader = torch.utils.data.DataLoader(
        stored, batch_size=BATCH, collate_fn=lambda rows: np.stack([row["tokens"] for row in rows])
    )
    while True:
        yield from loader


PEERS: dict[str, Peer] = {
    "numpy memmap, random rows": Peer("", nothing, read_memmap),
    "Penstock, rows": Peer("", write_sources, read_sources("rows")),
    "Penstock, rows, no threads": Peer("", nothing, read_sources("rows", threads=0)),
    "Penstock, rows of 4 sources": Peer("", nothing, read_sources("part0", "part1", "part2", "part3")),
    "Penstock, documents packed (concat)": Peer("", write_documents, read_documents("concat"), rows=False),
    "Penstock, documents packed (fit)": Peer("", nothing, read_documents("fit"), rows=False),
    "torchdata StatefulDataLoader": Peer("torchdata", nothing, read_torchdata(0)),
    "torchdata, tuned (__getitems__)": Peer("torchdata", nothing, read_torchdata(0, together=True)),
    "torchdata, 2 workers": Peer("torchdata", nothing, read_torchdata(2)),
    "litdata": Peer("litdata", write_litdata, read_litdata),
    "HF datasets (Arrow)": Peer("datasets", write_huggingface, read_huggingface),
    "Grain (array)": Peer("grain", nothing, read_grain("array")),
    "Grain (ArrayRecord)": Peer("grain", write_grain, read_grain("records")),
    "MosaicML Streaming (py1e)": Peer("streaming", write_mosaic, read_mosaic),
}


def check(peer: Peer, batch: Any, rows: Any) -> None:
    """A batch has the shape, and its rows are bit for bit those that were written."""
    import numpy as np

    tokens = np.asarray(batch)
    assert (tokens.shape, tokens.dtype) == ((BATCH, LENGTH), np.dtype(np.uint16)), (
        tokens.shape,
        tokens.dtype,
    )
    if peer.rows:
        numbers = tokens[:, 0].astype(np.int64) + (tokens[:, 1].astype(np.int64) << 16)
        assert np.array_equal(tokens, rows[numbers]), "a batch holds rows that nobody wrote"
        assert not np.array_equal(numbers, np.arange(numbers[0], numbers[0] + BATCH)), "the rows are in order"


def serve(peer: Peer, folder: str) -> None:
    """Check three batches, then answer each line with the tokens per second of a round."""
    batches = peer.read(folder)
    for _ in range(3):
        check(peer, next(batches), load_rows(folder))
    print("ready", flush=True)
    for _ in sys.stdin:
        begun, count, spent = time.perf_counter(), 0, 0.0
        while spent < ROUND_S:
            for _ in range(STRIDE):
                next(batches)
            count += STRIDE
            spent = time.perf_counter() - begun
        print(count * BATCH * LENGTH / spent, flush=True)


def first(peer: Peer, folder: str, more: int) -> None:
    """Say when the first batch is there; then, after some more, what the process holds."""
    batches = peer.read(folder)
    next(batches)
    print("first", flush=True)
    for _ in range(more):
        next(batches)
    if more:
        report_memory()


def report_memory() -> None:
    """KiB written by this process alone, KiB mapped by it alone (pages of files included), and whether pyarrow is here."""
    with open("/proc/self/smaps_rollup") as file:
        fields = {line.split()[0]: int(line.split()[1]) for line in file if line.endswith("kB\n")}
    private = fields["Private_Dirty:"]
    print(private, private + fields["Private_Clean:"], "pyarrow" in sys.modules, flush=True)


def main() -> None:
    """Write, serve or read first, as the command line says."""
    purpose, name, folder = sys.argv[1:4]
    if name == "import numpy":
        import numpy  # noqa: F401 - the process that memory is compared with

        report_memory()
        return
    if purpose == "write":
        PEERS[name].write(folder)
    elif purpose == "serve":
        serve(PEERS[name], folder)
    else:
        first(PEERS[name], folder, int(sys.argv[4]))


if __name__ == "__main__":
    main()
