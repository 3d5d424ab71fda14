"""`penstock data peek` and `bench` on tokens: the numbers by which an order and a feed are judged."""

import json
from pathlib import Path

import pytest

from tests.cli.test_data import run

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "feed-1"


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The golden files, registered."""
    place = str(tmp_path_factory.mktemp("feeding") / "registry")
    for name, file in (("web", "web.jsonl"), ("code", "code.jsonl"), ("rows", "rows.npy")):
        assert run("register", name, str(GOLDEN / "raw" / file), "--registry", place) == 0
    return place


def test_peek_says_how_many_shards_a_batch_comes_from(
    registry: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["peek", str(GOLDEN / "recipe.toml"), "--registry", registry]
    assert run(*words) == 0
    assert "  from 2 shards; a uniform draw would touch 2.0" in capsys.readouterr().out
    assert run(*words, "--json", "--step", "11") == 0
    document = json.loads(capsys.readouterr().out)
    sources = {origin["source"] for row in document["origins"] for origin in row}
    assert document["shards"] == len(sources) == pytest.approx(document["shards_uniform"])


def test_bench_says_where_time_goes_and_how_good_the_order_is(
    registry: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["bench", str(GOLDEN / "recipe.toml"), "--registry", registry, "--seconds", "0.1"]
    assert run(*words, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert min(document[name] for name in ("plan_s", "read_s", "digest_s")) > 0
    assert (
        document["epochs_by_source"].keys() == document["pack_recurrence"].keys() == {"web", "code", "rows"}
    )
    # Few documents fitted by their lengths meet again; those joined end to end do not, and plain rows have no neighbours.
    assert (
        document["pack_recurrence"]["code"]
        > document["pack_recurrence"]["web"]
        >= document["pack_recurrence"]["rows"]
        == 0
    )
    assert run(*words) == 0
    shown = capsys.readouterr().out
    assert all(
        name in shown for name in ("time of threads", "shards per batch", "epochs read", "packs that recur")
    )
