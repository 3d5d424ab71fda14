"""Skips leave everything else where it is, on every lane and in every replay; splits never share a row."""

import json
from pathlib import Path

import numpy as np
import pytest

import penstock as ps
from penstock import errors
from penstock.data import join
from tests.registry.test_measuring import write_tokenizer


@pytest.fixture
def registry(tmp_path: Path) -> ps.Registry:
    """One dataset of documents whose tokens name them."""
    rows = [{"id": n, "text": " ".join([str(n % 1000)] * (n % 13 + 1))} for n in range(1000)]
    (tmp_path / "web.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    write_tokenizer(tmp_path / "tokenizer.json")
    registry = ps.Registry(tmp_path / "registry")
    registry.register("web", tmp_path / "web.jsonl")
    return registry


def recipe(tmp_path: Path, **more: object) -> ps.Recipe:
    source = ps.Source("web@1", **more.pop("source", {}))  # type: ignore[arg-type]
    stages = (ps.Tokenize(str(tmp_path / "tokenizer.json")), ps.Pack(16))
    return ps.Recipe(sources=(source,), seed=3, batch=8, stages=stages, **more)  # type: ignore[arg-type]


def digests(feed: ps.Feed, count: int) -> dict[int, str]:
    with feed:
        return {batch.step: batch.digest for batch, _ in zip(feed, range(count), strict=False)}


def test_skipped_steps_are_left_out_and_nothing_moves(registry: ps.Registry, tmp_path: Path) -> None:
    chosen = recipe(tmp_path)
    skips = ps.Skips(steps=((3, 5), (8, 9), (4, 6)))
    assert skips.steps == ((3, 6), (8, 9))
    plain = digests(ps.open(chosen, registry=registry), 20)
    for threads in (0, 3):
        skipped = digests(ps.open(chosen, registry=registry, skips=skips, threads=threads), 12)
        assert list(skipped) == [0, 1, 2, 6, 7, 9, 10, 11, 12, 13, 14, 15]
        assert all(plain[step] == digest for step, digest in skipped.items())
    with ps.open(chosen, registry=registry, skips=ps.Skips(steps=((0, 2),))) as feed:
        assert next(feed).step == 2
    with pytest.raises(errors.FeedClosed, match="left out"):
        ps.batch_at(chosen, step=4, registry=registry, skips=skips)
    with pytest.raises(errors.RecipeInvalid):
        ps.Skips(steps=((5, 5),))


def test_a_cursor_names_past_skips_and_accepts_new_ones_ahead(registry: ps.Registry, tmp_path: Path) -> None:
    chosen = recipe(tmp_path)
    with ps.open(chosen, registry=registry, skips=ps.Skips(steps=((1, 3),))) as feed:
        assert [next(feed).step for _ in range(3)] == [0, 3, 4]
        cursor = feed.cursor
    with pytest.raises(errors.CursorForeign, match="left out"):
        ps.open(chosen, registry=registry, cursor=cursor)
    more = ps.Skips(steps=((1, 3), (6, 9)))
    with ps.open(chosen, registry=registry, cursor=cursor, skips=more) as feed:
        assert [next(feed).step for _ in range(3)] == [5, 9, 10]


def test_masked_samples_keep_their_place_and_lose_their_weight(registry: ps.Registry, tmp_path: Path) -> None:
    chosen = recipe(tmp_path)
    plain = ps.batch_at(chosen, step=2, registry=registry)
    victim = plain.origin(3)[0]
    skips = ps.Skips(samples=(("web", victim.sample),))
    for lanes in (1, 2, 4):
        parts = [
            ps.batch_at(chosen, step=2, lane=ps.Lane(k, of=lanes), registry=registry, skips=skips)
            for k in range(lanes)
        ]
        assert join([part.digest for part in parts]) == plain.digest
        mask = np.concatenate([part["loss_mask"] for part in parts])
        first, stop = victim.row_span
        assert mask[3, first:stop].sum() == 0
        expected = plain["loss_mask"].sum() - sum(
            o.row_span[1] - o.row_span[0]
            for row in range(8)
            for o in plain.origin(row)
            if o.sample == victim.sample
        )
        assert mask.sum() == expected
        np.testing.assert_array_equal(np.concatenate([part["segments"] for part in parts]), plain["segments"])


def samples(feed: ps.Feed) -> list[int]:
    with feed:
        return sorted({o.sample for batch in feed for row in range(8) for o in batch.origin(row)})


def test_splits_share_no_row_and_lose_none(registry: ps.Registry, tmp_path: Path) -> None:
    held = recipe(tmp_path, source={"split": "held", "held_share": 0.1, "epochs": 1}, exhaustion="pad")
    train = recipe(tmp_path, source={"split": "train", "held_share": 0.1, "epochs": 1}, exhaustion="pad")
    mine, theirs = samples(ps.open(held, registry=registry)), samples(ps.open(train, registry=registry))
    assert sorted(mine + theirs) == list(range(1000))
    assert 60 < len(mine) < 140
    assert held.digest != train.digest


def test_an_evaluation_feed_pads_its_last_batch(registry: ps.Registry, tmp_path: Path) -> None:
    padded = recipe(tmp_path, source={"epochs": 1}, exhaustion="pad")
    stopped = recipe(tmp_path, source={"epochs": 1})
    whole = digests(ps.open(stopped, registry=registry), 10_000)
    with ps.open(padded, registry=registry) as feed:
        batches = list(feed)
    assert [batch.digest for batch in batches[:-1]] == list(whole.values())
    last = batches[-1]
    filled = [row for row in range(8) if last.origin(row)]
    assert filled == list(range(len(filled)))
    assert 0 < len(filled) < 8
    assert last["tokens"][len(filled) :].sum() == 0
    assert last["loss_mask"][len(filled) :].sum() == 0
    for lanes in (2, 4):
        parts = [
            ps.batch_at(padded, step=last.step, lane=ps.Lane(k, of=lanes), registry=registry)
            for k in range(lanes)
        ]
        assert join([part.digest for part in parts]) == last.digest
    with pytest.raises(errors.FeedClosed, match="ends before"):
        ps.batch_at(padded, step=last.step + 1, registry=registry)


def test_a_journal_keeps_every_decision_and_nothing_half_written(
    tmp_path: Path, registry: ps.Registry
) -> None:
    journal = ps.SkipJournal(tmp_path / "run" / "skips.jsonl")
    assert journal.read() == ps.Skips()
    journal.append("loss spike", steps=[(3, 5)])
    with journal.path.open("ab") as file:
        file.write(b'{"at": 17, "rea')
    assert journal.read() == ps.Skips(steps=((3, 5),))
    both = journal.append("bad document", steps=[(8, 9)], samples=[("web", 7), ("web", 7)])
    assert both == journal.read() == ps.Skips(steps=((3, 5), (8, 9)), samples=(("web", 7),))
    assert [decision.reason for decision in journal.decisions()] == ["loss spike", "bad document"]
    with ps.open(recipe(tmp_path), registry=registry, skips=both) as feed:
        assert [next(feed).step for _ in range(7)] == [0, 1, 2, 5, 6, 7, 9]


def test_a_damaged_journal_is_an_error_and_is_left_alone(tmp_path: Path) -> None:
    journal = ps.SkipJournal(tmp_path / "skips.jsonl")
    journal.append("one", steps=[(1, 2)])
    damaged = journal.path.read_bytes().replace(b"steps", b"stops")
    journal.path.write_bytes(damaged)
    for act in (journal.read, lambda: journal.append("two", steps=[(3, 4)])):
        with pytest.raises(errors.RecipeInvalid, match="cannot be read"):
            act()
    assert journal.path.read_bytes() == damaged
    with pytest.raises(errors.RecipeInvalid, match="nothing to skip"):
        ps.SkipJournal(tmp_path / "other.jsonl").append("none")
