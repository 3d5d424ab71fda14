"""D6: readers are killed at any moment and go on with other lanes and threads, as if nothing had happened."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import penstock as ps
from tests.data.corpus import Corpus, some_documents
from tests.data.reader import lines_of

RECIPE = """
seed = 5
batch = [[0, 24], [150, 48]]
weights = [[0, {web = 0.6, code = 0.4}], [90, {web = 0.1, code = 0.9}], [200, {web = 0.5, code = 0.5}]]
[[sources]]
name = "web@1"
[[sources.stages]]
kind = "filter"
expression = "lang == 'en'"
[[sources]]
name = "code@1"
[[stages]]
kind = "tokenize"
tokenizer = "tokenizer.json"
[[stages]]
kind = "pack"
length = 32
policy = "fit"
"""
KILLS = 10
ROOT = Path(__file__).resolve().parents[2]
END = 400


def command(folder: Path, log: Path, lanes: int, threads: int, *, pause: int) -> list[str]:
    """A reader on its own command line."""
    return [sys.executable, "-m", "tests.data.reader", *map(str, (folder, log, lanes, threads, END, pause))]


def killed(reader: list[str], log: Path, *, after_lines: int) -> int:
    """Start a reader, kill it once it has said so many lines; how many steps are on record then."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(reader, cwd=ROOT, **pipes) as process:
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in range(after_lines)]
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert all(said)
    assert process.returncode == -signal.SIGKILL
    return len(lines_of(log))


def leftovers(registry: Path) -> list[Path]:
    """Files in the registry that no reader would know: what writers stage has names of its own."""
    return [path for path in registry.rglob("*") if path.is_file() and "tmp" in path.name.lower()]


def test_killed_readers_go_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    """Goal: the stream survives SIGKILL. Method: kill ten lives, the first as it opens what nobody measured, the others at random lines, each
    life with other lanes and threads; let an eleventh finish; compare all digests with one uninterrupted reading."""
    corpus = Corpus(tmp_path)
    corpus.add("web", some_documents(300, longest=60, seed=1), shards=3)
    corpus.add("code", some_documents(80, longest=200, seed=2))
    (tmp_path / "recipe.toml").write_text(RECIPE)
    log, draws, shared = tmp_path / "log.jsonl", random.Random(11), sorted(os.listdir("/dev/shm"))

    progress = [killed(command(tmp_path, log, 2, 2, pause=30), log, after_lines=1)]
    for _ in range(KILLS - 1):
        lanes, threads = draws.choice([1, 2, 3, 4, 6, 8]), draws.choice([0, 1, 3, 8])
        reader = command(tmp_path, log, lanes, threads, pause=30)
        progress.append(killed(reader, log, after_lines=draws.randint(1, 20)))
    assert progress == sorted(progress)
    assert 0 < progress[-1] < END
    last = command(tmp_path, log, 3, 2, pause=END)
    subprocess.run(last, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, cwd=ROOT)

    read = lines_of(log)
    recipe = ps.Recipe.load(tmp_path / "recipe.toml")
    expected = [(batch.step, batch.digest) for batch in corpus.read(recipe, END)]
    assert [(line["step"], line["digest"]) for line in read] == expected
    assert sorted(os.listdir("/dev/shm")) == shared
    assert leftovers(tmp_path / "registry") == []
