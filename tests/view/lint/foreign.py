"""Mistakes of other loaders and collators, each planted in good batches."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from penstock.view.lint import Expected, LintReport, lint_batches
from penstock.view.model.tokens.vocabulary import read_vocabulary
from tests.view.lint.bench import BOS, EOS, IMAGE, PAD, Bench, Case, chats, paragraphs, prose
from tests.view.lint.healthy import EXPECTED, clean, rendered

FOREIGN: list[Case] = []
Batch = dict[str, Any]


def foreign(
    kind: str, words: str, *follow: str, expected: Expected = EXPECTED
) -> Callable[[Callable[[Batch], Any]], Callable[[Batch], Any]]:
    """A line of the table: a function that spoils one of four good batches."""

    def add(spoil: Callable[[Batch], Any]) -> Callable[[Batch], Any]:
        def make(bench: Bench) -> LintReport:
            batches = [clean(seed=seed) for seed in range(4)]
            spoiled = [spoil(batch) or batch for batch in batches]
            return lint_batches(spoiled, expected)

        FOREIGN.append(Case(spoil.__name__, words, make, kind, follow))
        return spoil

    return add


@foreign("loss-on-padding", "labels are a copy of the tokens, padding with them")
def labels_copied(batch: Batch) -> None:
    batch["labels"] = batch["input_ids"].copy()


@foreign("loss-on-placeholder", "the places of an image count")
def image_counts(batch: Batch) -> None:
    batch["input_ids"][2, 3] = batch["labels"][2, 3] = IMAGE


@foreign("loss-on-prompt", "a mask that names the prompt, and labels that ignore it")
def prompt_counts(batch: Batch) -> None:
    batch["prompt_mask"] = np.zeros((4, 24))
    batch["prompt_mask"][2, 3:5] = 1


@foreign("row-without-loss", "everything is masked")
def all_masked(batch: Batch) -> None:
    batch["labels"][:] = -100


@foreign("end-not-learned", "padding is the token that ends texts, and the collator masks both")
def end_masked(batch: Batch) -> None:
    batch["labels"][batch["input_ids"] == EOS] = -100


@foreign("labels-shifted", "labels are moved by the collator and again by the model")
def moved_twice(batch: Batch) -> None:
    labels = np.full((4, 24), -100)
    labels[:, :-2] = batch["labels"][:, 2:]
    batch["labels"] = labels


@foreign("labels-differ", "labels of another batch")
def other_labels(batch: Batch) -> None:
    batch["labels"] = clean(seed=77)["labels"]


@foreign("attention-leak", "two documents of a row in one segment", "positions-not-reset")
def one_segment(batch: Batch) -> None:
    batch["segment_ids"][2, 10:20] = 1
    batch["position_ids"][2, 10:20] = np.arange(10, 20)


@foreign("positions-not-reset", "positions go on where a document begins")
def positions_go_on(batch: Batch) -> None:
    batch["position_ids"][2, 10:20] += 10


@foreign("positions-jump", "positions jump inside of a document")
def positions_jump(batch: Batch) -> None:
    batch["position_ids"][2, 15:20] += 7


@foreign("positions-constant", "positions were never filled in")
def positions_zero(batch: Batch) -> None:
    batch["position_ids"][:] = 0


@foreign("boundaries-disagree", "cu_seqlens that are off by one")
def edges_off(batch: Batch) -> Batch:
    flat = {name: batch[name][:, :20].reshape(1, -1) for name in ("input_ids", "labels", "position_ids")}
    segments = np.repeat(np.arange(8), 10).reshape(1, -1)
    return flat | {"segment_ids": segments, "cu_seqlens": np.array([0, *range(11, 80, 10), 80])}


@foreign("doubled-special", "the token that begins texts was added twice")
def begun_twice(batch: Batch) -> None:
    batch["input_ids"][:, 1] = batch["labels"][:, 1] = BOS


@foreign("missing-special", "documents lost the token that begins them", "mixed-specials")
def not_begun(batch: Batch) -> None:
    batch["input_ids"][2:, 10] = batch["labels"][2:, 10] = 50


@foreign("outside-vocabulary", "a token that the model has no embedding for")
def too_large(batch: Batch) -> None:
    batch["input_ids"][2, 5] = batch["labels"][2, 5] = 100


@foreign("truncated", "rows that are full and do not end")
def cut_rows(batch: Batch) -> Batch:
    return {name: values[:2, :17] for name, values in batch.items()}


@foreign("empty-documents", "rows of padding alone")
def empty_rows(batch: Batch) -> None:
    batch["input_ids"][3], batch["attention_mask"][3], batch["labels"][3] = PAD, 0, -100


@foreign(
    "dominating-source",
    "most of what counts is one source's",
    expected=Expected(weights={"a": 0.5, "b": 0.5}),
)
def dominated(batch: Batch) -> None:
    batch["sources"] = ["a", "a", "b", "b"]
    batch["labels"][:2, 1:] = -100


def case(
    kind: str, words: str, *follow: str
) -> Callable[[Callable[[Bench], LintReport]], Callable[[Bench], LintReport]]:
    """A line of the table that makes batches of its own."""

    def add(make: Callable[[Bench], LintReport]) -> Callable[[Bench], LintReport]:
        FOREIGN.append(Case(make.__name__, words, make, kind, follow))
        return make

    return add


@case("repeated-sample", "two workers that read the same data")
def two_workers(bench: Bench) -> LintReport:
    return lint_batches([clean(seed=seed // 2) for seed in range(16)], EXPECTED)


@case("repeated-sample", "one batch again and again")
def one_batch(bench: Bench) -> LintReport:
    return lint_batches([clean() for _ in range(8)], EXPECTED)


@case("loss-on-padding", "padded with the token that ends texts, and nobody said so")
def padded_with_ends(bench: Bench) -> LintReport:
    draws = np.random.default_rng(5)
    tokens = draws.integers(10, 100, (8, 64))
    for row in range(8):
        tokens[row, 20 + 4 * row :] = EOS
    return lint_batches([{"input_ids": tokens, "labels": tokens}])


@case("loss-on-prompt", "only the first turn of users is masked")
def later_prompts(bench: Bench) -> LintReport:
    batches = []
    for chat in chats(8, turns=3):
        ids, labels = rendered(bench, chat)
        first = next(at for at, label in enumerate(labels) if label != -100)
        batches.append({"input_ids": np.array([ids]), "labels": np.array([[-100] * first + ids[first:]])})
    return lint_batches(batches, Expected().knowing(read_vocabulary(bench.tokenizer)))


@case("byte-fallback", "text that falls apart into bytes")
def bytes_only(bench: Bench) -> LintReport:
    path = _with_bytes(bench)
    texts = [text.replace(" ", "") for text in prose("日本語文字漢字平仮名片仮名山川空海人口目耳", 32)]
    ids = [[3 + byte for byte in text.encode()][:198] for text in texts]
    batches = [{"input_ids": np.array(ids[at : at + 4])} for at in range(0, 32, 4)]
    return lint_batches(batches, Expected().knowing(read_vocabulary(path)))


def _with_bytes(bench: Bench) -> Path:
    """A vocabulary as Llama's: words, and a token for every byte."""
    from tokenizers import Tokenizer, decoders, models, normalizers

    words = dict.fromkeys("▁" + word for text in paragraphs() for word in text.split())
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *words]
    tokenizer = Tokenizer(
        models.BPE(
            {piece: number for number, piece in enumerate(pieces)}, [], unk_token="<unk>", byte_fallback=True
        )
    )
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.save(str(bench.folder / "bytes.json"))
    return bench.folder / "bytes.json"
