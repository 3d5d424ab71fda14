"""What tokenising on the fly costs: the measuring pass of raw text, and the second run against tokens that were ready before.

Text is the sources of Python's own library, cut into documents of some kilobytes, in raw jsonl; the tokenizer is a byte-level BPE
trained on a part of them. First the tokenizer alone encodes the texts from memory with its own threads; then a recipe over the
files is opened for the first time, which reads, tokenises, keeps the tokens and plans. CPU is the share of all cores that this
process had meanwhile, and its share of the time that other processes left: 100 % means that no core was ever idle. Then the recipe, opened again, is read in turns with the same documents as a Megatron version.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import penstock as ps
from benchmarks.table import Table

LENGTH = 2048
BATCH = 8
SHARDS = 8
TRAIN_DOCUMENTS = 1500
VOCABULARY = 16_384
PASSES = 3
ROUNDS = 8
BATCHES = 2000
ALONE, OPENING = "encode_batch_fast alone", "opening the recipe for the first time"


def run() -> Table:
    """Measure in one run: encoding and opening in turns, then both feeds in turns; the best of each."""
    table = Table("opening raw text keeps all cores busy", "MB/s of text", smaller_is_better=False)
    print(f"load average before: {os.getloadavg()[0]:.2f} on {os.cpu_count()} cores", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        texts = write_documents(place)
        train(place, texts[:: len(texts) // TRAIN_DOCUMENTS])
        megabytes = sum(len(text.encode()) for text in texts) / 1e6
        best = dict.fromkeys((ALONE, OPENING), (0.0, 0.0, 0.0))
        for number in range(PASSES):
            best[ALONE] = max(best[ALONE], busy(lambda: encode(place, texts), megabytes))
            best[OPENING] = max(best[OPENING], busy(register(place, f"registry{number}"), megabytes))
        for name, (rate, share, left) in best.items():
            table.add(name, rate, f"{share:.0%} of {os.cpu_count()} cores, {left:.0%} of what others left")
        rates = feed_rates(place, ps.Registry(place / "registry0"))
    shown = ", ".join(f"{name} {rate / 1e6:.0f} M tokens/s" for name, rate in rates.items())
    second, ready = rates.values()
    table.claim += f"; the second run reads as fast as ready tokens: {shown}, ratio {second / ready:.2f}"
    print(f"load average after: {os.getloadavg()[0]:.2f}", file=sys.stderr)
    return table


def write_documents(place: Path) -> list[str]:
    """Documents of one to four thousand characters, in raw jsonl; what they hold."""
    paths = sorted(Path(os.__file__).parent.rglob("*.py"))
    whole = "\n".join(path.read_text(errors="ignore") for path in paths if "site-packages" not in path.parts)
    texts: list[str] = []
    at = 0
    while at < len(whole):
        length = 1000 + len(texts) * 7919 % 3000
        texts.append(whole[at : at + length])
        at += length
    for shard in range(SHARDS):
        rows = "".join(json.dumps({"text": text}) + "\n" for text in texts[shard::SHARDS])
        (place / f"{shard}.jsonl").write_text(rows)
    return texts


def train(place: Path, texts: list[str]) -> None:
    """A byte-level BPE, as large language models have them."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        texts,
        trainers.BpeTrainer(vocab_size=VOCABULARY, initial_alphabet=alphabet, show_progress=False),
    )
    tokenizer.save(str(place / "tokenizer.json"))


def encode(place: Path, texts: list[str]) -> None:
    """The limit: the library's own threads over texts in memory, results thrown away."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(place / "tokenizer.json"))
    for first in range(0, len(texts), 1024):
        tokenizer.encode_batch_fast(texts[first : first + 1024], add_special_tokens=False)


def register(place: Path, name: str) -> Callable[[], None]:
    """Register the files in a registry of their own; what opens the recipe there for the first time."""
    registry = ps.Registry(place / name)
    registry.register("text", [str(place / "*.jsonl")])

    def first() -> None:
        with ps.open(recipe("text@1", ps.Tokenize(str(place / "tokenizer.json"))), registry=registry) as feed:
            next(feed)

    return first


def recipe(name: str, *stages: ps.Tokenize) -> ps.Recipe:
    """Packed rows of one source."""
    return ps.Recipe(sources=(ps.Source(name),), seed=1, batch=BATCH, stages=(*stages, ps.Pack(LENGTH)))


def busy(work: Callable[[], object], megabytes: float) -> tuple[float, float, float]:
    """Megabytes per second, the share of all cores that this process had, and its share of what others left."""
    wall, cpu, idle = time.perf_counter(), time.process_time(), idle_seconds()
    work()
    wall, cpu, idle = time.perf_counter() - wall, time.process_time() - cpu, idle_seconds() - idle
    return megabytes / wall, cpu / wall / (os.cpu_count() or 1), cpu / (cpu + idle)


def idle_seconds() -> float:
    """How long cores have had nothing to do (or waited for disks) since the machine was started."""
    with open("/proc/stat") as file:
        fields = file.readline().split()
    return (int(fields[4]) + int(fields[5])) / os.sysconf("SC_CLK_TCK")


def feed_rates(place: Path, registry: ps.Registry) -> dict[str, float]:
    """Tokens per second of the second run, and of the same documents as Megatron files."""
    tokens = next(name for name in registry.datasets() if "/tokens-" in name)
    registry.export(tokens, "bin-idx", place / "megatron")
    registry.register("ready", place / "megatron")
    feeds = {
        "second run": ps.open(
            recipe("text@1", ps.Tokenize(str(place / "tokenizer.json"))), registry=registry
        ),
        "Megatron version": ps.open(recipe("ready@1"), registry=registry),
    }
    rates = dict.fromkeys(feeds, 0.0)
    for number in range(ROUNDS):
        turns = list(feeds.items())
        for name, feed in turns if number % 2 else reversed(turns):
            begun = time.perf_counter()
            for _ in range(BATCHES):
                next(feed)
            rates[name] = max(rates[name], BATCHES * BATCH * LENGTH / (time.perf_counter() - begun))
    for feed in feeds.values():
        feed.close()
    return rates
