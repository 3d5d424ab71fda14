"""Errors of names, versions and tags."""

from penstock.errors.root import PenstockError


class RegistryError(PenstockError):
    """Something about names, versions and tags."""


class AddressInvalid(RegistryError):
    """The text is no address of a version, or of anything that can be looked at."""

    hint = "addresses look like web, web@3, web@gold or web@b3:4f2a; names have letters, digits, '.', '_', '-' and '/'"

    def __init__(self, *, address: str, reason: str, hint: str | None = None) -> None:
        self.address = address
        self.reason = reason
        if hint is not None:
            self.hint = hint
        super().__init__(f"{address!r} is not an address: {reason}")


class AddressUnknown(RegistryError):
    """The registry has no dataset, version or tag of that name."""

    def __init__(self, *, address: str, registry: str, known: list[str]) -> None:
        self.address = address
        self.registry = registry
        self.known = known
        self.hint = (
            f"there are {', '.join(known[:12])}" if known else "`penstock data register` makes versions"
        )
        super().__init__(f"there is no {address} in the registry {registry}")


class PlaceUnknown(RegistryError):
    """A version was never at the place that is said to have moved."""

    def __init__(self, *, address: str, place: str, known: list[str]) -> None:
        self.address = address
        self.place = place
        self.known = known
        self.hint = f"it was at {', '.join(known)}"
        super().__init__(f"{address} was never at {place}")


class ManifestDamaged(RegistryError):
    """What the registry holds is not what its digest says."""

    exit_code = 1
    hint = "register the files again: the same bytes give the same version, and the object is written anew"

    def __init__(self, *, name: str, reason: str) -> None:
        self.name = name
        self.reason = reason
        super().__init__(f"{name} in the registry is damaged: {reason}")


class ManifestNewer(RegistryError):
    """A document was written by a newer Penstock."""

    hint = "read it with the Penstock that wrote it, or a newer one"

    def __init__(self, *, name: str, found: int, known: int) -> None:
        self.name = name
        self.found = found
        self.known = known
        super().__init__(f"{name} has format {found}, but this Penstock reads up to {known}")


class NumbersContended(RegistryError):
    """Too many writers took the next number first."""

    exit_code = 1
    hint = "try again when fewer processes write there"

    def __init__(self, *, name: str, attempts: int) -> None:
        self.name = name
        self.attempts = attempts
        super().__init__(f"no free number under {name} after {attempts} attempts")


class RegistryReadOnly(RegistryError):
    """A registry that is only read was to be changed."""

    def __init__(self, *, place: str, verb: str, scratch: str, reason: str) -> None:
        self.place, self.verb, self.scratch, self.reason = place, verb, scratch, reason
        self.hint = (
            f"{verb} into a registry that you may write: another place, or without a scratch; "
            f"{scratch} only keeps what is derived"
        )
        super().__init__(f"cannot {verb} in {place}: {reason}")
