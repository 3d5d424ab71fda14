"""What of a check is remembered: only what hosts themselves have shown, not versions or clocks, which people mend."""

from collections.abc import Mapping, Sequence

import msgspec

from penstock.process.exclusion.history import HostHistory, note_seen, pasts
from penstock.process.exclusion.identity import HostIdentity
from penstock.process.exclusion.records import Record, new_record
from penstock.process.exclusion.rule import ONCE_S
from penstock.process.health.report import CheckReport
from penstock.process.health.verdict import Finding, Verdict


def remember(history: HostHistory, report: CheckReport, verdict: Verdict) -> list[str]:
    """Write it down; what of it was not known yet, in words. Raises ``HistoryUnusable``."""
    identities = {look.number: look.facts.identity for look in report.hosts if look.facts is not None}
    known = pasts(history)
    note_seen(history, known, ((verdict.names[number], one) for number, one in identities.items()))
    return write_findings(history, verdict.findings, verdict.names, identities)


def write_findings(
    history: HostHistory,
    findings: Sequence[Finding],
    names: Mapping[int, str],
    identities: Mapping[int, HostIdentity],
) -> list[str]:
    """One line for each finding that counts, unless it is there already."""
    there = {record.key for record in history.records() if record.key}
    records: list[Record] = []
    for finding in findings:
        if not finding.failure or (finding.key and finding.key in there):
            continue
        identity = identities.get(finding.host, HostIdentity())
        name = identity.name or names.get(finding.host, "")
        record = new_record(finding.failure, name, finding.words, identity=identity, key=finding.key)
        if finding.failure == "outlier":
            # Checks of one hour are one life: what made the host slow may be the same visitor.
            record = msgspec.structs.replace(record, job="check", life=int(record.at // ONCE_S))
        records.append(record)
        there.add(finding.key)
    if records:
        history.append(records)
    return [f"{record.host} {record.kind}" for record in records]
