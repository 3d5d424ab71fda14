"""``python -m penstock.process.hosts.state_store URL``: the state of a job on an object store, for the coordinator of one host.

The agent has no client of object stores. Each line on standard input is a request as JSON, each line on standard output its answer:
``crates/penstock-process/src/vote/state_store.rs`` has both. This process owns nothing, and may be killed between any two bytes: what is
made there is made whole or not at all. It ends when nobody asks any more.
"""

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, BinaryIO

import msgspec

from penstock.errors import ObjectMissing, PenstockError
from penstock.store import Limits, Store, open_store

#: Hosts that see the store have a name below this.
HOSTS = "hosts/"
#: Of all tries of a request. Whoever asks gives up later than this (`PATIENCE` there), and signs of life come often enough for it.
TOTAL_S = 12.0
#: Pieces of a journal that are read at once.
READS_AT_ONCE = 16


def state_store(url: str) -> Store:
    """The store of ``--state URL``, with limits that fit a job that is supervised."""
    from penstock.store.remote import RemoteStore

    limits = Limits.from_environment()
    if limits.total_s > TOTAL_S:
        limits = replace(limits, total_s=TOTAL_S, read_s=min(limits.read_s, TOTAL_S / 2))
    store = open_store(url)
    return RemoteStore(url, limits=limits) if isinstance(store, RemoteStore) else store


def enter_state_store(url: str, host: str) -> None:
    """Leave the mark by which other hosts know that this one sees the store."""
    state_store(url).put_if_absent(HOSTS + host, b"{}")


def _list(store: Store, request: dict[str, Any]) -> dict[str, Any]:
    prefix = request["prefix"]
    return {"names": [name.removeprefix(prefix) for name in _names(store, prefix)]}


def _names(store: Store, prefix: str) -> list[str]:
    """Names that begin so. Stores list whole parts of names only."""
    folder = prefix.rpartition("/")[0]
    return [entry.name for entry in store.entries(folder) if entry.name.startswith(prefix)]


def _get(store: Store, request: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"text": store.get(request["name"]).decode()}
    except ObjectMissing:
        return {"text": None}


def _get_all(store: Store, request: dict[str, Any]) -> dict[str, Any]:
    names = _names(store, request["prefix"])
    with ThreadPoolExecutor(READS_AT_ONCE, "penstock-state") as readers:
        return {
            "texts": {
                name: data.decode() for name, data in zip(names, readers.map(store.get, names), strict=True)
            }
        }


def _put_if_absent(store: Store, request: dict[str, Any]) -> dict[str, Any]:
    return {"made": store.put_if_absent(request["name"], request["text"].encode())}


def _replace(store: Store, request: dict[str, Any]) -> dict[str, Any]:
    store.replace(request["name"], request["text"].encode())
    return {}


#: What may be asked.
WORK: dict[str, Callable[[Store, dict[str, Any]], dict[str, Any]]] = {
    "list": _list,
    "get": _get,
    "get-all": _get_all,
    "put-if-absent": _put_if_absent,
    "replace": _replace,
}


def serve(url: str, requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer until nobody asks any more."""
    store = None
    for line in requests:
        request = msgspec.json.decode(line)
        try:
            # Opened late, so that what is wrong with it is an answer as well.
            store = store or state_store(url)
            answer = WORK[request["do"]](store, request)
        except PenstockError as problem:
            answer = {"problem": f"{problem} ({problem.hint})" if problem.hint else str(problem)}
        answers.write(msgspec.json.encode(answer) + b"\n")
        answers.flush()


if __name__ == "__main__":
    serve(sys.argv[1], sys.stdin.buffer, sys.stdout.buffer)
