"""Crops: rows from any token of a long text, as nanoGPT trains; a pure function of the position like every other row."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.errors import RecipeInvalid
from tests.data.corpus import Corpus, read_lanes, whole

LENGTH = 16


def cropped(corpus: Corpus, *sources: Any, length: Any = LENGTH, **fields: Any) -> ps.Recipe:
    return corpus.recipe(*(sources or ("web@1",)), length=length, policy="crop", **({"batch": 12} | fields))


def text_of(documents: list[list[int]]) -> np.ndarray[Any, Any]:
    """All tokens end to end."""
    return np.concatenate([np.asarray(d, dtype=np.int64) for d in documents])


def begins(text: np.ndarray[Any, Any], rows: Any) -> list[int]:
    """Where each row stands in the text."""
    windows = np.lib.stride_tricks.sliding_window_view(text, rows.shape[1])
    places = {window.tobytes(): place for place, window in enumerate(windows)}
    return [places[row.tobytes()] for row in rows]


def test_every_row_is_a_stretch_of_the_text_and_beginnings_are_uniform(corpus: Corpus) -> None:
    text = text_of(corpus.documents["web"])
    recipe = cropped(corpus, ps.Source("web@1", epochs=8))
    batches = corpus.read(recipe)
    rows = np.concatenate([batch["tokens"] for batch in batches]).astype(np.int64)
    beginnings = np.array(begins(text, rows))
    per_epoch = len(text) // LENGTH
    assert len(rows) == 8 * per_epoch // 12 * 12
    # An eighth of the text each, as chance has it.
    counts = np.bincount(beginnings * 8 // len(text), minlength=8)
    assert (abs(counts - len(rows) / 8) < 5 * np.sqrt(len(rows) / 8)).all(), counts
    assert len(set(beginnings.tolist())) > len(rows) * 0.6
    assert all(batch["loss_mask"].all() for batch in batches)


def test_boundaries_of_documents_and_origins_are_true(corpus: Corpus) -> None:
    for batch in corpus.read(cropped(corpus), 5):
        delivered = corpus.trace([batch])
        assert sum(stop - start for spans in delivered.values() for start, stop in spans) == 12 * LENGTH
        assert batch["cu_seqlens"][-1] == 12 * LENGTH


def test_lanes_threads_and_cursors_change_nothing(corpus: Corpus) -> None:
    recipe = cropped(corpus, "web@1", "code@1", batch=[(0, 12), (20, 24)])
    batches = corpus.read(recipe, 40)
    cursor, at = None, 0
    for lanes, threads, steps in ((1, 2, 7), (4, 0, 12), (3, 1, 11), (2, 0, 10)):
        read_steps, cursor = read_lanes(corpus, recipe, cursor, lanes, threads, steps)
        for of_step in read_steps:
            assert whole(of_step) == whole([batches[at]])
            at += 1
    for step in (0, 19, 39):
        assert whole([ps.batch_at(recipe, step=step, registry=corpus.registry)]) == whole([batches[step]])


def test_filters_truncation_and_splits_come_first(corpus: Corpus) -> None:
    stages = [
        ps.Filter("id % 2 == 0"),
        ps.Tokenize(str(corpus.tokenizer)),
        ps.Truncate(10, keep="end"),
        ps.Pack(9, "crop"),
    ]
    recipe = corpus.recipe("web@1", stages=stages, batch=12)
    text = text_of([d[-10:] for d in corpus.documents["web"][::2]])
    for batch in corpus.read(recipe, 6):
        begins(text, batch["tokens"].astype(np.int64))


def test_unshuffled_crops_read_every_token_once(corpus: Corpus) -> None:
    text = text_of(corpus.documents["code"])
    recipe = cropped(corpus, ps.Source("code@1", epochs=1), shuffle="none", batch=1)
    rows = np.concatenate([batch["tokens"] for batch in corpus.read(recipe)])
    assert rows.reshape(-1).tolist() == text[: len(text) // LENGTH * LENGTH].tolist()


def test_a_change_of_length_begins_the_next_epoch(corpus: Corpus) -> None:
    text = text_of(corpus.documents["web"])
    recipe = cropped(corpus, length=[(0, 16), (5, 24), (9, 8)])
    plain = corpus.read(cropped(corpus), 5)
    batches = corpus.read(recipe, 14)
    assert [batch["tokens"].shape[1] for batch in batches] == [16] * 5 + [24] * 4 + [8] * 5
    assert [whole([batch]) for batch in batches[:5]] == [whole([batch]) for batch in plain]
    for batch in batches:
        begins(text, batch["tokens"].astype(np.int64))
    assert {batch.origin(row)[0].epoch for batch in batches[5:9] for row in range(12)} == {1}
    read_steps, _ = read_lanes(corpus, recipe, None, 2, 1, 14)
    assert [whole(of_step) for of_step in read_steps] == [whole([batch]) for batch in batches]


def test_stored_tokens_of_every_kind_are_cropped(own: Corpus, tmp_path: Path) -> None:
    """Goal: crops of what people have: a long array as one row or many, and Megatron's files by Megatron's own writer."""
    tokens = np.arange(5_000, dtype=np.uint16)
    np.save(tmp_path / "long.npy", tokens.reshape(10, 500))
    np.save(tmp_path / "flat.npy", tokens.reshape(1, -1))
    own.registry.register("rows", [tmp_path / "long.npy"])
    own.registry.register("flat", [tmp_path / "flat.npy"])
    starts = {}
    for name in ("rows", "flat"):
        recipe = ps.Recipe(sources=[ps.Source(name)], batch=8, seed=3, stages=[ps.Pack(33, "crop")])
        with ps.open(recipe, registry=own.registry, threads=0) as feed:
            rows = np.concatenate([next(feed)["tokens"] for _ in range(30)]).astype(np.int64)
        assert (rows == rows[:, :1] + np.arange(33)).all()
        starts[name] = rows[:, 0]
    assert max(starts["flat"]) > 4_000
    assert min(starts["flat"]) < 1_000


@pytest.mark.parametrize("form", ["nanogpt", "llm.c"])
def test_flat_files_are_cropped_as_their_authors_do(own: Corpus, tmp_path: Path, form: str) -> None:
    """Goal: train.bin of nanoGPT and of llm.c, rows of a context and its targets. Method: their layouts, byte for byte."""
    tokens = np.arange(20_000, dtype=np.uint16)
    header = np.zeros(256, dtype=np.int32)
    header[:3] = 20240520, 1, len(tokens)
    data = tokens.tobytes() if form == "nanogpt" else header.tobytes() + tokens.tobytes()
    (tmp_path / "train.bin").write_bytes(data)
    policy = ps.Policy(dtype="uint16") if form == "nanogpt" else ps.Policy()
    own.registry.register("train", [tmp_path / "train.bin"], policy=policy)
    recipe = ps.Recipe(sources=[ps.Source("train")], batch=16, seed=1337, stages=[ps.Pack(65, "crop")])
    with ps.open(recipe, registry=own.registry, threads=0) as feed:
        batches = [next(feed) for _ in range(30)]
    rows = np.concatenate([batch["tokens"] for batch in batches]).astype(np.int64)
    assert (rows == rows[:, :1] + np.arange(65)).all()
    assert rows[:, 0].max() > 17_000
    assert rows[:, 0].min() < 3_000
    # One long text has no documents in it: a row is one stretch.
    assert all(np.array_equal(batch["cu_seqlens"], np.arange(17) * 65) for batch in batches)


def test_many_blocks_have_every_beginning(own: Corpus) -> None:
    """Goal: crops across blocks of the table. Method: more documents than a block has, each of a few tokens."""
    own.add("many", [[n % 1000, n // 1000] for n in range(5_000)])
    text = text_of(own.documents["many"])
    recipe = own.recipe("many@1", length=101, policy="crop", batch=50)
    rows = np.concatenate([batch["tokens"] for batch in own.read(recipe, 10)]).astype(np.int64)
    assert max(begins(text, rows)) > 9_000


def test_digests_of_crops_stay(own: Corpus, tmp_path: Path) -> None:
    """Goal: D1 between releases. Method: the digests of some batches, written down when crops were new."""
    np.save(tmp_path / "rows.npy", np.arange(3_000, dtype=np.uint16).reshape(6, 500))
    own.registry.register("rows", [tmp_path / "rows.npy"])
    recipe = ps.Recipe(sources=[ps.Source("rows@1")], batch=8, seed=5, stages=[ps.Pack(16, "crop")])
    digests = [ps.batch_at(recipe, step=step, registry=own.registry).digest for step in (0, 1_000_000)]
    assert digests == ["0002d814ce323b7916c72cf866031fe3", "3f7398ddef1705d5bf6d82d87b5c1d94"]
    assert recipe.digest == "b3:478a9198d8db46d9e3e0889a9949eb0ed91bb1c269ddf22cc7de14cad76ca506"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"length": 1 << 20}, "too few for a crop"),
        ({"measure": "eras"}, "drawn from all its tokens"),
    ],
)
def test_crops_that_make_no_sense_are_refused(corpus: Corpus, fields: dict[str, Any], words: str) -> None:
    with pytest.raises(RecipeInvalid, match=words):
        corpus.read(cropped(corpus, **fields), 1)
