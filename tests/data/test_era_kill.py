"""D6 with eras: whoever measures is killed, interrupted or forgotten, and the registry and the stream stay what they are."""

import signal
import subprocess
import sys
from pathlib import Path

import penstock as ps
from tests.data.corpus import Corpus
from tests.data.test_era_feed import fresh, plan_of, read

ROOT = Path(__file__).resolve().parents[2]
RECIPE = """
seed = 5
batch = 12
measure = "eras"
[[sources]]
name = "web@1"
[[stages]]
kind = "filter"
expression = "lang != 'fr'"
[[stages]]
kind = "tokenize"
tokenizer = "tokenizer.json"
[[stages]]
kind = "pack"
length = 16
"""
STEPS = 40


def corpus_at(folder: Path) -> Corpus:
    corpus = fresh(folder)
    (folder / "recipe.toml").write_text(RECIPE)
    return corpus


def command(folder: Path, log: Path, *words: object) -> list[str]:
    """A reader on its own command line."""
    return [sys.executable, "-m", "tests.data.era_reader", str(folder), str(log), *map(str, words)]


def stopped(folder: Path, log: Path, sent: signal.Signals, *, after_slices: int) -> tuple[int, str]:
    """What becomes of a reader that gets a signal when so many slices are measured and it waits for more."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command(folder, log, STEPS, after_slices), cwd=ROOT, **pipes) as process:
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in range(after_slices)]
        assert all(line.startswith("measuring era") for line in said), said
        process.send_signal(sent)
        _, problem = process.communicate(timeout=60)
    return process.returncode, problem


def parts_of(folder: Path) -> dict[Path, int]:
    """The measured pieces in the registry, and which file each is."""
    paths = (folder / "registry" / "columns").rglob("[0-9]*.json")
    return {path: path.stat().st_ino for path in paths}


def test_a_killed_measurement_goes_on_with_what_it_had(tmp_path: Path) -> None:
    """Goal: a kill costs the slices under way and changes no batch. Method: kill readers after 3 and 5 slices; read on; compare with an
    undisturbed registry, and look that finished pieces are still the same files."""
    corpus = corpus_at(tmp_path / "killed")
    snapshots = [parts_of(corpus.folder)]
    logs = [tmp_path / "first", tmp_path / "second"]
    for log, slices in zip(logs, (3, 5), strict=True):
        ended, _ = stopped(corpus.folder, log, signal.SIGKILL, after_slices=slices)
        assert ended == -signal.SIGKILL
        snapshots.append(parts_of(corpus.folder))
        assert snapshots[-2].items() < snapshots[-1].items()
    steps = read(plan_of(corpus, ps.Recipe.load(corpus.folder / "recipe.toml")), STEPS)
    assert snapshots[-1].items() < parts_of(corpus.folder).items()

    undisturbed = corpus_at(tmp_path / "undisturbed")
    assert steps == read(plan_of(undisturbed, ps.Recipe.load(undisturbed.folder / "recipe.toml")), STEPS)
    for log in logs:
        written = log.read_text().split()
        assert written == [step.digest for step in steps[: len(written)]]


def test_an_interrupt_ends_a_reader_that_waits_for_an_era(tmp_path: Path) -> None:
    corpus = corpus_at(tmp_path)
    ended, problem = stopped(corpus.folder, tmp_path / "log", signal.SIGINT, after_slices=1)
    assert ended == -signal.SIGINT
    assert problem.rstrip().endswith("KeyboardInterrupt")


def test_a_feed_that_nobody_closes_does_not_keep_the_process(tmp_path: Path) -> None:
    """Goal: threads are no daemons and still end with the program. Method: leave a feed open while eras are measured ahead."""
    corpus = corpus_at(tmp_path)
    reader = command(corpus.folder, tmp_path / "log", 1, 0, "unclosed")
    done = subprocess.run(reader, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert len((tmp_path / "log").read_text().split()) == 1


def test_processes_share_the_work_and_agree(tmp_path: Path) -> None:
    """Goal: put-if-absent is all they need. Method: two readers of the same unmeasured registry at the same time."""
    corpus = corpus_at(tmp_path)
    logs = [tmp_path / "one", tmp_path / "other"]
    readers = [
        subprocess.Popen(command(corpus.folder, log, STEPS, 0), cwd=ROOT, stdout=subprocess.PIPE)
        for log in logs
    ]
    for reader in readers:
        reader.communicate(timeout=120)
        assert reader.returncode == 0
    one, other = (log.read_text() for log in logs)
    assert one == other
    assert len(one.split()) == STEPS
