"""What stages measure of a source: after maps, with what counts in the loss, and what a recipe does with bad samples."""

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock import errors
from penstock.data.maps.measure import mapped
from penstock.data.plan.samples import Samples, measure_samples, token_measure
from penstock.errors import FieldUnknown
from penstock.registry.tokenize.tiktoken import RankTokens
from tests.data import maps
from tests.data.corpus import Corpus, some_documents
from tests.registry.chats import CHATML, WORDS, write_bytes_tokenizer
from tests.registry.test_ranks import write_ranks


@pytest.fixture
def small(tmp_path: Path) -> Corpus:
    corpus = Corpus(tmp_path)
    corpus.add("web", some_documents(200, longest=30, seed=3), shards=3)
    return corpus


def samples_of(corpus: Corpus, stages: list[Any], name: str = "web", **fields: Any) -> Samples:
    recipe = ps.Recipe(sources=[ps.Source(name)], batch=4, stages=stages, **fields)
    version = corpus.registry.resolve(name)
    return measure_samples(recipe, recipe.sources[0], version, corpus.registry, None)


def tokens_of(samples: Samples) -> list[list[int]]:
    return [np.asarray(row["tokens"]).tolist() for row in samples.tokens]


def test_maps_change_what_comes_after_them_and_nothing_before(small: Corpus) -> None:
    tokenize = ps.Tokenize(str(small.tokenizer))
    documents = small.documents["web"]
    louder = [[number + 500 if number < 500 else 1000 for number in document] for document in documents]
    assert tokens_of(samples_of(small, [ps.Map(maps.louder), tokenize, ps.Pack(8)])) == louder
    assert tokens_of(samples_of(small, [tokenize, ps.Pack(8)])) == documents
    after = samples_of(small, [ps.Map(maps.marked), ps.Filter("even == True"), tokenize, ps.Pack(8)])
    with pytest.raises(FieldUnknown, match="even"):
        samples_of(small, [ps.Filter("even == None"), ps.Map(maps.marked), tokenize, ps.Pack(8)])
    before = samples_of(small, [ps.Filter("id % 2 == 0"), ps.Map(maps.marked), tokenize, ps.Pack(8)])
    assert np.flatnonzero(after.mask).tolist() == list(range(0, 200, 2))
    assert np.array_equal(before.mask, after.mask)
    assert after.verdicts != before.verdicts


def test_a_map_counts_by_its_source_and_its_declared_version(small: Corpus) -> None:
    def keys(version: str) -> tuple[list[str], str]:
        samples = samples_of(
            small,
            [
                ps.Map(maps.marked, version),
                ps.Filter("even == True"),
                ps.Tokenize(str(small.tokenizer)),
                ps.Pack(8),
            ],
        )
        return samples.verdicts, samples.tokens.name

    assert keys("1") == keys("1")
    one, two = keys("1"), keys("2")
    assert one[0] != two[0]
    assert one[1] != two[1]


def test_a_map_that_would_change_nothing_is_refused(small: Corpus) -> None:
    samples = samples_of(small, [ps.Tokenize(str(small.tokenizer)), ps.Pack(8)])
    for stages in ([ps.Map(maps.louder), ps.Pack(8)], [ps.Filter("1"), ps.Map(maps.louder), ps.Pack(8)]):
        with pytest.raises(errors.RecipeInvalid, match="holds tokens, which a map"):
            samples_of(small, stages, samples.tokens.name)


def test_a_map_that_fails_names_the_sample(small: Corpus) -> None:
    stages = [ps.Map(maps.fragile), ps.Tokenize(str(small.tokenizer)), ps.Pack(8)]
    with pytest.raises(
        errors.SampleUndecodable, match=r"web@1 row 3 \(000.jsonl\): map tests.data.maps:fragile"
    ):
        samples_of(small, stages)
    with pytest.raises(errors.SampleUndecodable, match="gives NoneType, not a row"):
        samples_of(small, [ps.Map(maps.forgetful), *stages[1:]])
    masked = samples_of(small, stages, undecodable="mask")
    bad = list(range(3, 200, 10))
    assert [entry.row for entry in masked.undecodable] == bad
    assert "ValueError: nothing can be made of 3" in masked.undecodable[0].reason
    expected = [[] if row in bad else document for row, document in enumerate(small.documents["web"])]
    assert tokens_of(masked) == expected
    assert masked.lengths().tolist() == [len(document) for document in expected]
    with pytest.raises(errors.TooManyUndecodable, match="web@1 has more than 19 samples"):
        samples_of(small, stages, undecodable="mask", undecodable_max=19)
    # What was measured for somebody who bears it is still an error for who does not.
    with pytest.raises(errors.SampleUndecodable, match="row 3"):
        samples_of(small, stages)


def test_a_filter_may_leave_bad_samples_out(small: Corpus) -> None:
    """Goal: the hint of the error helps. Method: filters before the map that fails, which leave out what it fails on."""
    tail = [ps.Map(maps.fragile), ps.Tokenize(str(small.tokenizer)), ps.Pack(8)]
    samples = samples_of(small, [ps.Filter("id % 10 != 3"), *tail])
    assert samples.undecodable == ()
    assert samples.mask.sum() == 180
    with pytest.raises(errors.SampleUndecodable, match="row 13"):
        samples_of(small, [ps.Filter("id % 10 != 3 or id == 13"), *tail])


def test_a_filter_that_cannot_judge_a_sample_leaves_it_out_when_masked(small: Corpus) -> None:
    stages = [ps.Filter("100 / (id - 7) != 0"), ps.Tokenize(str(small.tokenizer)), ps.Pack(8)]
    with pytest.raises(errors.SampleUndecodable, match=r"row 7 .*division by zero"):
        samples_of(small, stages)
    samples = samples_of(small, stages, undecodable="mask")
    assert np.flatnonzero(~samples.mask).tolist() == [7]
    assert [entry.row for entry in samples.undecodable] == [7]


def test_batches_come_without_the_masked_samples(small: Corpus) -> None:
    stages = [ps.Map(maps.fragile), ps.Tokenize(str(small.tokenizer)), ps.Pack(16)]
    recipe = ps.Recipe(
        sources=[ps.Source("web", epochs=1)], batch=2, stages=stages, undecodable="mask", exhaustion="pad"
    )
    trace = small.trace(small.read(recipe))
    bad = set(range(3, 200, 10))
    rows = {sample for _, _, sample in trace}
    assert rows == {row for row, document in enumerate(small.documents["web"]) if document and row not in bad}


def test_pieces_are_measured_as_the_whole_is(small: Corpus) -> None:
    stages = [
        ps.Map(maps.fragile),
        ps.Filter("id % 3 != 0"),
        ps.Tokenize(str(small.tokenizer)),
        ps.Pack(8),
    ]
    recipe = ps.Recipe(
        sources=[ps.Source("web", split="train", held_share=0.3)], batch=4, stages=stages, undecodable="mask"
    )
    version = small.registry.resolve("web")
    whole = measure_samples(recipe, recipe.sources[0], version, small.registry, None)
    pieces = [(10, 40), (90, 150)]
    some = measure_samples(recipe, recipe.sources[0], version, small.registry, None, pieces=pieces)
    rows = [*range(10, 40), *range(90, 150)]
    assert some.mask.tolist() == whole.mask[rows].tolist()
    assert some.lengths().tolist() == whole.lengths()[rows].tolist()
    every = tokens_of(whole)
    assert tokens_of(some) == [every[row] for row in rows]
    assert [entry.row for entry in some.undecodable] == [
        entry.row for entry in whole.undecodable if entry.row in rows
    ]
    assert some.undecodable


def write_chats(folder: Path) -> list[list[dict[str, str]]]:
    rows = [
        [{"role": "user", "content": f"say {n}"}, {"role": "assistant", "content": f"{n} " * (n % 4)}]
        for n in range(50)
    ]
    folder.mkdir()
    (folder / "a.jsonl").write_text("".join(json.dumps({"messages": messages}) + "\n" for messages in rows))
    return rows


def test_chats_have_tokens_and_what_of_them_counts(small: Corpus, tmp_path: Path) -> None:
    write_chats(tmp_path / "chats")
    small.registry.register("chats", tmp_path / "chats")
    tokenizer = write_bytes_tokenizer(tmp_path / "bytes.json")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(WORDS | {"chat_template": CHATML}))
    samples = samples_of(small, [ps.Chat(str(tokenizer)), ps.Pack(64)], "chats")
    assert samples.loss is not None
    loss = [np.asarray(row["loss"]) for row in samples.loss]
    assert [len(mask) for mask in loss] == samples.lengths().tolist()
    assert all(0 < mask.sum() < len(mask) for mask in loss)
    other = samples_of(small, [ps.Chat(str(tokenizer), CHATML, train_on=("user",)), ps.Pack(64)], "chats")
    assert other.loss is not None
    assert other.loss.digest != samples.loss.digest
    assert other.tokens.digest == samples.tokens.digest
    assert samples_of(small, [ps.Tokenize(str(small.tokenizer)), ps.Pack(8)]).loss is None


def test_ranks_are_a_tokenizer_like_any_other(small: Corpus, tmp_path: Path) -> None:
    ranks = write_ranks(tmp_path / "small.tiktoken")
    samples = samples_of(small, [ps.Tokenize(str(ranks), pattern="gpt2"), ps.Pack(8)])
    texts = [" ".join(map(str, document)) for document in small.documents["web"]]
    encoding = RankTokens(ranks, pattern="gpt2").encoding
    assert [encoding.decode(tokens) for tokens in tokens_of(samples)] == texts


def test_a_plan_lists_what_it_masks(small: Corpus) -> None:
    stages = [ps.Map(maps.fragile), ps.Tokenize(str(small.tokenizer)), ps.Pack(16)]
    recipe = ps.Recipe(sources=[ps.Source("web")], batch=2, stages=stages, undecodable="mask")
    with small.open(recipe) as feed:
        (prepared,) = feed.plan.prepared
    assert [entry.row for entry in prepared.undecodable] == list(range(3, 200, 10))
    assert "nothing can be made of 3" in prepared.undecodable[0].reason


def test_batches_say_which_tokens_of_chats_count(small: Corpus, tmp_path: Path) -> None:
    """Method: by the origin of each stretch of a row, its tokens and what counts are those that were measured."""
    write_chats(tmp_path / "chats")
    small.registry.register("chats", tmp_path / "chats")
    tokenizer = write_bytes_tokenizer(tmp_path / "bytes.json")
    recipe = ps.Recipe(
        sources=[ps.Source("chats", epochs=1)],
        batch=2,
        stages=[ps.Chat(str(tokenizer), CHATML), ps.Pack(64, "fit")],
        exhaustion="pad",
    )
    version = small.registry.resolve("chats")
    samples = measure_samples(recipe, recipe.sources[0], version, small.registry, None)
    assert samples.loss is not None
    seen = 0
    for batch in small.read(recipe):
        for row in range(2):
            expected = np.zeros(64, dtype=np.uint8)
            for origin in batch.origin(row):
                (start, stop), (at, end) = origin.token_span, origin.row_span
                expected[at:end] = samples.loss[origin.sample]["loss"][start:stop]
                seen += stop - start
            assert batch["loss_mask"][row].tolist() == expected.tolist()
    assert seen == samples.lengths().sum()


def test_a_measure_after_maps_travels_to_other_processes(small: Corpus) -> None:
    measure = mapped(token_measure(ps.Tokenize(str(small.tokenizer))), [ps.Map(maps.louder)])
    travelled = pickle.loads(pickle.dumps(measure))
    assert travelled.identity() == measure.identity()
    assert travelled.read({"text": "1 2"}) == "501 502"
