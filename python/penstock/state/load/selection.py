"""What of a checkpoint is loaded into what of a tree: selectors, renames, and the refusal of those that miss.

Names are paths: ``/`` separates what Penstock joins, ``.`` what a framework does (``model/encoder.layer.weight``). Both are boundaries, so
``model/encoder`` selects that name and everything below it, and never ``model/encoder2``. A selector or rename that finds nothing is a
mistake in writing, and loading nothing would look like success.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TypedDict

from penstock.errors import SelectionEmpty, UsageError

Rename = Mapping[str, str] | Callable[[str], str] | None
#: Selects the random generators, which are entries of a rank and no part of the tree.
GENERATORS = "rng"
_SEPARATORS = ("/", ".")
#: Names that nearest ones are looked for among; more would take seconds.
_CANDIDATES_MAX = 20_000


class LoadKeywords(TypedDict, total=False):
    """What ``Checkpoints.load`` takes beside checkpoint and tree, so that ``resume`` hands it on."""

    strict: bool
    only: str | tuple[str, ...]
    rename: Rename
    cast: bool
    resize: Mapping[str, str] | None


@dataclass(frozen=True, slots=True)
class Wish:
    """What to load: everything by default."""

    #: Whether everything in the tree has to be in the checkpoint, and the other way round.
    strict: bool = True
    #: Beginnings of names in the tree; nothing else is touched.
    only: tuple[str, ...] = ()
    #: From names in the tree to names in the checkpoint: beginnings to beginnings, or a function.
    rename: Rename = None
    #: Whether floating-point tensors are converted to the tree's types.
    cast: bool = False
    #: How tensors of another size are filled, by beginnings of names in the tree: see ``fit.RESIZES``.
    resize: Mapping[str, str] = field(default_factory=dict)
    #: Whether contents that ranks kept to themselves are taken from the first rank, whoever asks.
    first: bool = False

    def __post_init__(self) -> None:
        for selector in self.only:
            if not isinstance(selector, str):
                raise UsageError(f"only takes names, got {selector!r}", hint='only="model"')
        if not isinstance(self.resize, Mapping):
            hint = 'resize={"model/embed.weight": "pad"}'
            raise UsageError(f"resize takes a dict of names and modes, got {self.resize!r}", hint=hint)
        if self.rename is not None and not isinstance(self.rename, Mapping) and not callable(self.rename):
            hint = 'rename={"model": "ema"}: names in the tree, and what the checkpoint calls them'
            raise UsageError(f"rename takes a dict or a function, got {self.rename!r}", hint=hint)

    @property
    def selects(self) -> bool:
        """Whether names are given that may miss."""
        return bool(self.only or self.rename or self.resize)

    def chosen(self, name: str) -> bool:
        """Whether a name in the tree is wanted."""
        return not self.only or any(begins(name, selector) for selector in self.only)

    def saved_as(self, name: str) -> str:
        """What the checkpoint calls it."""
        if callable(self.rename):
            return self.rename(name)
        return _renamed(name, [_explicit(here, there) for here, there in (self.rename or {}).items()])

    def known_as(self, saved: str) -> str:
        """What the tree calls it, as far as that can be told: a function cannot be turned round."""
        if not isinstance(self.rename, Mapping):
            return saved
        pairs = [_explicit(here, there) for here, there in self.rename.items()]
        return _renamed(saved, [(there, here) for here, there in pairs])

    def check(self, tree: Iterable[str], saved: Iterable[str]) -> None:
        """Refuse selectors and renames that find nothing, given the names on both sides."""
        tree, saved = list(tree), list(saved)
        for selector in self.only:
            if selector != GENERATORS and not any(begins(name, selector) for name in tree):
                _refuse(f"only={selector!r}", selector, "the tree", tree)
        for selector in self.resize:
            if not any(begins(name, selector) for name in tree):
                _refuse(f"resize {selector!r}", selector, "the tree", tree)
        if not isinstance(self.rename, Mapping):
            return
        for here, there in self.rename.items():
            wanted, saved_prefix = _explicit(here, there)
            if not any(begins(name, wanted) for name in tree):
                _refuse(f"rename {here!r}", here, "the tree", tree)
            if not any(begins(name, saved_prefix) for name in saved):
                _refuse(f"rename {here!r} to {there!r}", there, "the checkpoint", saved)


def begins(name: str, beginning: str) -> bool:
    """Whether a name is a beginning, or goes on behind it with a separator; one that ends with a separator wants exactly that."""
    if not beginning or beginning.endswith(_SEPARATORS):
        return name.startswith(beginning) and name != beginning
    return name == beginning or name.startswith((beginning + "/", beginning + "."))


def nearest(wrong: str, names: Iterable[str]) -> list[str]:
    """Names, or beginnings of names, that may have been meant."""
    depth = sum(wrong.count(separator) for separator in _SEPARATORS) + 2
    candidates: dict[str, None] = {}
    for name in names:
        for beginning in _beginnings(name, depth):
            candidates[beginning] = None
        if len(candidates) >= _CANDIDATES_MAX:
            break
    close = get_close_matches(wrong, candidates, n=3, cutoff=0.6)
    roots = dict.fromkeys(name.partition("/")[0] for name in candidates)
    return close or sorted(roots)[:6]


def _beginnings(name: str, depth: int) -> Iterable[str]:
    """The first so many beginnings of a name at its separators, and the name."""
    for at, letter in enumerate(name):
        if letter in _SEPARATORS:
            yield name[:at]
            depth -= 1
            if depth == 0:
                return
    yield name


def _explicit(here: str, there: str) -> tuple[str, str]:
    """A rename with separators on both sides or on neither: joined by ``/`` at the root of a tree, by ``.`` inside of a framework's name."""
    ends = [text.endswith(_SEPARATORS) or not text for text in (here, there)]
    if ends[0] == ends[1]:
        return here, there
    if ends[0]:
        return here, there + (here[-1:] or "/")
    return here + ("." if "/" in here else "/"), there


def _renamed(name: str, pairs: list[tuple[str, str]]) -> str:
    for here, there in sorted(pairs, key=lambda pair: -len(pair[0])):
        if begins(name, here):
            return there + name[len(here) :]
    return name


def _refuse(selector: str, wrong: str, where: str, names: list[str]) -> None:
    raise SelectionEmpty(selector=selector, where=where, nearest=nearest(wrong, names))
