"""Where bytes come from: a path or an object of a store, which Rust reads itself, or a function for what only Python can join."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from penstock._rust.store import StoreClient

#: An object of a store: name, length in bytes, and its stamp.
StoreObject: TypeAlias = tuple[StoreClient, str, int, str]
#: A small object that is named by its content: name and digest.
WholeObject: TypeAlias = tuple[StoreClient, str, str]
#: Objects that are read as one file: what errors call it, and their names and lengths.
JoinedObjects: TypeAlias = tuple[StoreClient, str, list[tuple[str, int]]]
#: What errors call it, length in bytes, and a function from offset and length to exactly those bytes.
PythonReader: TypeAlias = tuple[str, int, Callable[[int, int], bytes]]
#: A file on this machine, or one of the above.
SourceValues: TypeAlias = Path | StoreObject | WholeObject | JoinedObjects | PythonReader
