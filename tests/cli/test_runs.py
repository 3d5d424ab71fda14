"""``penstock runs``: what a person and a program are told about a run."""

import json
import math
from pathlib import Path

import pytest

from penstock.cli.main import main
from penstock.run import Policy
from tests.run.small import make, train
from tests.torch.stream import Stream, make_stream


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs: one of two lives with a skipped step, one that was stopped."""
    stream: Stream = make_stream(tmp_path_factory.mktemp("stream"))
    place = tmp_path_factory.mktemp("runs")
    for stop in (5, 9):
        policy = Policy(save_every=4, stop_at=stop, non_finite="skip")
        train(make(stream, place / "deep/good", policy), bad={3: math.nan})
    with pytest.raises(Exception, match="stopped at step 2"):
        train(make(stream, place / "bad", Policy(save_every=4, stop_at=9)), bad={2: math.nan})
    return place


def test_runs_are_found_with_their_state(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", "list", str(folder), "--json"]) == 0
    bad, good = map(json.loads, capsys.readouterr().out.splitlines())
    assert (good["run"], good["lives"], good["step"], good["state"]) == ("deep/good", 2, 8, "done")
    assert (bad["run"], bad["lives"], bad["state"]) == ("bad", 1, "stopped")
    assert main(["runs", "list", str(folder)]) == 0
    assert "deep/good" in capsys.readouterr().out
    assert main(["runs", "list", str(folder / "bad/journal")]) == 0
    assert "no runs" in capsys.readouterr().err


def test_the_story_of_a_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Goal: the story across lives, for people and for programs. Method: every entry once, with a sentence of its own."""
    assert main(["runs", "show", str(folder / "deep/good")]) == 0
    story = capsys.readouterr().out
    for words in (
        "begins from nothing",
        "skip: the loss is nan",
        "weights are now",
        "goes on from the checkpoint of life 0",
        "done",
    ):
        assert words in story, words
    assert main(["runs", "show", str(folder / "deep/good"), "--json"]) == 0
    entries = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [entry["life"] for entry in entries if entry["kind"] == "start"] == [0, 1]
    assert all(entry["sentence"] != entry["kind"] for entry in entries)


def test_what_is_no_run_is_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", "show", str(folder)]) == 2
    assert "there is no run in" in capsys.readouterr().err


def test_what_was_logged_is_shown(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stream = make_stream(tmp_path)
    run = make(stream, tmp_path / "run", Policy(save_every=None, stop_at=5))
    train(run, at=lambda step: run.log(val_loss=step / 4, lr=0.5) if step % 2 == 0 else None)
    assert main(["runs", "show", str(tmp_path / "run"), "--metrics", "--json"]) == 0
    entries = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(entry["step"], entry["values"]) for entry in entries] == [
        (step, {"val_loss": step / 4, "lr": 0.5}) for step in (0, 2, 4)
    ]
    assert main(["runs", "show", str(tmp_path / "run"), "--metrics"]) == 0
    shown = capsys.readouterr().out
    assert "val_loss" in shown
    assert "rank" not in shown
    # Whoever logs on another rank finds it too.
    logged = tmp_path / "run/metrics/000000-0000.jsonl"
    logged.with_name("000000-0001.jsonl").write_bytes(
        logged.read_bytes().replace(b'"values"', b'"rank":1,"values"')
    )
    assert main(["runs", "show", str(tmp_path / "run"), "--metrics"]) == 0
    rows = [line.split()[:2] for line in capsys.readouterr().out.splitlines()]
    assert [row for row in rows if row[0].isdigit()] == [[step, rank] for step in "024" for rank in "01"]
    assert main(["runs", "show", str(folder / "bad"), "--metrics"]) == 0
    assert "nothing was logged" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["runs", "show"], ["runs", "show", "--account"], ["report"], ["checkpoint", "list"]]
)
def test_a_run_has_one_address_in_every_command(
    folder: Path, words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a directory, ``run:DIR`` and a name below ``runs/`` mean the same. Method: the same document for each of them."""
    monkeypatch.chdir(folder.parent)
    if not Path("runs").exists():
        Path("runs").symlink_to(folder)
    documents = []
    for address in (str(folder / "deep/good"), f"run:{folder / 'deep/good'}", "deep/good", "run:deep/good"):
        assert (
            main(
                [*words[:2], address, *words[2:], "--json"] if len(words) > 1 else [*words, address, "--json"]
            )
            == 0
        )
        documents.append(capsys.readouterr().out)
    assert documents[0]
    assert len(set(documents)) == 1
