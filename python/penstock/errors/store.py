"""Errors of the places where bytes live."""

from penstock.errors.root import PenstockError


class StoreError(PenstockError):
    """Something about the place where bytes live."""


class ObjectMissing(StoreError):
    """Nothing in the store has that name."""

    def __init__(self, *, url: str) -> None:
        self.url = url
        super().__init__(f"there is no {url}")


class StoreRefusal(StoreError):
    """A store did not do what was asked; says of which object and bytes, after how many tries and how long."""

    said = "cannot"

    def __init__(
        self,
        *,
        verb: str,
        url: str,
        reason: str,
        range: tuple[int, int] | None = None,  # noqa: A002 - what it is
        tries: int = 1,
        waited_s: float = 0.0,
        full: bool = False,
    ) -> None:
        self.verb, self.url, self.reason = verb, url, reason
        #: Whether there is no room left.
        self.full = full
        #: First byte and end of what was wanted, where it was a part of the object.
        self.range, self.tries, self.waited_s = range, tries, waited_s
        part = f" bytes {range[0]}..{range[1]}" if range else ""
        after = f" after {tries} tries in {waited_s:.1f} s" if tries > 1 else ""
        super().__init__(f"{self.said} {verb} {url}{part}{after}: {reason}")


class StoreDenied(StoreRefusal):
    """The store does not let us."""

    hint = "check the credentials, or the permissions of the directory"
    said = "not allowed to"


class BucketMissing(StoreRefusal):
    """There is no such bucket or container, or none that these credentials and this endpoint can see."""

    hint = "check the name of the bucket, the region and the endpoint (AWS_ENDPOINT_URL), or make the bucket"


class StoreThrottled(StoreRefusal):
    """The store asked us to slow down, until the budget of retries was spent."""

    hint = "lower the limits of requests and bandwidth, or let fewer processes read at once"
    exit_code = 1


class StoreTimedOut(StoreRefusal):
    """No answer, or no progress, within the deadline."""

    hint = "is the store reachable from here? the deadlines can be raised"
    exit_code = 1


class ObjectChanged(StoreRefusal):
    """The object is another one than when it was opened."""

    hint = "originals must not be changed after registration; register them again as a new version"
    exit_code = 1


class StoreFailed(StoreRefusal):
    """The store said something else, after all retries."""

    exit_code = 1


class CacheUnusable(StoreError):
    """A directory cannot be the cache of this host."""

    hint = "name another directory with PENSTOCK_CACHE, or do without by PENSTOCK_CACHE=off"
    exit_code = 1

    def __init__(self, *, place: str, reason: str) -> None:
        self.place, self.reason = place, reason
        super().__init__(f"{place} cannot be the cache of this host: {reason}")
