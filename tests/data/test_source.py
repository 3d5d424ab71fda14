"""Where batches come from: every source answers the same questions and names its own stages; options travel whole."""

from pathlib import Path

import pytest

import penstock as ps
from penstock.data import Cursor, RecordBatch, TokenBatch
from penstock.data.feed.batch import Batch
from penstock.data.feed.options import ReadOptions
from penstock.data.feed.prefetch import Prefetch
from tests.data.corpus import Corpus
from tests.data.gallery import Gallery
from tests.service.servers import address_of, serving


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Gallery:
    return Gallery.make(tmp_path_factory.mktemp("gallery"))


def test_every_source_answers_the_same_questions_and_names_its_own_stages(
    corpus: Corpus, gallery: Gallery
) -> None:
    tokens = corpus.recipe("web@1", batch=4)
    with (
        serving(corpus.registry, tokens) as server,
        corpus.open(tokens, threads=1) as rust,
        gallery.open(gallery.mixed(), threads=1) as python,
        ps.open(address_of(server)) as service,
    ):
        stages = {}
        for name, feed in {"rust": rust, "python": python, "service": service}.items():
            next(feed)
            statistics = feed.statistics(recurrence=True)
            assert statistics.batches == 1
            assert statistics.sharing is None
            assert statistics.pack_recurrence is not None
            assert (
                statistics.epochs_by_source.keys()
                == statistics.pack_recurrence.keys()
                == statistics.rows_by_source.keys()
            )
            assert feed.ready >= 0
            stages[name] = set(statistics.stages)
    assert stages == {
        "rust": {"wait", "plan", "read", "digest"},
        "python": {"wait", "plan", "finish"},
        "service": {"wait"},
    }


def test_batches_of_tokens_and_of_records_are_two_kinds_of_one_abstract_batch(
    corpus: Corpus, gallery: Gallery
) -> None:
    """A batch of records has nothing that only tokens have, and nobody makes a batch of no kind."""
    recipe = corpus.recipe("web@1", batch=4)
    (tokens,) = corpus.read(recipe, 1)
    (records,) = gallery.read(gallery.mixed(), 1)
    assert (type(tokens), type(records)) == (TokenBatch, RecordBatch)
    assert isinstance(tokens, ps.Batch)
    assert isinstance(records, ps.Batch)
    assert not isinstance(records, TokenBatch)
    assert [name for name in dir(records) if name in ("cu_seqlens", "_tokens", "_loss_mask")] == []
    with pytest.raises(TypeError, match="abstract"):
        Batch(tokens.made, tokens._plan)  # type: ignore[abstract]


def _reading_threads() -> list[str]:
    names = [(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
    return [name for name in names if name.startswith("penstock-feed")]


def test_a_feed_that_is_opened_anew_is_read_as_it_was_opened(corpus: Corpus) -> None:
    """Goal: options travel whole. Method: a loader over a feed without threads opens it again, and there are none."""
    recipe = corpus.recipe("web@1", batch=4)
    before = _reading_threads()
    with Prefetch(corpus.open(recipe, threads=0, stall_s=7.0), lambda batch: batch.step) as steps:
        assert next(iter(steps)) == 0
        steps.load_state_dict(steps.state_dict())
        assert next(iter(steps)) == 1
        assert _reading_threads() == before
    own = ReadOptions(threads=1, memory_bytes=1 << 20, stall_s=7.0, share=True)
    with corpus.open(recipe, threads=0) as feed, feed.reopened(feed.cursor, own) as other:
        with other.reopened(Cursor.from_json(feed.cursor.to_json())) as third:
            assert third.options == own
        assert feed.options == ReadOptions(threads=0)
