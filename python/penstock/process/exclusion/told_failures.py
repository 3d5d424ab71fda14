"""Failures of hosts that the leader of a job tells: it has them written down by a process of its host (``host/leading/host_watch.rs``)."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from penstock.process.exclusion.history import open_history, pasts
from penstock.process.exclusion.identity import HostIdentity
from penstock.process.exclusion.records import FAILURES, new_record
from penstock.process.hosts.addresses import is_loopback
from penstock.process.job.catalogue import Job
from penstock.store.home import penstock_home


def write_told_failures(job: Job, failures: Iterable[Mapping[str, object]]) -> None:
    """One line each, about the machine that had the name last. Raises ``HistoryUnusable``."""
    host = job.host_file() or {}
    if is_loopback(str(host.get("address") or "")):
        # All hosts are this machine, as people try things out.
        return
    home = Path(str(host.get("home") or penstock_home()))
    history = open_history(home, str(host.get("history") or "") or None)
    known = pasts(history)
    records = []
    for failure in failures:
        name, kind = str(failure.get("host")), str(failure.get("kind"))
        if kind not in FAILURES:
            continue
        past = known.named(name)
        identity = past.identity if past is not None else HostIdentity()
        words = f"{FAILURES[kind]}: {failure.get('why')}"
        records.append(new_record(kind, name, words, identity=identity, job=job.id))
    if records:
        history.append(records)
