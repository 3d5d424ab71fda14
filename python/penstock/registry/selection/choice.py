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
from penstock.formats import format_named
from penstock.formats.contract import Policy, RawFile
from penstock.formats.detection import detect, ending_of, shards_of
from penstock.formats.media.files import divide_shards
from penstock.registry.scan.scan import ShardScan
from penstock.registry.selection.account import Account, LeftOut, grouped
from penstock.registry.selection.candidates import Candidate, Candidates, find
from penstock.registry.selection.hub_card import CARD_BYTES_MAX, README, file_patterns
from penstock.registry.selection.inventory import missing_parts, missing_shards, refuse_chunks
from penstock.registry.selection.managed_table import refuse_tables
from penstock.registry.selection.one_table import (
    DESCRIBES,
    descriptions,
    missing_columns,
    refuse_strangers,
)
from penstock.registry.selection.partitions import depth_of, partition_of
from penstock.registry.selection.sidecars import is_readme_among, why_beside
from penstock.registry.selection.splits import ALL, FIELD, TRAIN, split_of
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
        self.shards = [other for other in self.shards if other.name != shard.name]
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
            raise FilesLeftOut(left_out={omission.name: omission.reason for omission in left_out})

    def _shown(self, place: str) -> str:
        below = place
        if len(set(self.tops)) == 1:
            below = place.removeprefix(self.tops[0].rstrip("/") + "/")
        # Whatever characters a name has, it is one word of one line.
        return "".join(mark if mark.isprintable() else ascii(mark)[1:-1] for mark in below)


def choose(places: list[str], wanted: str | None, policy: Policy) -> Choice:
    """Find what the places lead to, and decide what of it is data."""
    candidates = find(places)
    refuse_tables(candidates)
    split_values = _take_split(candidates, policy.split)
    _leave_sidecars(candidates)
    by_url = {candidate.url: candidate for candidate in candidates.files}
    raws = _below(candidates.files, _common_root(candidates.files))
    named = frozenset(candidate.url for candidate in candidates.files if candidate.named)
    detected = detect(raws, wanted, named={raw.url for raw in raws if raw.place in named})
    candidates.left_out += [(raw.url, reason) for raw, reason in detected.left_out]
    taken = [by_url[raw.place] for raw in detected.files]
    # Whoever names files or writes a pattern may mean some of a set.
    candidates.left_out += missing_parts([_label(candidate) for candidate in taken if candidate.in_folder])
    if detected.format == "jsonl":
        refuse_chunks([raw for raw in detected.files if raw.place not in named])
    if detected.format == "mds":
        candidates.left_out += missing_shards(detected.files)
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
        tops=candidates.tops,
        left_out=candidates.left_out,
    )


def settle(choice: Choice, scans: list[ShardScan | FileEmpty], *, mixed: bool) -> list[ShardScan]:
    """Leave out shards that turned out to hold no rows of the dataset, unless they were named; the scans of the others."""
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
    if choice.format == "jsonl":
        kept = _leave_descriptions(choice, kept)
    if not mixed and any(shard.place not in choice.named for shard in choice.shards):
        refuse_strangers(kept)
    choice.notes += missing_columns(kept, choice.format)
    choice.notes += grouped((scan.shard.name, note) for scan in kept for note in scan.notes)
    for shard, scan in empty:
        choice.leave_out(shard, scan.reason)
    return kept


def _leave_descriptions(choice: Choice, scans: list[ShardScan]) -> list[ShardScan]:
    shards = {shard.name: shard for shard in choice.shards}
    for scan in descriptions(scans):
        shard = shards[scan.shard.name]
        if shard.place not in choice.named:
            choice.leave_out(shard, DESCRIBES)
            scans = [other for other in scans if other is not scan]
    return scans


def _below(files: list[Candidate], root: str) -> list[RawFile]:
    store = open_store(root)
    return [
        RawFile(store, relative(candidate.url, root), candidate.bytes, candidate.stamp) for candidate in files
    ]


def _common_root(files: list[Candidate]) -> str:
    root = common_root([candidate.url for candidate in files])
    if root.count("/") < 2:
        raise UsageError(
            f"{files[0].url} and {files[-1].url} are in different stores",
            hint="register them as two datasets, and let a recipe mix them",
        )
    return root


def _root(files: list[Candidate]) -> str:
    """The common root, but above all partition folders that were found below what was named."""
    anchors = []
    for candidate in files:
        folder = candidate.url.rpartition("/")[0]
        inside = (
            relative(candidate.url, candidate.base).split("/")[:-1]
            if candidate.url.startswith(candidate.base + "/")
            else []
        )
        first = depth_of(inside)
        if first is not None:
            folder = "/".join(folder.split("/")[: len(folder.split("/")) - (len(inside) - first)])
        anchors.append(f"{folder}/file")
    return common_root(anchors)


def _leave_sidecars(candidates: Candidates) -> None:
    beside = {
        file.url: reason
        for file in candidates.files
        if not file.named and (reason := why_beside(_name(file))) is not None
    }
    kept_suffixes = {ending_of(_name(file)) for file in candidates.files if file.url not in beside}
    for candidate in candidates.files:
        if is_readme_among(_name(candidate), kept_suffixes):
            beside.pop(candidate.url, None)
    if len(beside) == len(candidates.files):
        # A folder of nothing but READMEs is a corpus of them; one of nothing but descriptions has lost its data.
        beside = {
            file.url: beside[file.url] for file in candidates.files if file.in_folder and not _is_prose(file)
        }
    if len(beside) == len(candidates.files):
        left_out = [(_label(file), beside[file.url]) for file in candidates.files]
        raise NothingToRegister(patterns=candidates.tops, left_out=dict(candidates.left_out + left_out))
    if beside:
        candidates.left_out += [
            (_label(file), beside[file.url]) for file in candidates.files if file.url in beside
        ]
        candidates.files = [file for file in candidates.files if file.url not in beside]


def _is_prose(candidate: Candidate) -> bool:
    return ending_of(_name(candidate)) in ("", ".md", ".rst", ".txt")


def _take_split(candidates: Candidates, wanted: str | None) -> Mapping[str, str]:
    """Leave files of other splits out, or refuse to mix; the split of each file, where all are taken."""
    declared = _declared(candidates)
    on_card = _splits_on_cards(candidates)
    split_by_url = {}
    for candidate in candidates.files:
        if (candidate.in_folder or wanted is not None) and why_beside(_name(candidate)) is None:
            split = on_card.get(candidate.url) or split_of(_name(candidate), declared.get(candidate.base, {}))
            if split is not None:
                split_by_url[candidate.url] = split
    by_split: dict[str, list[str]] = {}
    for url, split in split_by_url.items():
        by_split.setdefault(split, []).append(url)
    if wanted == ALL:
        return split_by_url
    if wanted is None:
        others = _beside_held_out(candidates, split_by_url)
        if len(by_split) > 1 or others:
            raise SplitsMixed(place=candidates.tops[0], splits=by_split, others=others)
        return {}
    if wanted not in by_split:
        known = ", ".join(by_split) or "none"
        raise UsageError(f"{candidates.tops[0]} has no split {wanted!r:.50}", hint=f"there are {known}")
    kept = []
    for candidate in candidates.files:
        split = split_by_url.get(candidate.url)
        if split == wanted or why_beside(_name(candidate)) is not None:
            kept.append(candidate)
        else:
            candidates.left_out.append(
                (_label(candidate), f"of the split {split}" if split else "of no split")
            )
    candidates.files = kept
    return {}


def _beside_held_out(candidates: Candidates, split_by_url: Mapping[str, str]) -> int:
    """How many files say no split, beside some like them that are of one that is held out, such as ``test``.

    Files that say no split beside some of ``train`` are taken with them. A page called test.md is a page.
    """
    if all(split.startswith(TRAIN) for split in split_by_url.values()):
        return 0
    pages = tuple(suffix for name in ("documents", "files") for suffix in format_named(name).suffixes)
    endings = {ending_of(url) for url in split_by_url if not url.lower().endswith(pages)}
    return sum(
        candidate.in_folder
        and candidate.url not in split_by_url
        and ending_of(candidate.url) in endings
        and why_beside(_name(candidate)) is None
        for candidate in candidates.files
    )


def _declared(candidates: Candidates) -> dict[str, dict[str, list[str]]]:
    """Base -> folder below it -> the splits that ``dataset_dict.json`` there names."""
    declared: dict[str, dict[str, list[str]]] = {}
    for candidate in candidates.files:
        name = _name(candidate)
        if name.rpartition("/")[2] != _DECLARED or candidate.bytes > _DECLARED_BYTES_MAX:
            continue
        (raw,) = _below([candidate], candidate.url.rpartition("/")[0])
        try:
            splits = msgspec.json.decode(raw.read(0, raw.size_bytes), type=_DatasetDict).splits
        except (msgspec.MsgspecError, UnicodeDecodeError, StoreError):
            continue
        declared.setdefault(candidate.base, {})[name.removesuffix(_DECLARED)] = splits
    return declared


def _splits_on_cards(candidates: Candidates) -> dict[str, str]:
    """What READMEs of the Hub say of which split files are, by URL; refuses to mix configurations."""
    splits: dict[str, str] = {}
    for card in candidates.files:
        name = _name(card)
        if not card.in_folder or name.rpartition("/")[2] != README or card.bytes > CARD_BYTES_MAX:
            continue
        (raw,) = _below([card], card.url.rpartition("/")[0])
        patterns = file_patterns(raw.read(0, raw.size_bytes).decode(errors="replace"))
        if not patterns:
            continue
        folder = name.removesuffix(README)
        names = {
            candidate.url: _name(candidate).removeprefix(folder)
            for candidate in candidates.files
            if candidate.base == card.base
            and _name(candidate).startswith(folder)
            and why_beside(_name(candidate)) is None
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
                config: [entry.pattern for entry in patterns if entry.config == config]
                for config in by_config
            }
            raise ConfigsMixed(place=_label(card).removesuffix("/" + README), configs=shown)
        splits.update({url: split for url, split in whole.items() if split})
    return splits


class _DatasetDict(msgspec.Struct):
    """What ``DatasetDict.save_to_disk`` writes."""

    splits: list[str]


def _name(candidate: Candidate) -> str:
    """Below what was given."""
    if not candidate.url.startswith(candidate.base + "/"):
        return candidate.url.rpartition("/")[2]
    return relative(candidate.url, candidate.base)


def _label(candidate: Candidate) -> str:
    return candidate.url if is_remote(candidate.url) else str(to_path(candidate.url))
