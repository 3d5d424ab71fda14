"""The registry of datasets on a store: register, resolve, tag, relocate, trace and compare."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstock import events
from penstock._rust import digest
from penstock.errors import (
    AddressInvalid,
    AddressUnknown,
    ObjectMissing,
    PlaceUnknown,
    StoreDenied,
    UsageError,
)
from penstock.formats.contract import Policy
from penstock.registry import names
from penstock.registry.columns.column import Column, payload_name, values_of
from penstock.registry.columns.measure import Limits, Measure, MeasureWatch, measure_version
from penstock.registry.copies.derived import Derived, list_derived, prune_derived
from penstock.registry.copies.export import export_version, with_fields
from penstock.registry.difference import Difference, compare
from penstock.registry.layout import keep_layouts
from penstock.registry.lineage import Lineage, trace
from penstock.registry.manifest import Manifest, decode, encode
from penstock.registry.migration import Migrated, migrate, upgrade
from penstock.registry.scan.assembly import assemble
from penstock.registry.scan.scan import Watch, object_name, scan_all
from penstock.registry.scan.work_folder import sweep
from penstock.registry.scratch import Held, with_scratch, writing
from penstock.registry.selection.choice import choose, settle
from penstock.registry.selection.partitions import add_columns
from penstock.registry.version import Version
from penstock.registry.version_entry import (
    FORM,
    About,
    Root,
    Tag,
    VersionEntry,
    check_address,
    check_name,
    check_tag,
    read,
)
from penstock.store import LayeredStore, Store, open_store, to_url
from penstock.store.home import penstock_home
from penstock.store.hostcache import read_object
from penstock.store.location import is_web

if TYPE_CHECKING:
    import numpy as np

_DIGEST_PREFIX_MIN = 4
#: Begins the root of a version whose files the registry itself keeps, so that they move with it.
WITHIN = "registry:"


class Registry:
    """Names and versions on a directory or an object store. Any number of processes may use it at once.

    With ``scratch`` the place is only read, and what is derived from it (plans, columns, tokens, copies) is kept there. A place
    that may not be written gets a scratch of its own under ``PENSTOCK_HOME``.
    """

    def __init__(
        self,
        place: str | os.PathLike[str] | None = None,
        *,
        scratch: str | os.PathLike[str] | None = None,
    ) -> None:
        if place is None:
            place = penstock_home() / "registry"
        #: Where names are, and all that others registered and derived.
        self.place = open_store(to_url(place))
        #: Objects that are named by what they hold: of the place, and of the scratch if there is one.
        self.store = with_scratch(self.place, scratch)
        self.url = self.place.url

    def __repr__(self) -> str:
        return f"Registry({self.url!r})"

    def register(
        self,
        name: str,
        files: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        *,
        format: str | None = None,  # noqa: A002 - what everybody calls it
        policy: Policy | None = None,
        about: About | None = None,
        engine: str = "local",
        watch: Watch | None = None,
    ) -> Version:
        """Scan, index and checksum files where they are, and publish them as a version.

        Files are paths, patterns, folders or URLs; the originals stay untouched. The same bytes under the same names
        give the same version again. Nothing is visible until everything is written; a killed call leaves nothing, and
        the next one goes on where it was. ``version.account`` says what was taken, and what was left out and why.
        """
        check_name(name)
        places = _places(files)
        if not isinstance(policy, Policy | None) or not isinstance(about, About | None):
            wrong, kind = (about, "an About") if isinstance(policy, Policy | None) else (policy, "a Policy")
            raise UsageError(f"expected {kind}, got {wrong!r:.100}")
        rules = policy or Policy()
        with events.span("registry.register", dataset=name), writing(self.store, "register"):
            sweep(self.place)
            choice = choose(places, rules.format_for(format), rules)
            if rules.strict:
                choice.refuse_omissions()
            outcomes = scan_all(choice.shards, choice.format, rules, self.place, engine=engine, watch=watch)
            scans = settle(choice, outcomes, mixed=rules.mixed)
            if rules.strict:
                choice.refuse_omissions()
            manifest = assemble(choice.format, scans, mixed=rules.mixed)
            manifest, notes = add_columns(manifest, choice.partitions)
            choice.notes += notes
            version = self.publish(name, manifest, root=choice.root, about=about or About())
            keep_layouts(version)
            version.account = choice.account()
            return version

    def publish(self, name: str, manifest: Manifest, *, root: str, about: About) -> Version:
        """Give a manifest the next number, unless the dataset has it already."""
        with writing(self.store, "register"):
            return self._publish(self.place, name, manifest, root=root, about=about)

    def publish_derived(self, name: str, manifest: Manifest, *, root: str, about: About) -> Version:
        """The same for what a measure keeps, which may be in the scratch."""
        store = self.store
        if not isinstance(store, LayeredStore):
            return self._publish(store, name, manifest, root=root, about=about)
        return store.write(lambda home: self._publish(home, name, manifest, root=root, about=about))

    def _publish(self, home: Store, name: str, manifest: Manifest, *, root: str, about: About) -> Version:
        data = encode(manifest)
        manifest_digest = digest(data)
        seen = 0
        for held in self._held(name):
            seen = max(seen, held.record.number) if held.home is home else seen
            if held.record.manifest == manifest_digest:
                if held.home is home:
                    home.put_if_absent(object_name(manifest_digest), data)
                    self._add_root(held, root)
                return self._version(held)
        home.put_if_absent(object_name(manifest_digest), data)

        def make(number: int) -> bytes:
            return msgspec.json.encode(
                VersionEntry(
                    form=FORM, name=name, number=number, manifest=manifest_digest, root=root, about=about
                )
            )

        def lost(standing: bytes) -> bool:
            return read(standing, VersionEntry, name=name).manifest == manifest_digest

        number, written = names.append(home, names.versions_of(name), make, lost, after=seen)
        return self._version(Held(read(written, VersionEntry, name=f"{name}@{number}"), home))

    def resolve(self, address: str) -> Version:
        """The version at ``web`` (newest), ``web@3``, ``web@gold`` (tag) or ``web@b3:4f2a`` (digest)."""
        return self._version(self._find(address))

    def datasets(self) -> list[str]:
        """Names of all datasets."""
        if is_web(self.url):
            hint = f"name the dataset that is meant, as in `penstock data show NAME --registry {self.url}`"
            raise UsageError(f"{self.url} is a web server, which does not list its datasets", hint=hint)
        return self.listed_datasets()

    def listed_datasets(self) -> list[str]:
        """The same, as far as they can be listed: of a place on a web server, those that are in the scratch."""
        dataset_names = {
            entry.name.rpartition("/")[0].removeprefix("datasets/")
            for home in self._homes
            if not is_web(home.url)
            for entry in home.entries("datasets")
        }
        return sorted(dataset_names)

    def versions(self, name: str) -> list[Version]:
        """All versions of a dataset, oldest first."""
        versions = [self._version(held) for held in self._held(name)]
        if not versions:
            raise AddressUnknown(address=name, registry=self.url, known=self.listed_datasets())
        return sorted(versions, key=lambda version: version.number)

    def tag(self, address: str, tag: str) -> Version:
        """Let ``name@tag`` mean this version from now on; earlier settings stay in the tag's history."""
        held = self._find(address)
        data = msgspec.json.encode(Tag(form=FORM, number=held.record.number))
        sequence = names.tags_of(held.record.name, check_tag(tag))
        with writing(self.store, "tag"):
            names.append(self.place, sequence, lambda number: data, lambda standing: False)
        return self._version(held)

    def tags(self, name: str) -> dict[str, int]:
        """The tags of a dataset and the numbers they stand at; none on a web server, where a tag is found by its name alone."""
        top = names.tags_of(check_name(name)) + "/"
        if is_web(self.url):
            return {}
        tags = {
            entry.name.removeprefix(top).partition("/")[0] for entry in self.place.entries(top.rstrip("/"))
        }
        return {tag: number for tag in sorted(tags) if (number := self._tagged(name, tag)) is not None}

    def relocate(self, address: str, roots: Mapping[str, str]) -> Version:
        """Say that the shards of a version have moved: each old place (or prefix of it) to a new one.

        Where the registry is only read, the scratch says so, to those who use it.
        """
        held = self._find(address)
        version = self._version(held)
        if not isinstance(roots, Mapping):
            hint = 'registry.relocate("web@1", {"s3://old": "s3://new"})'
            raise UsageError(f"roots must map old places to new ones, got {roots!r:.100}", hint=hint)
        moved: list[str] = []
        for old, new in roots.items():
            before, after = to_url(old), to_url(new)
            places = [place for place in map(to_url, version.roots) if f"{place}/".startswith(f"{before}/")]
            if not places:
                raise PlaceUnknown(address=version.address, place=old, known=list(version.roots))
            moved += [after + place[len(before) :] for place in places]
        # Nothing is written before all of it makes sense.
        for place in moved:
            self._add_root(held, place)
        return self._version(held)

    def lineage(self, address: str) -> Lineage:
        """What a version came from, and what was made from it."""
        return trace(self, self._version(self._find(address)))

    def diff(self, before: str, after: str, *, rows: bool = True) -> Difference:
        """What changed between two versions: schema, shards, and (reading the shards that differ) rows."""
        return compare(self.resolve(before), self.resolve(after), rows=rows)

    def measure(
        self,
        address: str,
        measure: Measure,
        *,
        engine: str = "local",
        derived_bytes_max: int = 1 << 40,
        watch: MeasureWatch | None = None,
    ) -> Column:
        """One value per row of a version, computed once and kept; see ``measure.py``."""
        version = self.resolve(address)
        limits = Limits(derived_bytes_max=derived_bytes_max)
        return measure_version(self, version, measure, engine=engine, limits=limits, watch=watch)

    def values(self, column: Column) -> "np.ndarray[Any, Any]":
        """All values of a measured column, in row order."""
        return values_of(self.store, column)

    def payload(self, version: Version, column: Column, name: str = "") -> Version:
        """The derived version that holds what a measure kept per row, such as tokens; row n is of the n-th row measured.

        A measure may keep several things per row; ``name`` says which, the first unless given.
        """
        payload_version = (
            column.payload_version if name in ("", column.name) else column.payload_versions.get(name)
        )
        if not payload_version:
            raise UsageError(f"column {column.name} keeps no {name or 'payload'}")
        return self.resolve(f"{payload_name(version.name, column, name)}@{payload_version}")

    def derived(self) -> list[Derived]:
        """Derived copies and payloads, with their sizes and what they belong to."""
        return list_derived(self)

    def prune(self, names: Iterable[str]) -> int:
        """Delete derived copies, which are made again when needed; the bytes that were freed."""
        return prune_derived(self, set(names))

    def migrate(self, address: str) -> Migrated:
        """Publish a version in the current form, if it has an older one."""
        return migrate(self, self.resolve(address))

    def export(
        self,
        address: str,
        target: str,
        folder: str | os.PathLike[str],
        *,
        name: str | None = None,
        fields: Sequence[str] | None = None,
        watch: MeasureWatch | None = None,
    ) -> Version:
        """Write the rows of a version, or some of their fields, in another format and register them, with lineage."""
        with writing(self.store, "register"):
            version = self.resolve(address)
            chosen = version if fields is None else with_fields(version, fields)
            return export_version(self, chosen, target, Path(folder), name=name, watch=watch)

    @property
    def _homes(self) -> tuple[Store, ...]:
        """Where names are looked for, in order: a number means what it means in the place."""
        store = self.store
        return (self.place, store.scratch) if isinstance(store, LayeredStore) else (self.place,)

    def _find(self, address: str) -> Held:
        name, which = check_address(address)
        if which.startswith("b3:"):
            return self._by_digest(name, which, address)
        for home in self._homes:
            number = self._number(home, name, which)
            if number is None:
                continue
            try:
                data = home.get(names.document(names.versions_of(name), number))
                return Held(read(data, VersionEntry, name=address), home)
            except ObjectMissing:
                pass
        raise AddressUnknown(address=address, registry=self.url, known=self._known(name))

    def _number(self, home: Store, name: str, which: str) -> int | None:
        if not which:
            return max(names.numbers(home, names.versions_of(name)), default=None)
        return int(which) if which.isdecimal() else self._tagged(name, check_tag(which))

    def _tagged(self, name: str, tag: str) -> int | None:
        sequence = names.tags_of(name, tag)
        newest = max(names.numbers(self.place, sequence), default=None)
        if newest is None:
            return None
        return read(self.place.get(names.document(sequence, newest)), Tag, name=f"{name}@{tag}").number

    def _by_digest(self, name: str, prefix: str, address: str) -> Held:
        if len(prefix) < len("b3:") + _DIGEST_PREFIX_MIN:
            raise AddressInvalid(
                address=address, reason=f"a digest needs at least {_DIGEST_PREFIX_MIN} digits"
            )
        matches = [held for held in self._held(name) if held.record.manifest.startswith(prefix)]
        if len({held.record.manifest for held in matches}) > 1:
            numbers = ", ".join(f"{name}@{held.record.number}" for held in matches)
            raise AddressInvalid(address=address, reason=f"several versions begin so: {numbers}")
        if not matches:
            raise AddressUnknown(address=address, registry=self.url, known=self._known(name))
        return matches[0]

    def _known(self, name: str) -> list[str]:
        numbers = names.numbers(self.place, names.versions_of(name))
        if not numbers:
            return self.listed_datasets()
        return [f"{name}@{number}" for number in reversed(numbers)] + [
            f"{name}@{tag}" for tag in self.tags(name)
        ]

    def _held(self, name: str) -> list[Held]:
        """All versions of a dataset, newest first, since that is the one most often asked for."""
        sequence = names.versions_of(name)
        return [
            Held(read(home.get(names.document(sequence, n)), VersionEntry, name=f"{name}@{n}"), home)
            for home in self._homes
            for n in reversed(names.numbers(home, sequence))
        ]

    def _roots(self, held: Held) -> list[str]:
        """Where the files of a version are, newest first. What the registry keeps itself may be in the scratch or in the place."""
        record = held.record
        roots: list[str] = []
        for home, sequence in self._root_sequences(held):
            for n in reversed(names.numbers(home, sequence)):
                roots.append(read(home.get(names.document(sequence, n)), Root, name=f"{sequence}/{n}").root)
        within = [self.url] if held.home is self.place else [held.home.url, self.url]
        return [
            root.replace(WITHIN, url, 1)
            for root in (*roots, record.root)
            for url in (within if root.startswith(WITHIN) else within[:1])
        ]

    def _root_sequences(self, held: Held) -> list[tuple[Store, str]]:
        """Where further roots of a version are written, the one that counts most first."""
        record = held.record
        own = [(held.home, names.roots_of(record.name, record.number))]
        store = self.store
        if not isinstance(store, LayeredStore) or held.home is store.scratch:
            return own
        # In the scratch by digest: its own numbers mean other versions.
        return [(store.scratch, names.roots_of(record.name, record.manifest.replace(":", "-"))), *own]

    def _add_root(self, held: Held, root: str) -> None:
        if self._roots(held)[0] == root.replace(WITHIN, held.home.url, 1):
            return
        data = msgspec.json.encode(Root(form=FORM, root=root))
        sequences = self._root_sequences(held)
        store = self.store
        if isinstance(store, LayeredStore) and held.home is self.place and not store.sealed:
            try:
                names.append(*sequences[-1], lambda number: data, lambda standing: False)
                return
            except StoreDenied as reason:
                store.seal(reason)
        names.append(*sequences[0], lambda number: data, lambda standing: False)

    def _version(self, held: Held) -> Version:
        record = held.record
        manifest = decode(
            read_object(self.store, object_name(record.manifest), record.manifest),
            name=record.manifest,
            upgrade=upgrade,
        )
        return Version(
            record=record,
            manifest=manifest,
            registry=self.store,
            roots=self._roots(held),
            by_digest=held.home is not self.place,
        )


def _places(files: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> list[str]:
    """What was named, as text."""
    places = (
        [files]
        if isinstance(files, str | bytes | os.PathLike) or not isinstance(files, Iterable)
        else list(files)
    )
    for place in places:
        # An empty text would mean the working directory, which nobody means by it.
        if not isinstance(place, str | os.PathLike) or not os.fspath(place):
            raise UsageError(f"files must be paths, patterns or URLs, got {place!r}")
    if not places:
        raise UsageError("which files? none was named")
    return [os.fspath(place) for place in places]
