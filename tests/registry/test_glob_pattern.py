"""Patterns mean what ``glob.glob(…, recursive=True)`` means, in directories and on stores."""

import glob
import json
import os
import tempfile
import threading
import uuid
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock import Registry, errors
from penstock.registry.selection.candidates import find
from penstock.store import open_store
from penstock.store.location import to_path
from tests.faulty.proxy import Proxy

_PARTS = st.sampled_from(["a", "b", "train", "pretrain", ".hidden", "a.b", "x[1]", "x1", "-", "**x"])
_NAMES = st.lists(_PARTS, min_size=1, max_size=4).map("/".join)
_WILD = st.sampled_from(
    [
        "*",
        "**",
        "?",
        "*a*",
        "[ab]",
        "[!a]",
        "tr*n",
        ".*",
        "a",
        "b",
        "train",
        "x[1]",
        "[[]*",
        "x[[]1]",
        "*.b",
        "**a",
        "[a",
        "[]a]",
        "*[0-9]",
        "train*",
    ]
)
_PATTERNS = st.lists(_WILD, min_size=1, max_size=5).map("/".join)


def write_tree(top: Path, names: list[str]) -> None:
    """Files of the given names; a name that needs another one to be a folder is left out."""
    for name in sorted(names):
        path = top / name
        if any(parent.is_file() for parent in path.parents if parent != top) or path.exists():
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)


def found_by_us(place: str) -> set[str]:
    try:
        return {str(to_path(candidate.url)) for candidate in find([place]).files}
    except errors.NothingToRegister:
        return set()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(names=st.lists(_NAMES, max_size=12), pattern=_PATTERNS)
def test_a_pattern_finds_what_glob_finds(names: list[str], pattern: str) -> None:
    """Goal: nothing more and nothing less than `glob`. Method: trees and patterns of every kind, both ways."""
    with tempfile.TemporaryDirectory() as top:
        write_tree(Path(top), names)
        whole = f"{glob.escape(top)}/{pattern}"
        if os.path.lexists(f"{top}/{pattern}"):
            # A name that exists is that name, and glob takes it for a pattern.
            return
        expected = {path for path in glob.glob(whole, recursive=True) if os.path.isfile(path)}
        assert found_by_us(f"{top}/{pattern}") == expected


@settings(max_examples=150, deadline=None)
@given(names=st.lists(_NAMES, max_size=12, unique=True), pattern=_PATTERNS)
def test_a_store_is_matched_as_a_directory_is(names: list[str], pattern: str) -> None:
    with tempfile.TemporaryDirectory() as top:
        write_tree(Path(top), names)
        if os.path.lexists(f"{top}/{pattern}"):
            return
        root = f"memory://{uuid.uuid4().hex}"
        store = open_store(root)
        kept = [str(path.relative_to(top)) for path in Path(top).rglob("*") if path.is_file()]
        for name in kept:
            store.put_if_absent(name, b"x")
        expected = {
            os.path.relpath(path, top)
            for path in glob.glob(f"{glob.escape(top)}/{pattern}", recursive=True)
            if os.path.isfile(path)
        }
        try:
            matched = {
                candidate.url.removeprefix(f"{root}/") for candidate in find([f"{root}/{pattern}"]).files
            }
        except errors.NothingToRegister:
            matched = set()
        assert matched == expected


def write_rows(path: Path, identity: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"id": identity}) + "\n")


def test_stars_of_folders_do_not_reach_into_names(tmp_path: Path) -> None:
    for number, name in enumerate(("train", "x/train", "x/y/train", "pretrain", "x/not-train")):
        write_rows(tmp_path / f"raw/{name}.jsonl", number)
    version = Registry(tmp_path / "registry").register("web", f"{tmp_path}/raw/**/train.jsonl")
    assert [row["id"] for row in version] == [0, 1, 2]


@pytest.mark.parametrize("name", ["run[2]/a.jsonl", "data[1].jsonl", "what?.jsonl", "*.jsonl", "[a]/**"])
def test_a_name_that_exists_wins_over_the_pattern(tmp_path: Path, name: str) -> None:
    write_rows(tmp_path / "raw" / name, 1)
    for other in ("run2/a.jsonl", "data1.jsonl", "whats.jsonl", "other.jsonl", "a/b"):
        write_rows(tmp_path / "raw" / other, 2)
    version = Registry(tmp_path / "registry").register("web", tmp_path / "raw" / name)
    assert [row["id"] for row in version] == [1]


def test_folders_that_match_are_said_to_be_left_out(tmp_path: Path) -> None:
    write_rows(tmp_path / "raw/a.jsonl", 1)
    write_rows(tmp_path / "raw/en/b.jsonl", 2)
    registry = Registry(tmp_path / "registry")
    for pattern, left_out in {"*": {"en": "a folder: a pattern takes files"}, "**": {}, "**/*": {}}.items():
        account = registry.register("web", tmp_path / "raw" / pattern).account
        assert account is not None
        assert {omission.name: omission.reason for omission in account.left_out} == left_out


def test_a_folder_that_exists_wins_over_the_pattern(tmp_path: Path) -> None:
    write_rows(tmp_path / "run[2]/a.jsonl", 1)
    write_rows(tmp_path / "run2/a.jsonl", 2)
    assert Registry(tmp_path / "registry").register("web", tmp_path / "run[2]")[0]["id"] == 1


@pytest.mark.parametrize(
    "pattern", ["*.jsonl", "./*.jsonl", "../*[[]2]/*.jsonl", "sub/../*.jsonl", "~/*.jsonl"]
)
def test_only_what_was_written_is_a_pattern(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str
) -> None:
    """Goal: the folder one stands in is itself. Method: `run[2]` as working directory and home, with `run2` beside it."""
    write_rows(tmp_path / "run[2]/a.jsonl", 1)
    write_rows(tmp_path / "run2/a.jsonl", 2)
    monkeypatch.chdir(tmp_path / "run[2]")
    monkeypatch.setenv("HOME", str(tmp_path / "run[2]"))
    assert [row["id"] for row in Registry(tmp_path / "registry").register("web", pattern)] == [1]


@pytest.mark.parametrize("mark", ["?", "#", "[0-9]", "%5B0-9%5D"])
def test_a_pattern_may_be_a_url_of_a_file(tmp_path: Path, mark: str) -> None:
    write_rows(tmp_path / "part-", 7)
    write_rows(tmp_path / ("part-1.jsonl" if mark != "#" else "part-#.jsonl"), 1)
    version = Registry(tmp_path / "registry").register("web", f"file://{tmp_path}/part-{mark}.jsonl")
    assert [row["id"] for row in version] == [1]


def test_a_pattern_that_ends_in_a_slash_stands_for_folders(tmp_path: Path) -> None:
    write_rows(tmp_path / "raw/a.jsonl", 1)
    write_rows(tmp_path / "raw/en/b.jsonl", 2)
    root = f"memory://{uuid.uuid4().hex}"
    open_store(root).put_if_absent("raw/a.jsonl", b"{}")
    for place in (tmp_path, root):
        for pattern in ("*/", "**/", "*.jsonl/", "a*//"):
            with pytest.raises(errors.NothingToRegister) as caught:
                Registry(tmp_path / "registry").register("web", f"{place}/raw/{pattern}")
            assert "folders" in (caught.value.hint or "")
    # A folder that is named may have one.
    assert len(Registry(tmp_path / "registry").register("web", f"{tmp_path}/raw/en/")) == 1


def test_on_s3_names_win_and_only_the_beginning_of_a_pattern_is_listed(
    s3_bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = f"{s3_bucket}/{uuid.uuid4().hex}"
    store = open_store(top)
    for number, name in enumerate(
        ("run[2]/a.jsonl", "run2/a.jsonl", "train-0.jsonl", "train-1.jsonl", "z.jsonl")
    ):
        store.put_if_absent(name, json.dumps({"id": number}).encode() + b"\n")
    registry = Registry(tmp_path / "registry")
    assert registry.register("a", f"{top}/run[2]/a.jsonl")[0]["id"] == 0
    assert registry.register("b", f"{top}/run[2]")[0]["id"] == 0
    assert [row["id"] for row in registry.register("c", f"{top}/r*/*.jsonl")] == [1, 0]
    with Proxy(os.environ["AWS_ENDPOINT_URL"]) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        assert [row["id"] for row in registry.register("d", f"{top}/train-*.jsonl")] == [2, 3]
        queries = [parse_qs(urlsplit(seen.request.target).query) for seen in proxy.requests(method="GET")]
    folder = top.removeprefix(f"{s3_bucket}/")
    listed = [query["prefix"][0] for query in queries if "list-type" in query]
    # Once whether there is such a folder, and once what begins so.
    assert listed == [f"{folder}/train-*.jsonl/", f"{folder}/train-"]


def test_keys_that_no_request_can_name_are_left_out_and_said(s3_bucket: str, tmp_path: Path) -> None:
    import boto3

    top = uuid.uuid4().hex
    client = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"])
    bucket = s3_bucket.removeprefix("s3://")
    odd = ("data//b.jsonl", "data/./f.jsonl", "data/../g.jsonl", "data/t\tb.jsonl")
    for key in ("data/a.jsonl", "data/en/", "data/c & d", "data/c & d/e.jsonl", *odd):
        body = b"" if key.endswith(("/", "d")) else b'{"id": 1}\n'
        client.put_object(Bucket=bucket, Key=f"{top}/{key}", Body=body)
    registry = Registry(tmp_path / "registry")
    version = registry.register("web", f"{s3_bucket}/{top}/data")
    assert [shard.name for shard in version.manifest.shards] == ["a.jsonl", "c & d/e.jsonl"]
    assert version.account is not None
    assert [(omission.name, omission.reason) for omission in version.account.left_out] == [
        ("../g.jsonl", "its key has the part '..', which no request can name"),
        ("./f.jsonl", "its key has the part '.', which no request can name"),
        ("/b.jsonl", "its key has an empty part ('//'), which no request can name"),
        ("t\\tb.jsonl", "its key has the part '\\t', which no request can name"),
    ]
    for key in odd:
        with pytest.raises(errors.FileUnusable, match="which no request can name"):
            registry.register("web", f"{s3_bucket}/{top}/{key}")
    # An empty object of that name does not hide the folder.
    assert len(registry.register("web", f"{s3_bucket}/{top}/data/c & d")) == 1


def test_a_bucket_that_is_not_there_is_said_in_words(s3_bucket: str, tmp_path: Path) -> None:
    for doing in (
        lambda: Registry(tmp_path / "registry").register("web", "s3://there-is-none/data"),
        lambda: Registry("s3://there-is-none/registry").datasets(),
        lambda: Registry("s3://there-is-none/registry").register("web", write_here(tmp_path)),
    ):
        with pytest.raises(errors.BucketMissing) as caught:
            doing()
        assert "<" not in str(caught.value)
        assert "NoSuchBucket" in str(caught.value)
        assert "name of the bucket" in (caught.value.hint or "")


def write_here(folder: Path) -> Path:
    write_rows(folder / "a.jsonl", 1)
    return folder / "a.jsonl"


def test_a_web_server_that_lists_nothing_says_so_at_once(tmp_path: Path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            for name in ("none.jsonl", "*.jsonl"):
                url = f"http://127.0.0.1:{server.server_port}/{name}"
                with pytest.raises(errors.FileUnusable, match="cannot be listed") as caught:
                    Registry(tmp_path / "registry").register("web", url)
                assert "name each file" in (caught.value.hint or "")
                cause = caught.value.__cause__
                assert isinstance(cause, errors.StoreFailed)
                assert cause.tries == 1
        finally:
            server.shutdown()
            thread.join()
