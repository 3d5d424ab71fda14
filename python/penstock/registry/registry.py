"""The registry of datasets on a store: register, resolve, tag, relocate, trace and compare."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstock import events
from penstock._rust import digest
from penstock.errors import AddressInvalid, AddressUnknown, ObjectMissing, PlaceUnknown, UsageError
from penstock.formats.contract import Policy
from penstock.registry import names
from penstock.registry.assembling import assemble
from penstock.registry.column import Column, payload_name, values_of
from penstock.registry.deriving import Derived, list_derived, prune_derived
from penstock.registry.difference import Difference, compare
from penstock.registry.exporting import export_version
from penstock.registry.lineage import Lineage, trace
from penstock.registry.manifest import Manifest, decode, encode
from penstock.registry.measuring import Limits, Measure, MeasureWatch, measure_version
from penstock.registry.migrating import Migrated, migrate, upgrade
from penstock.registry.record import FORM, About, Record, Root, Tag, check_name, check_tag, read
from penstock.registry.scanning import Watch, object_name, scan_all
from penstock.registry.selection.choice import choose, settle
from penstock.registry.selection.partitions import add_columns
from penstock.registry.version import Version
from penstock.registry.work_folder import sweep
from penstock.store import open_store, to_url
from penstock.store.hostcache import read_object

if TYPE_CHECKING:
    import numpy as np

_DIGEST_PREFIX_MIN = 4
#: Begins the root of a version whose files the registry itself keeps, so that they move with it.
WITHIN = "registry:"


class Registry:
    """Names and versions on a directory or an object store. Any number of processes may use it at once."""

    def __init__(self, place: str | os.PathLike[str] | None = None) -> None:
        if place is None:
            place = Path(os.environ.get("PENSTOCK_HOME", Path.home() / ".penstock")) / "registry"
        self.store = open_store(to_url(place))
        self.url = self.store.url

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
        given = _places(files)
        rules = policy or Policy()
        with events.span("registry.register", dataset=name):
            sweep(self.store)
            choice = choose(given, rules.format_for(format), rules)
            if rules.strict:
                choice.refuse_omissions()
            found = scan_all(choice.shards, choice.format, rules, self.store, engine=engine, watch=watch)
            scans = settle(choice, found)
            if rules.strict:
                choice.refuse_omissions()
            manifest = assemble(choice.format, scans, mixed=rules.mixed)
            manifest, notes = add_columns(manifest, choice.partitions)
            choice.notes += notes
            version = self.publish(name, manifest, root=choice.root, about=about or About())
            version.account = choice.account()
            return version

    def publish(self, name: str, manifest: Manifest, *, root: str, about: About) -> Version:
        """Give a manifest the next number, unless the dataset has it already."""
        data = encode(manifest)
        found = digest(data)
        self.store.put_if_absent(object_name(found), data)
        for record in self._records(name):
            if record.manifest == found:
                self._add_root(record, root)
                return self._version(record)

        def make(number: int) -> bytes:
            return msgspec.json.encode(
                Record(form=FORM, name=name, number=number, manifest=found, root=root, about=about)
            )

        def lost(standing: bytes) -> bool:
            return read(standing, Record, name=name).manifest == found

        number, written = names.append(self.store, names.versions_of(name), make, lost)
        return self._version(read(written, Record, name=f"{name}@{number}"))

    def resolve(self, address: str) -> Version:
        """The version at ``web`` (newest), ``web@3``, ``web@gold`` (tag) or ``web@b3:4f2a`` (digest)."""
        return self._version(self._find(address))

    def datasets(self) -> list[str]:
        """Names of all datasets."""
        found = {
            entry.name.rpartition("/")[0].removeprefix("datasets/")
            for entry in self.store.entries("datasets")
        }
        return sorted(found)

    def versions(self, name: str) -> list[Version]:
        """All versions of a dataset, oldest first."""
        found = [self._version(record) for record in self._records(name)]
        if not found:
            raise AddressUnknown(address=name, registry=self.url, known=self.datasets())
        return sorted(found, key=lambda version: version.number)

    def tag(self, address: str, tag: str) -> Version:
        """Let ``name@tag`` mean this version from now on; earlier settings stay in the tag's history."""
        record = self._find(address)
        data = msgspec.json.encode(Tag(form=FORM, number=record.number))
        names.append(
            self.store,
            names.tags_of(record.name, check_tag(tag)),
            lambda number: data,
            lambda standing: False,
        )
        return self._version(record)

    def tags(self, name: str) -> dict[str, int]:
        """The tags of a dataset and the numbers they stand at."""
        top = names.tags_of(check_name(name)) + "/"
        found = {
            entry.name.removeprefix(top).partition("/")[0] for entry in self.store.entries(top.rstrip("/"))
        }
        return {tag: number for tag in sorted(found) if (number := self._tagged(name, tag)) is not None}

    def relocate(self, address: str, roots: Mapping[str, str]) -> Version:
        """Say that the shards of a version have moved: each old place (or prefix of it) to a new one."""
        record = self._find(address)
        version = self._version(record)
        moved: list[str] = []
        for old, new in roots.items():
            before, after = to_url(old), to_url(new)
            places = [place for place in map(to_url, version.roots) if f"{place}/".startswith(f"{before}/")]
            if not places:
                raise PlaceUnknown(address=version.address, place=old, known=list(version.roots))
            moved += [after + place[len(before) :] for place in places]
        # Nothing is written before all of it makes sense.
        for place in moved:
            self._add_root(record, place)
        return self._version(record)

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
        """One value per row of a version, computed once and kept; see ``measuring.py``."""
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
        found = column.payload_version if name in ("", column.name) else column.payload_versions.get(name)
        if not found:
            raise UsageError(f"column {column.name} keeps no {name or 'payload'}")
        return self.resolve(f"{payload_name(version.name, column, name)}@{found}")

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
        watch: MeasureWatch | None = None,
    ) -> Version:
        """Write the rows of a version in another format and register them, with lineage."""
        return export_version(self, self.resolve(address), target, Path(folder), name=name, watch=watch)

    def _find(self, address: str) -> Record:
        name, _, which = address.partition("@")
        check_name(name)
        if "@" in address and not which:
            raise AddressInvalid(address=address, reason="nothing follows the @")
        if which.startswith("b3:"):
            return self._by_digest(name, which, address)
        number = self._number(name, which)
        if number is not None:
            try:
                data = self.store.get(names.document(names.versions_of(name), number))
                return read(data, Record, name=address)
            except ObjectMissing:
                pass
        raise AddressUnknown(address=address, registry=self.url, known=self._known(name))

    def _number(self, name: str, which: str) -> int | None:
        if not which:
            return max(names.numbers(self.store, names.versions_of(name)), default=None)
        return int(which) if which.isdecimal() else self._tagged(name, check_tag(which))

    def _tagged(self, name: str, tag: str) -> int | None:
        sequence = names.tags_of(name, tag)
        newest = max(names.numbers(self.store, sequence), default=None)
        if newest is None:
            return None
        return read(self.store.get(names.document(sequence, newest)), Tag, name=f"{name}@{tag}").number

    def _by_digest(self, name: str, prefix: str, address: str) -> Record:
        if len(prefix) < len("b3:") + _DIGEST_PREFIX_MIN:
            raise AddressInvalid(
                address=address, reason=f"a digest needs at least {_DIGEST_PREFIX_MIN} digits"
            )
        found = [record for record in self._records(name) if record.manifest.startswith(prefix)]
        if len({record.manifest for record in found}) > 1:
            numbers = ", ".join(f"{name}@{record.number}" for record in found)
            raise AddressInvalid(address=address, reason=f"several versions begin so: {numbers}")
        if not found:
            raise AddressUnknown(address=address, registry=self.url, known=self._known(name))
        return found[0]

    def _known(self, name: str) -> list[str]:
        numbers = names.numbers(self.store, names.versions_of(name))
        if not numbers:
            return self.datasets()
        return [f"{name}@{number}" for number in reversed(numbers)] + [
            f"{name}@{tag}" for tag in self.tags(name)
        ]

    def _records(self, name: str) -> list[Record]:
        """Newest first, since that is the one most often asked for."""
        sequence = names.versions_of(name)
        numbers = reversed(names.numbers(self.store, sequence))
        return [
            read(self.store.get(names.document(sequence, n)), Record, name=f"{name}@{n}") for n in numbers
        ]

    def _roots(self, record: Record) -> list[str]:
        sequence = names.roots_of(record.name, record.number)
        added = reversed(names.numbers(self.store, sequence))
        found = [
            read(self.store.get(names.document(sequence, n)), Root, name=f"{sequence}/{n}").root
            for n in added
        ]
        return [
            each.replace(WITHIN, self.url, 1) if each.startswith(WITHIN) else each
            for each in (*found, record.root)
        ]

    def _add_root(self, record: Record, root: str) -> None:
        if self._roots(record)[0] != root.replace(WITHIN, self.url, 1):
            data = msgspec.json.encode(Root(form=FORM, root=root))
            names.append(
                self.store,
                names.roots_of(record.name, record.number),
                lambda number: data,
                lambda standing: False,
            )

    def _version(self, record: Record) -> Version:
        manifest = decode(
            read_object(self.store, object_name(record.manifest), record.manifest),
            name=record.manifest,
            upgrade=upgrade,
        )
        return Version(record=record, manifest=manifest, registry=self.store, roots=self._roots(record))


def _places(files: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> list[str]:
    """What was named, as text."""
    given = (
        [files]
        if isinstance(files, str | bytes | os.PathLike) or not isinstance(files, Iterable)
        else list(files)
    )
    for place in given:
        # An empty text would mean the working directory, which nobody means by it.
        if not isinstance(place, str | os.PathLike) or not os.fspath(place):
            raise UsageError(f"files must be paths, patterns or URLs, got {place!r}")
    if not given:
        raise UsageError("which files? none was named")
    return [os.fspath(place) for place in given]
