"""``penstock checkpoint``: every command, for people and for programs, on good input and bad."""

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file

from penstock.cli.checkpoint import COMMANDS
from penstock.cli.checkpoint import app as checkpoint_app
from penstock.cli.main import main
from penstock.run.directory import About, RunDirectory
from penstock.state import Checkpoints
from penstock.store import to_url

Capture = pytest.CaptureFixture[str]


def state(seed: int) -> dict[str, Any]:
    """A state whose ``frozen`` part is always the same."""
    make = np.random.default_rng(seed).standard_normal
    return {
        "model": {"w": make((40, 30)).astype(np.float32), "frozen": np.ones((600, 600), np.float32)},
        "optimizer": {"w": {"exp_avg": np.zeros((40, 30), np.float32), "step": np.float32(seed)}},
        "lr": 1 / seed,
    }


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a run of three checkpoints."""
    monkeypatch.chdir(tmp_path)
    with Checkpoints("run") as checkpoints:
        for seed in (1, 2, 3):
            cursor = {"cursor": {"position": seed}, "torch.rng": list(range(900))}
            checkpoints.save(seed * 100, state(seed), cursor, metrics={"loss": 2 / seed}).wait()
    return tmp_path / "run"


def run(*words: str) -> int:
    return main(["checkpoint", *words])


def documents(capsys: Capture) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def flip(place: Path, byte: int = -1) -> Path:
    """Flip a bit in the newest data file."""
    file = sorted((place / "data").rglob("*.safetensors"))[-1]
    raw = bytearray(file.read_bytes())
    raw[byte] ^= 1
    file.write_bytes(raw)
    return file


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_purpose_examples_and_json(command: str, capsys: Capture) -> None:
    assert run(command, "--help") == 0
    text = capsys.readouterr().out
    assert f"penstock checkpoint {command}" in text.partition("examples:")[2]
    assert "--json" in text
    assert checkpoint_app[command].help == COMMANDS[command][0]


def test_list_says_what_is_there_and_what_was_new(capsys: Capture) -> None:
    assert run("list", "run") == 0
    text = capsys.readouterr().out
    assert "loss=0.666667" in text
    assert run("list", "run", "--json") == 0
    checkpoints = documents(capsys)
    assert [checkpoint["step"] for checkpoint in checkpoints] == [100, 200, 300]
    assert [checkpoint["files"] for checkpoint in checkpoints] == [1, 2, 2]
    # What was frozen is written once.
    assert checkpoints[0]["new_bytes"] == checkpoints[0]["bytes"]
    assert checkpoints[1]["new_bytes"] == checkpoints[1]["bytes"] - 600 * 600 * 4 - 40 * 30 * 4
    assert [checkpoint["damage"] for checkpoint in checkpoints] == ["", "", ""]
    assert run("list", "elsewhere") == 1
    captured = capsys.readouterr()
    assert "no checkpoint at all" in captured.err
    assert "nothing is saved there" in captured.err
    assert not Path("elsewhere").exists()


def test_looking_changes_nothing(place: Path, capsys: Capture) -> None:
    before = {path: path.stat().st_mtime_ns for path in place.rglob("*")}
    for words in (
        ["list", "run"],
        ["show", "run", "--norms"],
        ["verify", "run", "--all"],
        ["diff", "run", "100", "300"],
    ):
        assert run(*words) in (0, 1)
    assert run("prune", "run", "--keep-last", "1", "--dry-run") == 0
    assert {path: path.stat().st_mtime_ns for path in place.rglob("*")} == before
    capsys.readouterr()


def test_show_has_tensors_values_entries_and_norms(capsys: Capture) -> None:
    assert run("show", "run") == 0
    text = capsys.readouterr().out
    assert "model/frozen" in text
    assert "600×600" in text
    assert '"position":3' in text
    assert "[900 items]" in text
    assert run("show", "run", "200", "--tensors", "model/*", "--norms") == 0
    text = capsys.readouterr().out
    assert "600 " in text
    assert "optimizer/w" not in text
    assert run("show", "run", "100", "--norms", "--json") == 0
    (document,) = documents(capsys)
    by_name = {tensor["name"]: tensor for tensor in document["tensors"]}
    assert by_name["model/frozen"]["figures"]["l2"] == 600.0
    assert by_name["optimizer/w/exp_avg"]["figures"]["zero_share"] == 1.0
    assert document["values"] == {"lr": 1.0}
    assert document["entries"]["shared"]["cursor"] == {"position": 1}
    assert run("show", "run", "number=1", "--json") == 0
    assert documents(capsys)[0]["step"] == 100


def test_verify_finds_damage_and_puts_it_into_the_log_when_asked(place: Path, capsys: Capture) -> None:
    assert run("verify", "run", "--all") == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "step 300 (number 3) is as it was saved" in captured.err
    assert "GB/s" in captured.err
    flip(place)
    assert run("verify", "run", "200") == 0
    capsys.readouterr()
    assert run("verify", "run") == 1
    captured = capsys.readouterr()
    assert "expected xxh3" in captured.out
    assert "damaged in 1 places" in captured.err
    assert run("list", "run", "--json") == 0
    assert documents(capsys)[-1]["damage"] == ""
    assert run("verify", "run", "--quarantine", "--json") == 1
    (document,) = documents(capsys)
    assert document["quarantined"]
    assert document["damages"][0]["tensor"].startswith(("model", "optimizer"))
    assert run("list", "run") == 0
    assert "is damaged at byte" in capsys.readouterr().out
    # It can still be looked at, and the newest good one is the one before.
    assert run("verify", "run", "300") == 1
    assert run("verify", "run") == 0
    assert "step 200" in capsys.readouterr().err


def test_diff_says_what_moved_and_what_stood_still(capsys: Capture) -> None:
    assert run("diff", "run", "100", "300", "--top", "1") == 1
    captured = capsys.readouterr()
    assert "model/w" in captured.out
    assert "moments that stood still while their parameter moved" in captured.out
    assert "optimizer/w/exp_avg" in captured.out
    assert "1.0 → 0.3333333333333333" in captured.out
    assert "and 1 tensors more that changed" in captured.err
    assert run("diff", "run", "100", "300", "--json") == 1
    (document,) = documents(capsys)
    assert {change["name"] for change in document["changes"]} == {"model/w", "optimizer/w/step"}
    assert document["stale_moments"] == [{"parameter": "model/w", "moment": "optimizer/w/exp_avg"}]
    assert document["equal_by_hash"] == 2
    assert document["before"]["step"] == 100
    shutil.copytree("run", "again")
    assert run("diff", "run", "latest", "300", "--other", "again") == 0
    assert "0 tensors changed, 4 are equal (4 known by their hashes)" in capsys.readouterr().err


def test_export_and_import_as_safetensors(capsys: Capture) -> None:
    assert (
        run("export", "run", "latest", "hf", "--prefix", "model/", "--max-shard", "1MB", "--dtype", "bf16")
        == 0
    )
    captured = capsys.readouterr()
    assert captured.out == "hf/model.safetensors\n"
    assert "step 300" in captured.err
    loaded = load_file("hf/model.safetensors")
    assert {name: tensor.dtype for name, tensor in loaded.items()} == dict.fromkeys(
        ("frozen", "w"), ml_dtypes.bfloat16
    )
    assert run("export", "run", "latest", "hf", "--prefix", "model/") == 2
    assert "--force" in capsys.readouterr().err
    assert (
        run("export", "run", "200", "hf", "--only", "model/w", "--only", "optimizer/*", "--force", "--json")
        == 0
    )
    assert documents(capsys)[0]["written"] == ["hf/model.safetensors"]
    assert sorted(load_file("hf/model.safetensors")) == ["model/w", "optimizer/w/exp_avg", "optimizer/w/step"]
    assert run("import", "new", "hf", "--step", "7", "--run", "tuned") == 0
    captured = capsys.readouterr()
    assert captured.out == "7\n"
    assert "3 tensors" in captured.err
    assert run("show", "new", "--json") == 0
    assert documents(capsys)[0]["run"] == "tuned"
    assert run("import", "new", "hf", "--step", "8") == 2
    assert "belongs to a run already" in capsys.readouterr().err
    assert run("import", "new", "hf", "--step", "8", "--force", "--json") == 0
    assert documents(capsys)[0]["incarnation"] == 1


def test_export_and_import_through_torch_and_as_a_copy(capsys: Capture) -> None:
    assert run("export", "run", "300", "x.pt", "--to", "torch") == 0
    assert run("export", "run", "300", "dcp", "--to", "dcp") == 0
    assert run("export", "run", "300", "copy", "--self-contained") == 0
    assert capsys.readouterr().out == "x.pt\ndcp/.metadata\ndcp/__0_0.distcp\ncopy\n"
    for name in ("x.pt", "dcp"):
        assert run("import", f"from-{name}", name, "--step", "300") == 0
    for other in ("from-x.pt", "from-dcp", "copy"):
        capsys.readouterr()
        run("diff", "run", "300", "300", "--other", other, "--json")
        (document,) = documents(capsys)
        assert (document["changed_tensors"], document["added"], document["removed"], document["values"]) == (
            0,
            [],
            [],
            {},
        )
    assert run("export", "run", "300", "other", "--self-contained", "--dtype", "f16") == 2
    assert "a copy of everything" in capsys.readouterr().err


@pytest.mark.parametrize("point", ["state.written=kill@1", "state.described=kill"])
def test_a_killed_import_leaves_nothing_and_can_be_made_again(point: str, capsys: Capture) -> None:
    """Goal: S1 for imports. Method: SIGKILL a real import, look, import again, and prune what the first one left."""
    assert run("export", "run", "300", "hf") == 0
    command = [sys.executable, "-m", "penstock.cli.main", "checkpoint", "import", "new", "hf", "--step", "5"]
    done = subprocess.run(command, env={**os.environ, "PENSTOCK_POINTS": point}, capture_output=True)
    assert done.returncode == -signal.SIGKILL
    left = list(Path("new/data").rglob("*.safetensors"))
    assert left
    assert run("list", "new") == 1
    assert "nothing is saved there" in capsys.readouterr().err
    assert run("import", "new", "hf", "--step", "5") == 0
    assert run("prune", "new", "--keep-last", "1") == 0
    assert not any(path.exists() for path in left)
    capsys.readouterr()
    assert run("verify", "new", "--all", "--json") == 0
    assert [checkpoint["step"] for checkpoint in documents(capsys)] == [5]


def test_prune_keeps_what_is_asked_for(place: Path, capsys: Capture) -> None:
    assert run("prune", "run", "--keep-last", "1", "--keep-every", "200", "--dry-run") == 0
    assert "would go" in capsys.readouterr().out
    assert run("prune", "run", "--keep-last", "1", "--keep-every", "200", "--json") == 0
    (document,) = documents(capsys)
    assert (document["retired"], document["kept"]) == ([], [100, 200, 300])
    assert run("prune", "run", "--keep-last", "1") == 0
    assert "100, 200" in capsys.readouterr().out
    assert run("verify", "run", "--all", "--json") == 0
    assert [checkpoint["step"] for checkpoint in documents(capsys)] == [300]


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (["show", "run", "77"], "no checkpoint of step 77", "known steps are 100, 200, 300"),
        (["show", "run", "newest"], "'newest' is not a checkpoint", "latest"),
        (["show", "run", "--tensors", "x*"], "no tensor matches 'x*'", "model/frozen"),
        (["list", "run:nowhere"], "nowhere", ""),
        (["verify", "run", "100", "--all"], "--all and step 100", ""),
        (["export", "run", "100", "x", "--max-shard", "many"], "'many' is not a size", "5GB"),
        (["export", "run", "100", "x", "--prefix", "no/"], "no tensor is chosen", "model/frozen"),
        (["export", "run", "100", "x", "--to", "onnx"], "onnx", "--help"),
        (["import", "new", "nothing", "--step", "1"], "nothing cannot be imported", ""),
        (["import", "new", "nothing"], "--step", "--help"),
        (["prune", "run", "--keep-last", "0"], "last must be at least 1, got", ""),
        (["list", "ftp://host/x"], "must be a path or a URL of", "ftp://host/x"),
    ],
)
def test_bad_input_gets_a_sentence_and_exit_code_2(
    words: list[str], message: str, hint: str, capsys: Capture
) -> None:
    assert run(*words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert message in captured.err
    assert hint in captured.err


@pytest.mark.parametrize(
    "words",
    [
        ["list"],
        ["list", "--json"],
        ["show"],
        ["show", "100"],
        ["verify"],
        ["verify", "--all"],
        ["diff", "1", "2"],
        ["export", "1", "x"],
        ["prune", "--keep-last", "1"],
    ],
)
def test_an_empty_place_is_exit_code_1(words: list[str], capsys: Capture) -> None:
    Path("empty").mkdir()
    for place in ("empty", "nowhere"):
        assert run(words[0], place, *words[1:]) == 1
        captured = capsys.readouterr()
        assert captured.out == ""
        assert "nothing is saved there" in captured.err
    assert not Path("nowhere").exists()


def test_all_commands_take_the_directory_of_a_run_and_its_address(place: Path, capsys: Capture) -> None:
    """Goal: nobody has to know where in a run its checkpoints lie. Method: a run's directory with its own place, one whose place is
    elsewhere, and one that was moved."""
    for name, recorded in (
        ("own", "runs/own/checkpoints"),
        ("far", "run"),
        ("moved", "runs/gone/checkpoints"),
    ):
        RunDirectory(f"runs/{name}").describe(
            About(1, 0.0, 1, True, {}, "b3:0", "registry", to_url(Path(recorded).resolve()))
        )
    for name in ("own", "moved"):
        shutil.copytree(place, f"runs/{name}/checkpoints")
    for name in ("own", "far", "moved"):
        for address in (f"runs/{name}", f"run:runs/{name}", f"run:{name}"):
            capsys.readouterr()
            assert run("list", address, "--json") == 0
            assert [checkpoint["step"] for checkpoint in documents(capsys)] == [100, 200, 300]
    assert run("show", "runs/own", "200") == 0
    assert run("verify", "run:own", "--all") == 0
    assert run("diff", "runs/own", "100", "100", "--other", "run:far") == 0
    assert run("export", "runs/own", "latest", "kept", "--self-contained") == 0
    assert run("prune", "run:moved", "--keep-last", "1") == 0
    capsys.readouterr()
    assert run("list", "runs/moved", "--json") == 0
    assert [checkpoint["step"] for checkpoint in documents(capsys)] == [300]


def test_damage_on_the_way_is_exit_code_1(place: Path, capsys: Capture) -> None:
    flip(place)
    assert run("export", "run", "latest", "hf") == 1
    assert "is damaged at byte" in capsys.readouterr().err
    manifest = next((place / "manifests").iterdir())
    manifest.write_bytes(b"{}")
    assert run("list", "run", "--json") == 0
    # The second copy is whole.
    assert [checkpoint["damage"] for checkpoint in documents(capsys)] == ["", "", ""]
    (place / "copies" / "manifests" / manifest.name).write_bytes(b"{}")
    assert run("list", "run", "--json") == 0
    assert sum("its digest is not" in checkpoint["damage"] for checkpoint in documents(capsys)) == 1


def test_object_stores_are_places_too(s3_bucket: str, capsys: Capture) -> None:
    place = f"{s3_bucket}/{uuid.uuid4().hex}"
    assert run("export", "run", "300", place, "--self-contained") == 0
    capsys.readouterr()
    assert run("verify", place, "--json") == 0
    assert documents(capsys)[0]["ok"]
    assert run("diff", place, "300", "300", "--other", "run") == 0
    assert run("show", place, "--norms", "--tensors", "model/w") == 0


def test_a_terminal_sees_a_bar(place: Path) -> None:
    """Goal: progress for people. Method: a real terminal on stderr."""
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "penstock.cli.main", "checkpoint", "verify", str(place)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=follower)
    os.close(follower)
    shown = os.read(leader, 1 << 16).decode()
    os.close(leader)
    assert done.returncode == 0
    assert done.stdout == b""
    assert "verifying step 300" in shown
    assert "━" in shown


def test_bash_completes_checkpoint_commands(tmp_path: Path, capsys: Capture) -> None:
    main(["completion", "bash"])
    (tmp_path / "script").write_text(capsys.readouterr().out)
    ask = (
        "source ./script; COMP_WORDS=(penstock checkpoint ve); COMP_CWORD=2; _penstock; echo ${COMPREPLY[@]}"
    )
    done = subprocess.run(["bash", "-c", ask], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["verify"]
