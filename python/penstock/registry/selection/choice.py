"""From what a person names to the shards of a version: candidates, splits, one format, partitions, and what was left out."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from penstock.errors import (
    ConfigsMixed,
    FileEmpty,
    FilesLeftOut,
    NothingToRegister,
    SplitsMixed,
    StoreError,
    UsageError,
)
from penstock.formats.contract import Policy, RawFile
from penstock.formats.detection import detect, ending_of, shards_of
from penstock.formats.media.files import divide_shards
from penstock.registry.scan.scan import ShardScan
from penstock.registry.selection.account import Account, LeftOut, grouped
from penstock.registry.selection.candidates import Candidate, Candidates, find
from penstock.registry.selection.hub_card import CARD_BYTES_MAX, README, file_patterns
from penstock.registry.selection.inventory import missing_parts, missing_shards
from penstock.registry.selection.managed_table import refuse_tables
from penstock.registry.selection.partitions import depth_of, partition_of
from penstock.registry.selection.sidecars import is_readme_among, why_beside
from penstock.registry.selection.splits import ALL, FIELD, split_of
from penstock.store import is_remote, open_store, relative
from penstock.store.location import common_root, to_path

_DECLARED = "dataset_dict.json"
_DECLARED_BYTES_MAX = 1 << 20


@dataclass(slots=True)
class Choice:
    """The shards of a version to be, and everything that was found beside them."""

    format: str
    shards: list[RawFile]
    #: By name of shard: what its folders and its split say about all of its rows.
    partitions: dict[str, dict[str, str | None]]
    #: URLs of files that were named themselves, so that they are never left out.
    named: frozenset[str]
    #: The folders that were given, as paths or URLs.
    tops: list[str]
    #: Path or URL, and why it was left out.
    left_out: list[tuple[str, str]]
    notes: list[str] = field(default_factory=list)

    @property
    def root(self) -> str:
        """Names of shards are below this."""
        return self.shards[0].store.url

    def leave_out(self, shard: RawFile, reason: str) -> None:
        """Take a shard out again."""
        self.shards = [each for each in self.shards if each.name != shard.name]
        self.left_out.append((shard.url, reason))

    def account(self) -> Account:
        """The account as it stands."""
        files = [member for shard in self.shards for member in shard.members or (shard,)]
        return Account(
            files=len(files),
            bytes=sum(file.size_bytes for file in files),
            left_out=tuple(sorted(LeftOut(self._shown(place), reason) for place, reason in self.left_out)),
            notes=tuple(self.notes),
        )

    def refuse_omissions(self) -> None:
        """For those who want everything or nothing."""
        left_out = self.account().left_out
        if left_out:
            raise FilesLeftOut(left_out={each.name: each.reason for each in left_out})

    def _shown(self, place: str) -> str:
        below = place
        if len(set(self.tops)) == 1:
            below = place.removeprefix(self.tops[0].rstrip("/") + "/")
        # Whatever characters a name has, it is one word of one line.
        return "".join(mark if mark.isprintable() else ascii(mark)[1:-1] for mark in below)


def choose(places: list[str], wanted: str | None, policy: Policy) -> Choice:
    """Find what the places lead to, and decide what of it is data."""
    found = find(places)
    refuse_tables(found)
    split_values = _take_split(found, policy.split)
    _leave_sidecars(found)
    by_url = {candidate.url: candidate for candidate in found.files}
    raws = _below(found.files, _common_root(found.files))
    named = frozenset(candidate.url for candidate in found.files if candidate.named)
    detected = detect(raws, wanted, named={raw.url for raw in raws if raw.place in named})
    found.left_out += [(raw.url, reason) for raw, reason in detected.left_out]
    taken = [by_url[raw.place] for raw in detected.files]
    # Whoever names files or writes a pattern may mean some of a set.
    found.left_out += missing_parts([_label(each) for each in taken if each.in_folder])
    if detected.format == "mds":
        found.left_out += missing_shards(detected.files)
    shards = shards_of(detected.format, _below(taken, _root(taken)))
    if split_values and shards[0].members:
        shards = divide_shards(shards, lambda member: split_values.get(member.place))
    partitions = {}
    for shard in shards:
        # A shard of many files has a name that is made up.
        values = {} if shard.members else partition_of(shard.name)
        first = shard.members[0] if shard.members else shard
        if (split := split_values.get(first.place)) is not None:
            values[FIELD] = split
        partitions[shard.name] = values
    return Choice(
        format=detected.format,
        shards=shards,
        partitions=partitions,
        named=named,
        tops=found.tops,
        left_out=found.left_out,
    )


def settle(choice: Choice, scans: list[ShardScan | FileEmpty]) -> list[ShardScan]:
    """Leave out shards that turned out to have no rows, unless they were named; the scans of the others."""
    kept = []
    empty = []
    for shard, scan in zip(choice.shards, scans, strict=True):
        if isinstance(scan, ShardScan):
            kept.append(scan)
            if scan.blank_lines and choice.format == "text":
                choice.left_out.append((shard.url, f"{scan.blank_lines:,} of its lines are empty"))
        elif shard.place in choice.named:
            raise scan
        else:
            empty.append((shard, scan))
    if not kept:
        raise empty[0][1]
    choice.notes += grouped((scan.shard.name, note) for scan in kept for note in scan.notes)
    for shard, scan in empty:
        choice.leave_out(shard, scan.reason)
    return kept


def _below(files: list[Candidate], root: str) -> list[RawFile]:
    store = open_store(root)
    return [RawFile(store, relative(each.url, root), each.bytes, each.stamp) for each in files]


def _common_root(files: list[Candidate]) -> str:
    root = common_root([each.url for each in files])
    if root.count("/") < 2:
        raise UsageError(
            f"{files[0].url} and {files[-1].url} are in different stores",
            hint="register them as two datasets, and let a recipe mix them",
        )
    return root


def _root(files: list[Candidate]) -> str:
    """The common root, but above all partition folders that were found below what was named."""
    anchors = []
    for each in files:
        folder = each.url.rpartition("/")[0]
        inside = relative(each.url, each.base).split("/")[:-1] if each.url.startswith(each.base + "/") else []
        first = depth_of(inside)
        if first is not None:
            folder = "/".join(folder.split("/")[: len(folder.split("/")) - (len(inside) - first)])
        anchors.append(f"{folder}/file")
    return common_root(anchors)


def _leave_sidecars(found: Candidates) -> None:
    beside = {
        each.url: reason
        for each in found.files
        if not each.named and (reason := why_beside(_name(each))) is not None
    }
    kept_suffixes = {ending_of(_name(each)) for each in found.files if each.url not in beside}
    for each in found.files:
        if is_readme_among(_name(each), kept_suffixes):
            beside.pop(each.url, None)
    if len(beside) == len(found.files):
        # A folder of nothing but READMEs is a corpus of them; one of nothing but descriptions has lost its data.
        beside = {
            each.url: beside[each.url] for each in found.files if each.in_folder and not _is_prose(each)
        }
    if len(beside) == len(found.files):
        left_out = [(_label(each), beside[each.url]) for each in found.files]
        raise NothingToRegister(patterns=found.tops, left_out=dict(found.left_out + left_out))
    if beside:
        found.left_out += [(_label(each), beside[each.url]) for each in found.files if each.url in beside]
        found.files = [each for each in found.files if each.url not in beside]


def _is_prose(each: Candidate) -> bool:
    return ending_of(_name(each)) in ("", ".md", ".rst", ".txt")


def _take_split(found: Candidates, wanted: str | None) -> Mapping[str, str]:
    """Leave files of other splits out, or refuse to mix; the split of each file, where all are taken."""
    declared = _declared(found)
    on_card = _splits_on_cards(found)
    split_by_url = {}
    for each in found.files:
        if (each.in_folder or wanted is not None) and why_beside(_name(each)) is None:
            split = on_card.get(each.url) or split_of(_name(each), declared.get(each.base, {}))
            if split is not None:
                split_by_url[each.url] = split
    by_split: dict[str, list[str]] = {}
    for url, split in split_by_url.items():
        by_split.setdefault(split, []).append(url)
    if wanted == ALL:
        return split_by_url
    if wanted is None:
        if len(by_split) > 1:
            raise SplitsMixed(place=found.tops[0], splits=by_split)
        return {}
    if wanted not in by_split:
        known = ", ".join(by_split) or "none"
        raise UsageError(f"{found.tops[0]} has no split {wanted!r:.50}", hint=f"there are {known}")
    kept = []
    for each in found.files:
        split = split_by_url.get(each.url)
        if split == wanted or why_beside(_name(each)) is not None:
            kept.append(each)
        else:
            found.left_out.append((_label(each), f"of the split {split}" if split else "of no split"))
    found.files = kept
    return {}


def _declared(found: Candidates) -> dict[str, dict[str, list[str]]]:
    """Base -> folder below it -> the splits that ``dataset_dict.json`` there names."""
    declared: dict[str, dict[str, list[str]]] = {}
    for each in found.files:
        name = _name(each)
        if name.rpartition("/")[2] != _DECLARED or each.bytes > _DECLARED_BYTES_MAX:
            continue
        (raw,) = _below([each], each.url.rpartition("/")[0])
        try:
            splits = msgspec.json.decode(raw.read(0, raw.size_bytes), type=_DatasetDict).splits
        except (msgspec.MsgspecError, UnicodeDecodeError, StoreError):
            continue
        declared.setdefault(each.base, {})[name.removesuffix(_DECLARED)] = splits
    return declared


def _splits_on_cards(found: Candidates) -> dict[str, str]:
    """What READMEs of the Hub say of which split files are, by URL; refuses to mix configurations."""
    splits: dict[str, str] = {}
    for card in found.files:
        name = _name(card)
        if not card.in_folder or name.rpartition("/")[2] != README or card.bytes > CARD_BYTES_MAX:
            continue
        (raw,) = _below([card], card.url.rpartition("/")[0])
        patterns = file_patterns(raw.read(0, raw.size_bytes).decode(errors="replace"))
        if not patterns:
            continue
        folder = name.removesuffix(README)
        names = {
            each.url: _name(each).removeprefix(folder)
            for each in found.files
            if each.base == card.base and _name(each).startswith(folder) and why_beside(_name(each)) is None
        }
        by_config: dict[str, dict[str, str]] = {}
        for pattern in patterns:
            matched = by_config.setdefault(pattern.config, {})
            for url in (url for url, below in names.items() if pattern.matches(below)):
                matched.setdefault(url, pattern.split)
        everything = {url for matched in by_config.values() for url in matched}
        whole = next((matched for matched in by_config.values() if matched.keys() == everything), None)
        if whole is None:
            shown = {
                config: [each.pattern for each in patterns if each.config == config] for config in by_config
            }
            raise ConfigsMixed(place=_label(card).removesuffix("/" + README), configs=shown)
        splits.update({url: split for url, split in whole.items() if split})
    return splits


class _DatasetDict(msgspec.Struct):
    """What ``DatasetDict.save_to_disk`` writes."""

    splits: list[str]


def _name(each: Candidate) -> str:
    """Below what was given."""
    if not each.url.startswith(each.base + "/"):
        return each.url.rpartition("/")[2]
    return relative(each.url, each.base)


def _label(each: Candidate) -> str:
    return each.url if is_remote(each.url) else str(to_path(each.url))
