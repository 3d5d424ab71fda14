"""Jobs whose state is on an object store: a real S3 server (moto), and the process that speaks to it for the agent (H2, H3, S2)."""

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.process.hosts.state_store import serve
from tests.hosts.job_of_hosts import JobOfHosts, job_of_hosts, until

PORT = 23_900
BUCKET = "penstock-state"
STATE = f"s3://{BUCKET}/train"
OPTIONS = ("--lease", "3s", "--host-wait", "1m", "--state", STATE)
CREDENTIALS = {
    "AWS_ALLOW_HTTP": "true",
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_REGION": "us-east-1",
}
#: Makes the bucket as soon as the server listens.
MAKE_BUCKET = (
    "import time, urllib.request as u\n"
    "for _ in range(600):\n"
    "    try:\n"
    "        u.urlopen(u.Request({url!r}, method='PUT')); break\n"
    "    except OSError: time.sleep(0.05)\n"
)


@contextmanager
def _job_with_store(folder: Path, hosts: int, world: int, *more: str) -> Iterator[JobOfHosts]:
    """The server is on a host of its own, the last one; every login has what reaches it."""
    with job_of_hosts(folder, hosts, world=world + 1, options=(*OPTIONS, *more)) as job:
        store = job.host(world)
        endpoint = f"http://{store.address}:{PORT}"
        store.start(
            [sys.executable, "-m", "moto.server", "-H", "0.0.0.0", "-p", str(PORT)], output=folder / "store"
        )
        made = store.run(sys.executable, "-c", MAKE_BUCKET.format(url=f"{endpoint}/{BUCKET}"))
        assert made.returncode == 0, made.stderr
        usual = job.variables()
        job.variables = lambda: {**usual, **CREDENTIALS, "AWS_ENDPOINT_URL": endpoint}  # type: ignore[method-assign]
        yield job


def _voters(job: JobOfHosts, index: int) -> int:
    rows = job.ask(index, "hosts")
    return len(rows[0]["voters"]) if rows and rows[0]["leader"] else 0


def test_either_of_two_hosts_may_be_lost_and_a_lost_store_stops_nothing(tmp_path: Path) -> None:
    """Goal: the same as in a directory, and the process beside the leader owns nothing. Method: that process is killed, each host is lost
    in turn and started again, then the server itself is killed: nobody is stopped, and the log names the store."""
    with _job_with_store(tmp_path, 2, 2) as job:
        job.start()
        life = job.await_life(0)
        until(lambda: any(job.host(index).pids("state_store", STATE) for index in (0, 1)), job.account)
        for index in (0, 1):
            job.host(index).kill(signal.SIGKILL, "state_store", STATE)
        for index in (0, 1):
            other = 1 - index
            until(lambda other=other: _voters(job, other) == 2, job.account)  # type: ignore[misc]
            job.lose(index)
            until(lambda other=other: _voters(job, other) == 1, job.account)  # type: ignore[misc]
            job.start(index)
            life = job.await_life(life + 1)
            assert job.launchers[other].poll() is None
        before = job.rank_pids()
        job.host(2).kill_all()
        until(lambda: f"the store of {STATE} failed" in job.account(), job.account)
        assert job.rank_pids() == before
        job.finish()
        assert job.codes() == [0, 0]
        job.assert_nothing_left()


def test_a_second_start_is_refused_and_a_later_one_continues_the_lives(tmp_path: Path) -> None:
    """Goal: one job in a place, and no number of a life twice. Method: two other hosts start the same program with it beside the living
    job; then both of its hosts are lost at once, and start again."""
    with _job_with_store(tmp_path, 2, 4) as job:
        job.start()
        life = job.await_life(0)
        before = job.rank_pids()
        for index in (2, 3):
            words = job.words(index, node_rank=index - 2)
            words[words.index("--rdzv-endpoint") + 1] = f"{job.host(2).address}:23777"
            output = tmp_path / f"output-{index}"
            job.launchers[index] = job.host(index).start(words, output=output, variables=job.variables())
        assert job.codes(2, 3) == [2, 2], job.account()
        for index in (2, 3):
            assert f"same state directory {STATE}" in job.output(index), job.output(index)
        assert job.rank_pids() == before
        for index in (0, 1):
            job.lose(index)
        job.start()
        assert job.await_life(life + 1) > life
        job.finish()
        assert job.codes(0, 1) == [0, 0]


def test_a_place_that_cannot_be_used_is_refused_with_the_words_of_the_store(tmp_path: Path) -> None:
    """Goal: a typed error before anything starts. Method: a bucket that does not exist, and a scheme that has no conditional put."""
    with _job_with_store(tmp_path, 2, 2) as job:
        for place, words in (
            ("s3://elsewhere/train", "NoSuchBucket"),
            ("https://host/train", "a URL of s3, gs, az"),
        ):
            job.start(0, options=("--state", place))
            assert job.codes(0) == [2]
            assert words in job.output(0), job.output(0)


def test_every_request_has_an_answer_and_a_record_is_made_once(s3_bucket: str, tmp_path: Path) -> None:
    """Goal: what the agent relies on. Method: the requests that it makes, against a real server."""
    asked = [
        {"do": "get", "name": "alive.json"},
        {"do": "put-if-absent", "name": "terms/1.json", "text": "one"},
        {"do": "put-if-absent", "name": "terms/1.json", "text": "two"},
        {"do": "replace", "name": "alive.json", "text": "first"},
        {"do": "replace", "name": "alive.json", "text": "second"},
        {"do": "get", "name": "alive.json"},
        {"do": "replace", "name": "journal/12.000.jsonl", "text": "a\n"},
        {"do": "replace", "name": "journal/123.000.jsonl", "text": "b\n"},
        {"do": "get-all", "prefix": "journal/12."},
        {"do": "list", "prefix": "terms/"},
    ]
    requests, answers = tmp_path / "requests", tmp_path / "answers"
    requests.write_text("".join(json.dumps(request) + "\n" for request in asked))
    with requests.open("rb") as lines, answers.open("wb") as said:
        serve(f"{s3_bucket}/state-requests", lines, said)
    assert [json.loads(line) for line in answers.read_text().splitlines()] == [
        {"text": None},
        {"made": True},
        {"made": False},
        {},
        {},
        {"text": "second"},
        {},
        {},
        {"texts": {"journal/12.000.jsonl": "a\n"}},
        {"names": ["1.json"]},
    ]
