"""Rows of one sample, padding of any token, samples cut to a length, and tokens that do not count in the loss."""

import itertools
import json
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.errors import RecipeInvalid
from tests.data.corpus import Corpus, assert_once, read_lanes, same, some_documents, whole

TEMPLATE = "{% for m in messages %}{{ m['content'] }} {% endfor %}"


def padded(corpus: Corpus, *stages: Any, source: str = "web@1", **fields: Any) -> ps.Recipe:
    """A recipe of one epoch of one source."""
    chosen = ps.Source(source, epochs=1)
    return corpus.recipe(
        chosen, stages=[ps.Tokenize(str(corpus.tokenizer)), *stages], exhaustion="pad", **fields
    )


@pytest.mark.parametrize("shuffle", ["full", "local", "none"])
def test_pad_makes_a_row_of_every_sample(corpus: Corpus, shuffle: str) -> None:
    """Goal: one sample per row, none lost. Method: one epoch; samples without tokens make no row."""
    batches = corpus.read(padded(corpus, ps.Pad(64, token=999), shuffle=shuffle))
    rows = [(batch, row) for batch in batches for row in range(4)]
    origins = [batch.origin(row) for batch, row in rows]
    assert all(len(of_row) <= 1 for of_row in origins)
    documents = dict(enumerate(corpus.documents["web"]))
    assert sum(map(len, origins)) == sum(bool(document) for document in documents.values())
    assert_once(corpus.trace(batches), "web", 0, documents)
    for (batch, row), row_origins in zip(rows, origins, strict=True):
        used = row_origins[0].row_span[1] if row_origins else 0
        assert (batch["tokens"][row, used:] == 999).all()
        assert batch["loss_mask"][row].sum() == used


@pytest.mark.parametrize("policy", ["concat", "fit"])
def test_padding_is_the_token_that_was_asked_for(corpus: Corpus, policy: Any) -> None:
    plain, filled = (corpus.read(padded(corpus, ps.Pack(50, policy, pad))) for pad in (0, 777))
    assert sum(batch.padding for batch in plain) > 0
    for one, other in zip(plain, filled, strict=True):
        real = one["loss_mask"].astype(bool)
        assert np.array_equal(other["loss_mask"], one["loss_mask"])
        assert np.array_equal(np.where(real, one["tokens"], 777), other["tokens"])
        assert (one.digest == other.digest) == bool(real.all())


def test_sources_may_be_padded_with_tokens_of_their_own(corpus: Corpus) -> None:
    """Rows of a last step that no source fills hold 0 when the sources do not agree."""
    tokenize = ps.Tokenize(str(corpus.tokenizer))
    sources = [
        ps.Source("web@1", epochs=1, stages=[tokenize, ps.Pad(64, token=5)]),
        ps.Source(
            "tiny@1",
            stages=[
                tokenize,
                ps.Pad(100, token=7),
            ],
        ),
    ]
    with pytest.raises(RecipeInvalid, match="one length"):
        corpus.open(ps.Recipe(sources=sources, batch=4))
    sources[1] = ps.Source("tiny@1", stages=[tokenize, ps.Truncate(64), ps.Pad(64, token=7)])
    recipe = ps.Recipe(sources=sources, batch=7, seed=1, exhaustion="pad")
    for batch in corpus.read(recipe):
        for row in range(7):
            origins = batch.origin(row)
            used = origins[0].row_span[1] if origins else 0
            expected = {"web": 5, "tiny": 7}[origins[0].source] if origins else 0
            assert (batch["tokens"][row, used:] == expected).all()


def test_a_sample_that_does_not_fit_is_an_error_that_says_how_many_there_are(corpus: Corpus) -> None:
    too_long = sum(len(document) > 40 for document in corpus.documents["web"])
    longest = max(map(len, corpus.documents["web"]))
    with pytest.raises(RecipeInvalid) as raised:
        corpus.open(padded(corpus, ps.Pad(40)))
    assert f"{too_long} of the 400 samples" in str(raised.value)
    assert f"the longest {longest}" in str(raised.value)
    assert "Truncate(40)" in raised.value.hint
    assert len(corpus.read(padded(corpus, ps.Truncate(40), ps.Pad(40)))) > 0


def test_padding_that_no_token_can_be_is_refused(corpus: Corpus) -> None:
    with pytest.raises(RecipeInvalid, match="70000"):
        corpus.open(padded(corpus, ps.Pack(16, pad=70_000)))


@pytest.mark.parametrize("keep", ["start", "end"])
@pytest.mark.parametrize("shape", [ps.Pack(16), ps.Pack(16, "fit"), ps.Pad(20)], ids=["concat", "fit", "pad"])
def test_truncate_leaves_the_start_or_the_end(corpus: Corpus, keep: Any, shape: Any) -> None:
    """Goal: exactly the kept tokens come, and origins say which they are. Method: trace one epoch."""
    limit = 20
    batches = corpus.read(padded(corpus, ps.Truncate(limit, keep=keep), shape, source="code@1"))
    delivered = corpus.trace(batches)
    for row, document in enumerate(corpus.documents["code"]):
        spans = sorted(delivered.get(("code", 0, row), []))
        first = max(0, len(document) - limit) if keep == "end" else 0
        end = first
        for start, stop in spans:
            assert start == end
            end = stop
        assert end - first == min(limit, len(document))


def test_truncated_samples_live_through_a_change_of_length(corpus: Corpus) -> None:
    stages = [ps.Truncate(30, keep="end"), ps.Pack([(0, 16), (3, 7), (9, 40)])]
    delivered = corpus.trace(corpus.read(padded(corpus, *stages, source="code@1")))
    for row, document in enumerate(corpus.documents["code"]):
        spans = sorted(delivered.get(("code", 0, row), []))
        assert sum(stop - start for start, stop in spans) == min(30, len(document))
        assert all(start == end for (_, end), (start, _) in itertools.pairwise(spans))


def chats(corpus: Corpus, count: int = 80) -> list[list[int]]:
    """Conversations whose words are numbers; for each, which of its tokens the assistant said."""
    folder = corpus.folder / "chat"
    folder.mkdir()
    documents, counted, lines = [], [], []
    for number, (asked, said) in enumerate(
        zip(some_documents(count, longest=20, seed=5), some_documents(count, longest=20, seed=6), strict=True)
    ):
        turns = [("user", asked), ("assistant", said), ("user", [number]), ("assistant", [7, 8])]
        messages = [{"role": role, "content": " ".join(map(str, words))} for role, words in turns]
        lines.append(json.dumps({"id": number, "messages": messages}) + "\n")
        documents.append([word for _, words in turns for word in words])
        counted.append([int(role == "assistant") for role, words in turns for _ in words])
    (folder / "chat.jsonl").write_text("".join(lines))
    corpus.documents["chat"] = documents
    corpus.registry.register("chat", folder)
    return counted


def chat_recipe(corpus: Corpus, **fields: Any) -> ps.Recipe:
    """Conversations beside plain text."""
    chat = ps.Chat(str(corpus.tokenizer), template=TEMPLATE)
    sources = [
        ps.Source("chat@1", stages=[chat]),
        ps.Source("web@1", stages=[ps.Tokenize(str(corpus.tokenizer))]),
    ]
    return corpus.recipe(*sources, **({"stages": [ps.Pack([(0, 16), (9, 24)])]} | fields))


def test_a_loss_mask_goes_with_its_tokens(own: Corpus) -> None:
    """Goal: what the user said is masked, wherever it lands; plain text counts whole. Method: rebuild masks from origins."""
    own.add("web", some_documents(60, longest=30, seed=1))
    counted = chats(own)
    recipe = chat_recipe(own)
    batches = own.read(recipe, 40)
    own.trace(batches)
    seen = set()
    for batch in batches:
        mask = np.zeros(batch["tokens"].shape, dtype=np.uint8)
        for row in range(len(mask)):
            for origin in batch.origin(row):
                (start, stop), (at, end) = origin.token_span, origin.row_span
                mask[row, at:end] = counted[origin.sample][start:stop] if origin.source == "chat" else 1
                seen.add(origin.source)
        assert np.array_equal(batch["loss_mask"], mask)
    assert seen == {"chat", "web"}
    first, cursor = read_lanes(own, recipe, None, 2, 2, 13)
    second, _ = read_lanes(own, recipe, cursor, 4, 0, 7)
    assert list(map(whole, first + second)) == [whole([batch]) for batch in batches[:20]]


def test_skips_mask_what_the_mask_left(own: Corpus) -> None:
    own.add("web", some_documents(60, longest=30, seed=1))
    counted = chats(own)
    chosen = next(row for row, said in enumerate(counted) if sum(said) > 4)
    skips = ps.Skips(samples=[("chat", chosen)])
    plain, masked = own.read(chat_recipe(own), 40), own.read(chat_recipe(own), 40, skips=skips)
    changed = 0
    for one, other in zip(plain, masked, strict=True):
        assert same(one, other)
        gone = one["loss_mask"].astype(int) - other["loss_mask"]
        assert gone.min() >= 0
        changed += int(gone.sum())
    assert changed >= sum(counted[chosen])


def test_the_mask_enters_the_digest_of_rows_that_have_one(own: Corpus) -> None:
    """Goal: a replay notices another mask. Method: the same tokens with and without one."""
    own.add("web", some_documents(60, longest=30, seed=1))
    chats(own)
    trained, everything = (
        own.recipe(
            ps.Source("chat@1", stages=[ps.Chat(str(own.tokenizer), template=TEMPLATE, train_on=roles)]),
            stages=[ps.Pack(16)],
        )
        for roles in (("assistant",), ("assistant", "user"))
    )
    one, other = (own.read(recipe, 3) for recipe in (trained, everything))
    for left, right in zip(one, other, strict=True):
        assert np.array_equal(left["tokens"], right["tokens"])
        assert not np.array_equal(left["loss_mask"], right["loss_mask"])
        assert left.digest != right.digest
