"""From a place to its store."""

import os

from penstock.store.contract import Store
from penstock.store.local import LocalStore
from penstock.store.location import is_remote, to_path, to_url


def open_store(place: str | os.PathLike[str]) -> Store:
    """The store whose root is ``place``. Nothing is contacted or made until it is used."""
    url = to_url(place)
    if not is_remote(url):
        return LocalStore(to_path(url))
    from penstock.store.remote import RemoteStore

    return RemoteStore(url)
