"""Rows of docs/operations.md about stores: a real S3 server behind a proxy that does what networks and stores do."""

import configparser
import os
from pathlib import Path

import pytest

from penstock.errors import ObjectChanged
from penstock.formats.shard_bytes import open_file
from penstock.store import open_store
from tests.faulty.faults import Flip, Reset, Stall, Status, Truncate
from tests.operations.conftest import STEPS, Far
from tests.operations.rows import row


@row("5xx storm, 429")
def test_a_feed_that_reads_ahead_stands_where_it_stood(far: Far) -> None:
    far.proxy.add(Status(503), method="GET", path="tokens-")
    with far.reading("ahead") as reader:
        assert reader.batch()["error"] == "StoreThrottled"
        far.proxy.heal()
        assert reader.rest(STEPS, told_late="StoreThrottled") == far.digests


def _survives(far: Far) -> dict[str, int]:
    """An epoch is read, bit for bit; what was counted."""
    with far.reading() as reader:
        assert reader.rest(STEPS) == far.digests
        return reader.end()


@row("slow store")
def test_answers_that_stop_coming_are_asked_for_again(far: Far) -> None:
    far.proxy.add(Stall(100_000), times=2, method="GET", path="tokens-")
    counts = _survives(far)
    assert counts["retries"] >= 2
    assert counts["timeouts"] >= 2


@row("slow store")
def test_a_store_that_never_answers_ends_in_a_timeout_and_its_stall_is_told(far: Far) -> None:
    rule = far.proxy.add(Stall(None), method="GET", path="tokens-1")
    with far.reading(PENSTOCK_STALL_S="0.5") as reader:
        before = []
        while "error" not in (answer := reader.batch()):
            before.append(answer["digest"])
            assert len(before) < STEPS
        assert answer["error"] == "StoreTimedOut"
        assert "tokens-1.npy" in answer["url"]
        assert answer["tries"] > 1
        assert rule.happened >= answer["tries"]
        # The store is well again; so is the feed, where it was.
        far.proxy.heal()
        assert before + reader.rest(STEPS - len(before)) == far.digests
        assert reader.end()["stalls"] >= 1


@row("5xx storm, 429")
def test_a_storm_is_ridden_out(far: Far) -> None:
    storm = far.proxy.add(Status(503), share=0.5, times=6, method="GET", path="tokens-")
    slow = far.proxy.add(Status(429, retry_after_s=0), times=1, method="GET", path="tokens-")
    counts = _survives(far)
    assert counts["retries"] >= storm.happened + slow.happened > 3
    assert counts["throttled"] >= 1


@row("5xx storm, 429")
def test_a_storm_without_end_is_an_error_that_says_so(far: Far) -> None:
    storm = far.proxy.add(Status(503), method="GET", path="tokens-")
    with far.reading() as reader:
        answer = reader.batch()
        assert answer["error"] == "StoreThrottled"
        assert answer["tries"] == 4
        # Four tries of each part under way, not a multiplication of them.
        assert storm.happened <= 4 * 16
        # The feed stands where it stood, so nothing is left out once the store is well.
        far.proxy.heal()
        assert reader.rest(STEPS) == far.digests


@row("connection reset, refused")
def test_a_connection_that_is_reset_is_made_again(far: Far) -> None:
    far.proxy.add(Reset(None), times=1, method="GET", path="tokens-")
    far.proxy.add(Reset(200_000), times=2, method="GET", path="tokens-")
    counts = _survives(far)
    assert counts["retries"] >= 3


@row("truncated body")
def test_what_is_missing_of_a_body_is_fetched(far: Far) -> None:
    far.proxy.add(Truncate(300_000), times=3, method="GET", path="tokens-")
    counts = _survives(far)
    assert counts["retries"] >= 3


@row("wrong bytes")
def test_a_flipped_bit_is_never_delivered_and_fetched_again(far: Far) -> None:
    rule = far.proxy.add(Flip(1_500_000), times=1, path="tokens-0")
    counts = _survives(far)
    assert rule.happened == 1
    assert counts["corrupt_refetched"] >= 1


@row("wrong bytes")
def test_bytes_that_stay_wrong_are_an_error_with_their_place(far: Far) -> None:
    rule = far.proxy.add(Flip(1_500_000), path="tokens-0")
    with far.reading() as reader:
        answers = [reader.batch() for _ in range(STEPS)]
        bad = [answer for answer in answers if "error" in answer]
        assert {answer["error"] for answer in bad} == {"CorruptShard"}
        assert {(answer["shard"].endswith("tokens-0.npy"), answer["offset"]) for answer in bad} == {
            (True, 1_500_000 // 65536 * 65536)
        }
        assert all(
            far.digests[answer["step"]] == answer["digest"] for answer in answers if "digest" in answer
        )
        # What is wrong was not kept: once the store is well, all is.
        far.proxy.heal()
    assert rule.happened >= 3
    assert _survives(far)["corrupt_refetched"] == 0


@row("object changed under us")
def test_an_object_that_changes_is_an_error_and_never_mixed(far: Far) -> None:
    with far.reading(PENSTOCK_CACHE="off") as reader:
        reader.open()
        store = open_store(far.store)
        for name in far.names:
            data = bytearray(store.get(name))
            data[len(data) // 2 :] = bytes(len(data) - len(data) // 2)
            store.delete(name)
            assert store.put_if_absent(name, bytes(data))
        answers = [reader.batch() for _ in range(STEPS)]
        bad = [answer for answer in answers if "error" in answer]
        assert bad
        assert {answer["error"] for answer in bad} <= {"ObjectChanged", "CorruptShard"}
        assert all(
            far.digests[answer["step"]] == answer["digest"] for answer in answers if "digest" in answer
        )


@row("object changed under us")
def test_a_file_that_changes_while_it_is_read_is_said_to_have_changed(far: Far) -> None:
    version = far.registry.resolve(far.address)
    shard = version.manifest.shards[0]
    file = open_file(version.open_shard(shard))
    file.read(0, 100)
    store = open_store(far.store)
    other = bytes(shard.bytes)
    store.delete(shard.name)
    assert store.put_if_absent(shard.name, other)

    with pytest.raises(ObjectChanged, match=shard.name):
        file.read(shard.bytes - 100, 100)


@row("object gone, store gone")
def test_an_object_that_is_gone_is_named_and_the_cache_goes_on(far: Far) -> None:
    with far.reading() as reader:
        assert reader.rest(STEPS) == far.digests
    for name in far.names:
        open_store(far.store).delete(name)
    with far.reading() as reader:
        assert reader.rest(STEPS) == far.digests
    with far.reading(PENSTOCK_CACHE="off") as alone:
        answer = alone.batch()
        assert answer["error"] == "ObjectMissing"
        assert "tokens-" in answer["message"]


@row("credentials expired")
def test_new_credentials_are_found_where_the_old_ones_were(far: Far) -> None:
    profile = far.place / "credentials"
    _write_profile(profile, "old")
    variables: dict[str, str | None] = {
        "AWS_ACCESS_KEY_ID": None,
        "AWS_SECRET_ACCESS_KEY": None,
        "AWS_SHARED_CREDENTIALS_FILE": str(profile),
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_PROFILE": "default",
        "PENSTOCK_CACHE": "off",
    }
    text = "<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>"
    with far.reading(**variables) as reader:
        reader.open()
        _write_profile(profile, "new")
        expired = far.proxy.add(Status(403, text=text), times=1, method="GET", path="tokens-")
        assert reader.rest(STEPS) == far.digests
        assert expired.happened == 1
        assert reader.end()["credentials_reread"] >= 1


@row("credentials expired")
def test_credentials_that_stay_refused_are_an_error(far: Far) -> None:
    refused = far.proxy.add(Status(403, text="<Error><Code>ExpiredToken</Code></Error>"), path="tokens-")
    with far.reading() as reader:
        answer = reader.batch()
        assert answer["error"] == "StoreDenied"
        assert "tokens-" in answer["url"]
    assert refused.happened >= 1


def _write_profile(path: Path, key: str) -> None:
    profile = configparser.ConfigParser()
    profile["default"] = {"aws_access_key_id": key, "aws_secret_access_key": "test"}
    with path.open("w") as file:
        profile.write(file)
