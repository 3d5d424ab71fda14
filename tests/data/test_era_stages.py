"""Stages with eras: chats, maps, bad samples; and feeds that nobody closes."""

import gc
import threading
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.data import Feed
from penstock.data.eras.cut import EraSizes
from penstock.data.eras.lookahead import AHEAD_ERAS
from penstock.data.feed.options import ReadOptions
from penstock.data.plan.plan import prepare
from penstock.errors import SampleUndecodable, TooManyUndecodable
from tests.data import maps
from tests.data.corpus import Corpus, some_documents
from tests.data.test_measured import write_chats
from tests.registry.chats import CHATML, write_bytes_tokenizer

SIZES = EraSizes(slice_bytes=700, first_bytes=1000, most_bytes=2000)


def by_sample(recipe: ps.Recipe, registry: ps.Registry) -> dict[int, tuple[list[int], list[int]]]:
    """Tokens and what counts of them, of every sample; each must be a row of its own."""
    samples = {}
    with Feed(prepare(recipe, registry, sizes=SIZES), ps.Lane(), options=ReadOptions(threads=1)) as feed:
        for batch in feed:
            for row in range(len(batch["tokens"])):
                for origin in batch.origin(row):
                    assert origin.sample not in samples
                    samples[origin.sample] = (batch["tokens"][row].tolist(), batch["loss_mask"][row].tolist())
    return samples


def test_what_counts_in_the_loss_is_the_same_as_without_eras(own: Corpus, tmp_path: Path) -> None:
    """Goal: a second payload comes with its era. Method: every chat as a row of its own, with eras and without."""
    count = len(write_chats(tmp_path / "chats"))
    own.registry.register("chats", tmp_path / "chats")
    stages = [ps.Chat(str(write_bytes_tokenizer(tmp_path / "bytes.json")), CHATML), ps.Pad(256)]
    fields: dict[str, Any] = {"batch": 4, "stages": stages, "exhaustion": "pad"}
    source = ps.Source("chats", epochs=1)
    eras = by_sample(ps.Recipe(sources=[source], measure="eras", **fields), own.registry)
    assert eras == by_sample(ps.Recipe(sources=[source], **fields), own.registry)
    assert len(eras) == count
    assert all(0 < sum(mask) < len(mask) for _, mask in eras.values())


def test_bad_samples_are_counted_over_all_eras(own: Corpus) -> None:
    """Goal: the recipe's limit is that of the source. Method: every tenth sample is bad; no era alone passes the limit."""
    own.add("web", some_documents(100, longest=20, seed=4, empty=False))
    stages = [ps.Map(maps.fragile), *own.stages(16)]
    source = ps.Source("web", epochs=1)

    def read(**fields: Any) -> int:
        recipe = own.recipe(source, stages=stages, measure="eras", exhaustion="pad", **fields)
        plan = prepare(recipe, own.registry, sizes=SIZES)
        assert len(plan.prepared[0].growing.eras) > 3
        with Feed(plan, ps.Lane(), options=ReadOptions(threads=0)) as feed:
            return len({origin.sample for batch in feed for row in range(4) for origin in batch.origin(row)})

    assert read(undecodable="mask", undecodable_max=10) == 90
    with pytest.raises(TooManyUndecodable, match="web has more than 9 samples"):
        read(undecodable="mask", undecodable_max=9)
    with pytest.raises(SampleUndecodable, match=r"map tests\.data\.maps:fragile"):
        read()


def test_what_is_measured_is_found_and_a_forgotten_feed_ends_its_threads(own: Corpus) -> None:
    own.add("web", some_documents(100, longest=20, seed=5))
    messages: list[str] = []
    plan = prepare(
        own.recipe("web", measure="eras"), own.registry, lambda what, *_: messages.append(what), sizes=SIZES
    )
    with Feed(plan, ps.Lane()) as feed:
        first = [next(feed).digest for _ in range(60)]
    assert messages
    messages.clear()
    with Feed(plan, ps.Lane(), options=ReadOptions(threads=2)) as feed:
        assert [next(feed).digest for _ in range(60)] == first
    assert messages == []
    # Of more eras than it looks ahead, so that its thread has a reason to stay.
    assert len(plan.prepared[0].growing.eras) > 1 + AHEAD_ERAS
    forgotten = Feed(plan, ps.Lane(), options=ReadOptions(threads=0))
    (thread,) = [
        candidate for candidate in threading.enumerate() if candidate.name == "penstock-era-prefetch"
    ]
    del forgotten
    gc.collect()
    thread.join(60)
    assert not thread.is_alive()
