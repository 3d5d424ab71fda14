"""What a feed tells of itself: percentiles by stage, waits that are too long, and numbers for Prometheus."""

import logging
import os
import re
import signal
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock as ps
from penstock import events
from penstock.data.monitor import metrics
from penstock.data.monitor.exposition import Sample
from penstock.data.monitor.feed_page import FeedPage, read_page
from penstock.errors import RecipeInvalid, UsageError
from tests.data.corpus import Corpus
from tests.data.gallery import Gallery
from tests.data.record_maps import gate, held
from tests.report.scrapes import check, free_port, scrape


class Heard(logging.Handler):
    """Says when a line was logged."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.changed = threading.Condition()

    def emit(self, record: logging.LogRecord) -> None:
        with self.changed:
            self.lines.append(record.getMessage())
            self.changed.notify_all()

    def wait(self, count: int) -> list[str]:
        """The lines, once there are so many."""
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.lines) >= count, 60)
            return list(self.lines)


@pytest.fixture
def heard() -> Iterator[Heard]:
    handler = Heard()
    logging.getLogger("penstock.data").addHandler(handler)
    yield handler
    logging.getLogger("penstock.data").removeHandler(handler)


@pytest.mark.parametrize("threads", [0, 2])
def test_a_wait_that_is_too_long_is_told_and_told_again_and_counted_once(
    tmp_path: Path, heard: Heard, threads: int
) -> None:
    """Goal: no silent stall. Method: a map stands at a gate that opens when the wait was told twice."""
    gallery = Gallery.make(tmp_path / "gallery")
    recipe = gallery.recipe(ps.Source("notes@1", stages=[ps.Map(held)]), batch=4)
    with events.recording(tmp_path / "events") as recording:
        # Before anything can be read ahead.
        gate.clear()
        with gallery.open(recipe, threads=threads, stall_s=0.05) as feed:
            try:
                waiting = threading.Thread(target=lambda: next(feed))
                waiting.start()
                lines = heard.wait(2)
            finally:
                gate.set()
            waiting.join()
            statistics = feed.statistics()
        events.flush()
    assert all(re.match(r"step 0 is waited for since \d+\.\d s, in stage finish", line) for line in lines)
    assert statistics.stalls == 1
    assert statistics.stalled_s >= 0.1
    stalls = [event for event in events.read(recording) if event.kind == "data.stall"]
    assert len(stalls) >= 2
    assert stalls[0].fields["stage"] == "finish"
    ages = [event.fields["age_s"] for event in stalls]
    assert ages == sorted(ages)


def test_a_feed_that_nobody_waits_for_too_long_tells_nothing(corpus: Corpus, heard: Heard) -> None:
    with corpus.open(corpus.recipe("web@1"), threads=1, stall_s=60) as feed:
        for _ in range(20):
            next(feed)
        statistics = feed.statistics()
    assert (statistics.stalls, statistics.stalled_s, heard.lines) == (0, 0.0, [])


def test_limits_that_are_no_seconds_are_refused(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in (0.0, -1.0, float("nan")):
        with pytest.raises(RecipeInvalid):
            corpus.open(corpus.recipe("web@1"), stall_s=wrong)
    monkeypatch.setenv("PENSTOCK_STALL_S", "soon")
    with pytest.raises(RecipeInvalid, match="soon"):
        corpus.open(corpus.recipe("web@1"))


def test_statistics_tell_how_long_each_stage_takes(corpus: Corpus) -> None:
    with (
        corpus.open(corpus.recipe("web@1"), threads=1) as alone,
        corpus.open(corpus.recipe("web@1"), share=True) as shared,
    ):
        for _ in range(20):
            next(alone)
            next(shared)
        stages, statistics = alone.statistics().stages, shared.statistics()
    assert set(stages) == {"wait", "plan", "read", "digest"}
    assert all(0 < stages[name].p50_s <= stages[name].p99_s for name in ("plan", "read", "digest"))
    assert set(statistics.stages) == {*stages, "share"}
    assert statistics.sharing is not None
    assert statistics.to_json()["sharing"]["standing"] == "reader"


def test_numbers_are_served_as_prometheus_reads_them(corpus: Corpus) -> None:
    endpoint = metrics.serve("127.0.0.1:0")
    try:
        assert metrics.serve("127.0.0.1:0") is endpoint
        with corpus.open(corpus.recipe("web@1"), share=True) as feed:
            for _ in range(3):
                next(feed)
            with urllib.request.urlopen(f"http://{endpoint.address}/metrics") as answer:
                body = answer.read().decode()
                assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"http://{endpoint.address}/")
        refused.value.close()
        assert refused.value.code == 404
    finally:
        endpoint.close()
    check(body)
    assert 'penstock_feed_batches_total{feed="0",lane="0/1"} 3' in body
    assert 'penstock_feed_stage_seconds{feed="0",lane="0/1",stage="read",quantile="0.99"}' in body
    assert 'penstock_feed_share_made_total{feed="0",lane="0/1"}' in body
    assert metrics.text() == ""


def test_a_page_holds_what_was_counted_last_by_a_process_that_is_killed(
    corpus: Corpus, tmp_path: Path
) -> None:
    """Goal: numbers of a dead rank stay. Method: a forked process reads batches, writes its page and kills itself."""
    pid = os.fork()
    if pid == 0:
        page = metrics.publish(tmp_path / "feeds", 3, 1)
        with corpus.open(corpus.recipe("web@1"), threads=1) as feed:
            for _ in range(3):
                next(feed)
            if page is not None:
                page.write()
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    content = read_page(tmp_path / "feeds" / "0001.page")
    assert content is not None
    assert (content.life, content.rank, content.pid) == (3, 1, pid)
    assert ("penstock_feed_batches_total", 3.0, {"feed": "0", "lane": "0/1"}) in content.samples


def test_a_page_that_is_damaged_or_half_written_says_nothing(tmp_path: Path) -> None:
    page = metrics.publish(tmp_path, 0, 0)
    assert page is not None
    metrics.withdraw(page)
    path = tmp_path / "0000.page"
    assert read_page(path) is not None
    whole = path.read_bytes()
    for damaged in (
        whole[:10],
        b"",
        whole[:8] + b"\x01" + whole[9:],
        whole[:30] + b"?" + whole[31:],
        b"x" * 100,
    ):
        path.write_bytes(damaged)
        assert read_page(path) is None
    assert read_page(tmp_path / "absent") is None


def test_a_page_that_is_too_small_says_how_much_it_left_out(tmp_path: Path) -> None:
    """Goal: a page is bounded. Method: far more numbers than it has room for."""
    many = [Sample("penstock_x", float(number), {"name": "x" * 100}) for number in range(10_000)]
    page = FeedPage(tmp_path, 0, 0, lambda: many)
    page.close()
    content = read_page(tmp_path / "0000.page")
    assert content is not None
    assert content.left_out + len(content.samples) == 10_000
    assert len(content.samples) > 1000


def test_a_process_whose_run_is_watched_serves_nothing_itself(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: the port is the watcher's. Method: a feed that is opened before the run begins, and one after it."""
    port = free_port()
    monkeypatch.setenv("PENSTOCK_METRICS", f"127.0.0.1:{port}")
    with corpus.open(corpus.recipe("web@1")):
        assert scrape(port) is not None
        page = metrics.publish(tmp_path, 0, 0)
        assert page is not None
        assert scrape(port) is None
        with corpus.open(corpus.recipe("web@1")):
            assert scrape(port) is None
        metrics.withdraw(page)


def test_an_address_that_cannot_be_served_is_a_word_and_reading_goes_on(
    corpus: Corpus, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match="must be host:port"):
        metrics.serve("nowhere")
    monkeypatch.setenv("PENSTOCK_METRICS", "nowhere")
    with corpus.open(corpus.recipe("web@1")) as feed:
        assert next(feed).step == 0
    assert "PENSTOCK_METRICS" in heard.wait(1)[0]
