"""Lint: a planted mistake of every kind is found, with the place to look at, and clean data gives nothing."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.errors import UsageError
from penstock.view.address import parse
from penstock.view.lint import KINDS, Expected, LintReport, lint_batches, lint_stream
from penstock.view.opening import OpenedStream, Opener
from tests.cli.test_data import run
from tests.view.library import CONVERSATIONS, HOSTILE, Library

BOS, EOS, PAD, IMAGE = 1, 2, 3, 4
SIZE = 100
EXPECTED = Expected(
    vocabulary_size=SIZE, bos=BOS, eos=EOS, pad=PAD, placeholders=frozenset({IMAGE}), begins=True, ends=True
)


def clean(rows: int = 4, seed: int = 0) -> dict[str, Any]:
    """A batch as a good collator makes it: two documents a row, then padding."""
    draws = np.random.default_rng(seed)
    tokens = np.full((rows, 24), PAD)
    segments, positions = np.zeros((2, rows, 24), dtype=np.int64)
    for row in range(rows):
        for number, (first, stop) in enumerate(((0, 10), (10, 20)), start=1):
            tokens[row, first:stop] = draws.integers(10, SIZE, stop - first)
            tokens[row, [first, stop - 1]] = BOS, EOS
            segments[row, first:stop] = number
            positions[row, first:stop] = np.arange(stop - first)
    labels = np.where(tokens == PAD, -100, tokens)
    return {
        "input_ids": tokens,
        "labels": labels,
        "segment_ids": segments,
        "position_ids": positions,
        "attention_mask": (segments > 0).astype(np.int64),
    }


def kinds(report: LintReport) -> list[str]:
    """What was found."""
    return [finding.kind for finding in report.findings]


def test_clean_batches_give_nothing() -> None:
    report = lint_batches([clean(seed=seed) for seed in range(5)], EXPECTED)
    assert report.findings == []
    assert (report.batches, report.rows, report.tokens) == (5, 20, 20 * 24)


def plant(kind: str, batch: dict[str, Any]) -> list[dict[str, Any]]:
    """Batches with one mistake, in row 2."""
    ids, labels = batch["input_ids"], batch["labels"]
    if kind == "loss-on-padding":
        labels[2, 22] = PAD
    elif kind == "loss-on-placeholder":
        ids[2, 3] = labels[2, 3] = IMAGE
    elif kind == "loss-on-prompt":
        batch["prompt_mask"] = np.zeros(ids.shape)
        batch["prompt_mask"][2, 3:5] = 1
    elif kind == "attention-leak":
        batch["segment_ids"][2, 10:20] = 1
        batch["position_ids"][2] = 0
    elif kind == "positions-not-reset":
        batch["position_ids"][2, 10:20] += 10
    elif kind == "positions-jump":
        batch["position_ids"][2, 15:20] += 7
    elif kind == "truncated":
        ids[2:, 20:] = labels[2:, 20:] = 50
        batch["attention_mask"][2:] = 1
        batch["segment_ids"][2:, 20:] = 2
        batch["position_ids"][2:, 20:] = np.arange(10, 14)
        ids[2:, 19] = labels[2:, 19] = 50
    elif kind == "repeated-sample":
        return [batch, {name: np.roll(values, 1, axis=0) for name, values in batch.items()}]
    elif kind == "outside-vocabulary":
        ids[2, 5] = labels[2, 5] = SIZE
    elif kind == "doubled-special":
        ids[2, 1] = labels[2, 1] = BOS
    elif kind == "missing-special":
        ids[2, 10] = labels[2, 10] = 50
    elif kind == "row-without-loss":
        labels[2] = -100
    elif kind == "dominating-source":
        batch["sources"] = ["a", "a", "b", "b"]
        labels[:2] = np.where(np.arange(24) < 1, labels[:2], -100)
    return [batch]


@pytest.mark.parametrize("kind", KINDS)
def test_a_planted_mistake_in_somebody_elses_batches_is_found(kind: str) -> None:
    """Goal: tensors after any collate can be checked. Method: a clean batch, with one mistake of one kind in row 2."""
    expected = Expected(**{**EXPECTED.__dict__, "weights": {"a": 0.5, "b": 0.5}})
    report = lint_batches(plant(kind, clean()), expected)
    assert kinds(report) == [kind]
    (finding,) = report.findings
    assert "row 2" in finding.address or kind in ("truncated", "repeated-sample")
    assert any(character.isdigit() for character in finding.sentence)
    assert lint_batches(plant(kind, clean()), expected, allow=[kind]).findings == []


def test_tensors_flat_batches_and_boundaries_are_understood() -> None:
    """Goal: what frameworks really give. Method: torch tensors, padding-free rows with cu_seqlens, masks that number documents."""
    import torch

    batch = {name: torch.as_tensor(values) for name, values in clean().items()}
    assert kinds(lint_batches([batch], EXPECTED)) == []
    flat = {
        "input_ids": torch.tensor([[BOS, 50, EOS, BOS, 60, 61, EOS]]),
        "position_ids": torch.tensor([[0, 1, 2, 0, 1, 2, 3]]),
        "cu_seq_lens_q": torch.tensor([0, 3, 7]),
    }
    assert kinds(lint_batches([flat], EXPECTED)) == []
    joined = flat | {"cu_seq_lens_q": torch.tensor([0, 7])}
    assert kinds(lint_batches([joined], EXPECTED)) == ["attention-leak"]
    numbered = {"input_ids": flat["input_ids"], "attention_mask": torch.tensor([[1, 1, 1, 2, 2, 2, 2]])}
    assert kinds(lint_batches([numbered], EXPECTED)) == []
    for bad, reason in (
        ({"x": 1}, "no tokens"),
        ({"tokens": [0.5]}, "float64"),
        (flat | {"cu_seq_lens_q": [0, 9]}, "cu_seqlens"),
    ):
        with pytest.raises(UsageError, match=reason):
            lint_batches([bad], EXPECTED)
    with pytest.raises(UsageError, match="no check 'nonsense'"):
        lint_batches([], allow=["nonsense"])


def stream_of(library: Library, recipe: str, **options: Any) -> OpenedStream:
    """A recipe, opened."""
    opened = Opener(library.registry, **options).open(parse(recipe))
    assert isinstance(opened, OpenedStream)
    return opened


def many(count: int) -> list[str]:
    """Texts that differ."""
    return [f"text number {n}: {HOSTILE[n % len(HOSTILE)]}" for n in range(count)]


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Library:
    """Clean texts and conversations, and rows of numbers in which somebody made mistakes."""
    made = Library(tmp_path_factory.mktemp("shelf"))
    made.add_texts("texts", many(200))
    made.add("talks", CONVERSATIONS)
    return made


def test_clean_recipes_give_nothing(shelf: Library) -> None:
    for recipe in (shelf.recipe("texts@1"), shelf.recipe("texts@1", policy="fit", length=128)):
        report = lint_stream(stream_of(shelf, recipe), range(8))
        assert (report.findings, report.batches) == ([], 8)
    report = lint_stream(stream_of(shelf, shelf.chat("talks@1")), range(3))
    assert (report.findings, report.notes) == ([], [])


def wrong_rows(kind: str) -> "np.ndarray[Any, Any]":
    """Rows of tokens of the library's tokenizer, as a bad preparation would leave them."""
    draws = np.random.default_rng(3)
    rows = draws.integers(20, 250, (32, 24)).astype(np.uint16)
    if kind == "outside-vocabulary":
        rows[5, 7] = 60_000
    elif kind == "loss-on-padding":
        rows[5, 20:] = 4
    elif kind == "loss-on-placeholder":
        rows[5, 7] = 6
    elif kind == "doubled-special":
        rows[:, 0] = 7
        rows[5, 1] = 7
    elif kind == "attention-leak":
        rows[:, 0] = 7
        rows[5, 12] = 7
    elif kind == "repeated-sample":
        rows = rows[:8]
    return rows


WRONG = {
    "outside-vocabulary": 60_000,
    "loss-on-padding": 4,
    "loss-on-placeholder": 6,
    "doubled-special": 7,
    "attention-leak": 7,
    "repeated-sample": None,
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_source_with_wrong_tokens_is_found_with_an_address_that_shows_it(shelf: Library, kind: str) -> None:
    """Goal: each finding has an address. Method: a real source whose bytes are wrong, and the token at the address."""
    np.save(shelf.folder / f"{kind}.npy", wrong_rows(kind))
    name = shelf.registry.register(kind, shelf.folder / f"{kind}.npy").address
    recipe = shelf.write(f"{kind}.toml", f'batch = 4\nshuffle = "none"\n[[sources]]\nname = "{name}"\n')
    stream = stream_of(shelf, recipe, tokenizer=shelf.tokenizer)
    report = lint_stream(stream, range(4), Expected(bos=7, placeholders=frozenset({6})))
    # Where documents are joined, positions go on too.
    assert kinds(report) == [kind] + ["positions-not-reset"] * (kind == "attention-leak")
    address = parse(report.findings[0].address)
    wanted = WRONG[kind]
    if wanted is not None:
        opened = stream_of(shelf, report.findings[0].address)
        place = opened.address.place
        assert (place.step, place.row) == (1, 1)
        assert opened.batch().arrays["tokens"][place.row, place.token] == wanted  # type: ignore[union-attr]
    assert str(address) == report.findings[0].address


def test_truncation_and_dominance_of_a_recipe(shelf: Library) -> None:
    short = shelf.recipe("texts@1", more='[[stages]]\nkind = "truncate"\nlength = 12')
    report = lint_stream(stream_of(shelf, short), range(3))
    assert "truncated" in kinds(report)
    assert "cut short" in report.findings[0].sentence
    shelf.add_texts("tiny", [f"{n}" for n in range(400)])
    mixed = shelf.write(
        "mixed.toml",
        f"""
batch = 8
[[sources]]
name = "texts@1"
weight = 0.3
[[sources]]
name = "tiny@1"
weight = 0.7
[[stages]]
kind = "tokenize"
tokenizer = "{shelf.tokenizer.name}"
[[stages]]
kind = "pad"
length = 256
token = 4
""",
    )
    report = lint_stream(stream_of(shelf, mixed), range(4), allow=["repeated-sample"])
    (finding,) = report.findings
    assert (finding.kind, finding.values["source"]) == ("dominating-source", "texts")


def test_a_mask_on_the_prompt_is_found_by_roles(shelf: Library) -> None:
    """Goal: loss on prompts. Method: a recipe that trains on users, looked at as one that should train on assistants."""
    stream = stream_of(shelf, shelf.chat("talks@1"))
    wrong = Path(shelf.chat("talks@1"))
    wrong.write_text(
        wrong.read_text().replace('kind = "chat"', 'kind = "chat"\ntrain_on = ["user", "assistant"]')
    )
    users = stream_of(shelf, str(wrong))
    given = [dict(users.batch(step).arrays) for step in range(2)]  # type: ignore[union-attr]
    right = [np.asarray(stream.batch(step).arrays["loss_mask"]) for step in range(2)]  # type: ignore[union-attr]
    for batch, mask in zip(given, right, strict=True):
        batch["prompt_mask"] = (mask == 0) & (batch["segments"] != 0)
    report = lint_batches(given, allow=["missing-special"])
    assert kinds(report) == ["loss-on-prompt"]
    assert users.plan.recipe.digest != stream.plan.recipe.digest


def test_the_command_exits_by_what_it_found(shelf: Library, capsys: pytest.CaptureFixture[str]) -> None:
    place = str(shelf.folder / "registry")
    good = ["lint", shelf.recipe("texts@1"), "--registry", place, "--steps", "0:4"]
    assert run(*good) == 0
    assert "nothing" in capsys.readouterr().err
    np.save(shelf.folder / "outside.npy", wrong_rows("outside-vocabulary"))
    shelf.registry.register("outside", shelf.folder / "outside.npy")
    recipe = shelf.write("outside.toml", 'batch = 4\nshuffle = "none"\n[[sources]]\nname = "outside@1"\n')
    bad = ["lint", recipe, "--registry", place, "--steps", "0:4", "--tokenizer", str(shelf.tokenizer)]
    assert run(*bad) == 1
    shown = capsys.readouterr().out
    assert "outside-vocabulary" in shown
    assert "penstock view" in shown
    assert run(*bad, "--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert [each["kind"] for each in found["findings"]] == ["outside-vocabulary"]
    assert run(*bad, "--allow", "outside-vocabulary") == 0
    capsys.readouterr()
    assert run("lint", recipe, "--registry", place, "--steps", "x") == 2
