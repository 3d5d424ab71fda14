"""Stores: where bytes live, behind one small contract.

A store holds named byte strings below a root. The one guarantee everything else is built on is *put-if-absent*: of
any number of writers of a name, in any number of processes, exactly one succeeds, and a reader sees all of its bytes
or nothing. Local directories give it with a hard link, object stores with a conditional put; no server is needed.
"""

from penstock.store.contract import Entry, Store
from penstock.store.layered_store import LayeredStore
from penstock.store.limits import Limits
from penstock.store.location import is_remote, join, relative, to_path, to_url
from penstock.store.places import open_store

__all__ = [
    "Entry",
    "LayeredStore",
    "Limits",
    "Store",
    "is_remote",
    "join",
    "open_store",
    "relative",
    "to_path",
    "to_url",
]
