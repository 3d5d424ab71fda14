"""Lint: batches of any framework are understood, findings are ranked, addresses show them, and the command exits by what it found."""

import json
from typing import Any

import numpy as np
import pytest

from penstock.errors import UsageError
from penstock.view.address import parse
from penstock.view.lint import KINDS, Expected, lint_batches, lint_stream
from penstock.view.lint.specials import specials_of
from penstock.view.model.tokens.vocabulary import read_vocabulary
from penstock.view.opener import OpenedStream, Opener
from tests.cli.test_data import run
from tests.conftest import ROOT
from tests.view.lint.bench import BOS, EOS, IMAGE, PAD, SPECIALS, Bench, kinds, paragraphs
from tests.view.lint.foreign import FOREIGN
from tests.view.lint.healthy import EXPECTED, HEALTHY, clean
from tests.view.lint.planted_mistakes import PLANTED


def test_tensors_flat_batches_and_boundaries_are_understood() -> None:
    """Goal: what frameworks really give. Method: torch tensors, padding-free rows with cu_seqlens, masks that number documents."""
    import torch

    batch = {name: torch.as_tensor(values) for name, values in clean().items()}
    assert kinds(lint_batches([batch], EXPECTED)) == []
    flat = {
        "input_ids": torch.tensor([[BOS, 50, 70, EOS, BOS, 60, 61, EOS]]),
        "position_ids": torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3]]),
        "cu_seq_lens_q": torch.tensor([0, 4, 8]),
    }
    assert kinds(lint_batches([flat], EXPECTED)) == []
    joined = flat | {"cu_seq_lens_q": torch.tensor([0, 8])}
    assert set(kinds(lint_batches([joined], EXPECTED))) == {"attention-leak", "boundaries-disagree"}
    numbered = {"input_ids": flat["input_ids"], "attention_mask": torch.tensor([[1, 1, 1, 1, 2, 2, 2, 2]])}
    assert kinds(lint_batches([numbered], EXPECTED)) == []
    for bad, reason in (
        ({"x": 1}, "no tokens"),
        ({"tokens": [0.5]}, "float64"),
        (flat | {"cu_seq_lens_q": [0, 9]}, "cu_seqlens"),
    ):
        with pytest.raises(UsageError, match=reason):
            lint_batches([bad], EXPECTED)
    with pytest.raises(UsageError, match="unknown check 'nonsense'"):
        lint_batches([], allow=["nonsense"])


@pytest.mark.parametrize("case", FOREIGN, ids=lambda case: case.name)
def test_what_is_allowed_is_not_found(case: Any, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: every kind can be said to be no mistake here. Method: the planted batches, with their kinds allowed."""
    from tests.view.lint import foreign

    def allowing(batches: Any, expected: Expected | None = None) -> Any:
        return lint_batches(batches, expected, allow=[case.kind, *case.follow])

    monkeypatch.setattr(foreign, "lint_batches", allowing)
    assert kinds(case.make(bench)) == []


def test_odd_batches_are_looked_at_or_refused(bench: Bench) -> None:
    """Goal: no bare error, whatever a loader gives. Method: nothing at all, one token, numbers below zero, half floats, odd names."""
    import torch

    known = Expected().knowing(read_vocabulary(bench.tokenizer))
    for batch in (
        {"input_ids": np.zeros((0, 0), dtype=np.int64)},
        {"input_ids": np.zeros((3, 0), dtype=np.int64)},
        {"input_ids": np.array([7])},
        {"input_ids": np.array([[7]]), "labels": np.array([[7]]), "position_ids": np.array([[0]])},
        {"input_ids": torch.tensor([[7, 8, 9]]), "loss_mask": torch.ones(1, 3, dtype=torch.bfloat16)},
        {"input_ids": torch.tensor([[7, 8, 9]]), "attention_mask": torch.ones(1, 1, 3, 3)},
        {"input_ids": np.array([[7, 8, 9]]), "labels": np.array([1])},
    ):
        for expected in (None, known, EXPECTED):
            assert lint_batches([batch], expected).errors == 0, batch
    negative = {"input_ids": np.array([[7, -1, 9]])}
    assert kinds(lint_batches([negative], known)) == ["outside-vocabulary"]
    with pytest.raises(UsageError, match="names 1 sources for 2 rows"):
        lint_batches([{"input_ids": np.zeros((2, 4), dtype=int), "sources": ["a"]}])


def test_errors_come_first_and_then_what_spoils_most() -> None:
    """Goal: the first line is the one to act on. Method: an error in one row, an error in all, a warning in most."""
    batches = [clean(seed=seed) for seed in range(4)]
    for batch in batches:
        batch["labels"] = batch["input_ids"].copy()
        batch["sources"] = ["a", "a", "a", "b"]
    batches[0]["input_ids"][2, 5] = batches[0]["labels"][2, 5] = 100
    expected = Expected(**{**EXPECTED.__dict__, "weights": {"a": 0.1, "b": 0.9}})
    report = lint_batches(batches, expected)
    assert kinds(report) == ["loss-on-padding", "outside-vocabulary", "dominating-source"]
    costs = [finding.cost for finding in report.findings]
    assert costs[0] > costs[1]
    assert report.errors == 2


def test_an_epoch_that_was_said_is_no_repeat() -> None:
    batches = [clean(seed=seed % 2) for seed in range(4)]
    assert kinds(lint_batches(batches, EXPECTED)) == ["repeated-sample"]
    said = Expected(**{**EXPECTED.__dict__, "epoch_rows": 8})
    assert kinds(lint_batches(batches, said)) == []


def wrong_rows(bench: Bench, kind: str) -> "np.ndarray[Any, Any]":
    """Rows of real text in tokens, as a bad preparation would leave them."""
    flat = [token for ids in bench.encoded(paragraphs()) for token in ids]
    rows = np.array(flat[: 32 * 64], dtype=np.uint16).reshape(32, 64)
    if kind == "outside-vocabulary":
        rows[5, 7] = 60_000
    elif kind == "loss-on-padding":
        rows[5, 60:] = PAD
    elif kind == "loss-on-placeholder":
        rows[5, 7] = IMAGE
    elif kind == "doubled-special":
        rows[:, 0] = BOS
        rows[5, 1] = BOS
    elif kind == "attention-leak":
        rows[:, 0] = BOS
        rows[5, 12] = BOS
    return rows


WRONG = {
    "outside-vocabulary": 60_000,
    "loss-on-padding": PAD,
    "loss-on-placeholder": IMAGE,
    "doubled-special": BOS,
    "attention-leak": BOS,
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_source_with_wrong_tokens_is_found_with_an_address_that_shows_it(bench: Bench, kind: str) -> None:
    """Goal: each finding has an address. Method: a real source whose bytes are wrong, and the token at the address."""
    name = bench.stored(kind, wrong_rows(bench, kind))
    recipe = {"batch": 4, "shuffle": "none", "sources": [{"name": name}]}
    stream = bench.stream(recipe, tokenizer=bench.tokenizer)
    report = lint_stream(stream, range(4))
    # Where documents are joined, positions go on too.
    assert kinds(report) == [kind] + ["positions-not-reset"] * (kind == "attention-leak")
    address = report.findings[0].address
    opened = Opener(bench.registry).open(parse(address))
    assert isinstance(opened, OpenedStream)
    place = opened.address.place
    assert (place.step, place.row) == (1, 1)
    assert opened.batch().arrays["tokens"][place.row, place.token] == WRONG[kind]  # type: ignore[union-attr]


def test_the_same_sample_twice_in_an_epoch_is_found_and_in_two_epochs_is_not(bench: Bench) -> None:
    """Goal: epochs are counted. Method: the same batch looked at twice, and a window of several epochs."""
    stream = bench.stream(bench.recipe(bench.texts("few", paragraphs()[:60])))
    assert kinds(lint_stream(stream, range(20))) == []
    again = lint_stream(stream, [0, 1, 0])  # type: ignore[arg-type]
    assert kinds(again) == ["repeated-sample"]
    notes = lint_stream(stream, range(30)).notes
    assert any("epochs of few" in note for note in notes), notes


def test_special_tokens_are_known_by_configuration_and_by_name(bench: Bench) -> None:
    """Goal: names as well as numbers. Method: a tokenizer alone, and one whose configuration says something else."""
    known = specials_of(read_vocabulary(bench.tokenizer))
    assert (known.begin, known.end, known.pad) == ({BOS}, {EOS}, {PAD})
    folder = bench.folder / "configured"
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer.json").write_bytes(bench.tokenizer.read_bytes())
    configuration = {
        "eos_token": {"content": SPECIALS[3]},
        "bos_token": SPECIALS[1],
        "pad_token": SPECIALS[1],
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(configuration))
    known = specials_of(read_vocabulary(folder / "tokenizer.json"))
    # One token that is all of them ends texts.
    assert {EOS, 3} <= known.end
    assert EOS not in known.begin | known.pad


def test_the_command_exits_by_what_it_found(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    place = str(bench.folder / "registry")

    def lint(recipe: dict[str, Any], *options: str) -> int:
        path = bench.folder / "command.json"
        path.write_text(json.dumps(recipe))
        return run("lint", str(path), "--registry", place, "--steps", "0:4", *options)

    assert lint(bench.recipe(bench.texts())) == 0
    assert "nothing" in capsys.readouterr().err
    recipe = {
        "batch": 4,
        "shuffle": "none",
        "sources": [{"name": bench.stored("bad", wrong_rows(bench, "outside-vocabulary"))}],
    }
    tokenizer = ("--tokenizer", str(bench.tokenizer))
    assert lint(recipe, *tokenizer) == 1
    shown = capsys.readouterr().out
    assert "outside-vocabulary" in shown
    assert "penstock view" in shown
    assert lint(recipe, *tokenizer, "--json") == 1
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert (finding["kind"], finding["unit"]) == ("outside-vocabulary", "tokens")
    assert finding["places"][0] == finding["address"]
    assert lint(recipe, *tokenizer, "--allow", "outside-vocabulary") == 0
    assert lint(recipe, *tokenizer, "--eos", "<|im_end|>", "--bos", "0", "--allow", "outside-vocabulary") == 0
    assert lint(recipe, *tokenizer, "--eos", "<|nothing|>") == 2
    assert "<|nothing|>" in capsys.readouterr().err
    # A warning is said, and is no failure unless that is asked for.
    short = bench.recipe(
        bench.texts(), bench.tokenize(), {"kind": "truncate", "length": 24}, {"kind": "pack", "length": 64}
    )
    capsys.readouterr()
    assert lint(short) == 0
    assert "warning: truncated" in capsys.readouterr().out
    assert lint(short, "--strict") == 1
    assert lint(bench.recipe(bench.texts()), "--against", bench.texts("tests", paragraphs()[:300])) == 1
    assert "contamination" in capsys.readouterr().out
    assert run("lint", str(bench.folder / "command.json"), "--registry", place, "--steps", "x") == 2


def test_the_guide_has_the_tables() -> None:
    """Goal: the guide says what is found and what is not, and it is what these tests show."""
    page = (ROOT / "docs/guide/lint.md").read_text()
    for name, kind in KINDS.items():
        assert f"| `{name}` | {kind.meaning} |" in page, name
    for case in (*PLANTED, *FOREIGN):
        assert f"| {case.words} | `{case.kind}` |" in page, case.words
    for case in HEALTHY:
        assert f"- {case.words}\n" in page, case.words
    assert len(PLANTED) + len(FOREIGN) >= 25 <= len(HEALTHY)
