"""Errors of stores."""

from penstock.errors.root import PenstockError


class StoreError(PenstockError):
    """Something about the place where bytes live."""


class ObjectMissing(StoreError):
    """Nothing in the store has that name."""

    def __init__(self, *, url: str) -> None:
        self.url = url
        super().__init__(f"there is no {url}")


class StoreDenied(StoreError):
    """The store does not let us."""

    hint = "check the credentials, or the permissions of the directory"

    def __init__(self, *, verb: str, url: str, reason: str) -> None:
        self.verb, self.url, self.reason = verb, url, reason
        super().__init__(f"not allowed to {verb} {url}: {reason}")


class StoreFailed(StoreError):
    """The store said something else, after all retries."""

    exit_code = 1

    def __init__(self, *, verb: str, url: str, reason: str, full: bool = False) -> None:
        self.verb, self.url, self.reason = verb, url, reason
        #: Whether there is no room left.
        self.full = full
        super().__init__(f"cannot {verb} {url}: {reason}")
