"""What a rank finds in a checkpoint: what all ranks share, its own contents where ranks kept theirs, and none of what only others had."""

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from penstock.errors import LayoutChanged
from penstock.state.contract import Held
from penstock.state.manifest import Manifest


class View:
    """A manifest as one rank sees it.

    On the layout that it was saved in, ``manifest`` has this rank's own contents where ranks kept theirs. On any other one, and with
    ``first``, it has those of the first rank, and what only single ranks had (``Held.per_rank``) is left out; ``check`` refuses that unless
    ``first`` allows it.
    """

    def __init__(self, saved: Manifest, rank: int, ranks: int, *, first: bool) -> None:
        self._saved, self._rank, self._ranks, self._first = saved, rank, ranks, first
        partial = {name: entry.ranks for entry in saved.partial for name in entry.names}
        #: Names that this rank need not have, because others do.
        self.elsewhere: frozenset[str] = frozenset()
        self.manifest = saved
        if ranks == saved.ranks:
            theirs = {name for name, having in partial.items() if rank not in having}
            tensors = {name: tensor for name, tensor in saved.tensors.items() if name not in theirs}
            values = {name: value for name, value in saved.values.items() if name not in theirs}
            if saved.own and not first:
                tensors |= saved.own[rank].tensors
                values |= saved.own[rank].values
            self.manifest = replace(saved, tensors=tensors, values=values)
        elif ranks > 1:
            self.elsewhere = frozenset(partial)

    def check(
        self, held: Sequence[Held], saved_as: Callable[[str], str], wanted: Callable[[str], bool]
    ) -> None:
        """Refuse contents of single ranks in another layout. ``wanted`` is asked about names in the checkpoint."""
        names = [] if self._first else [name for name in self._saved.kept_apart if wanted(name)]
        if not names or self._fits({saved_as(tensor.name): tensor for tensor in held}):
            return
        raise LayoutChanged(names=names, saved_ranks=self._saved.ranks, ranks=self._ranks)

    def _fits(self, held: Mapping[str, Held]) -> bool:
        """Whether this is the layout that was saved, as far as boxes tell it."""
        if self._ranks != self._saved.ranks:
            return False
        own = self._saved.own[self._rank]
        noted = all(
            (held[name].box.offset, held[name].box.shape) == box
            for name, box in own.boxes.items()
            if name in held
        )
        return noted and all(
            held[name].box in [piece.box for piece in tensor.pieces]
            for name, tensor in own.tensors.items()
            if name in held
        )
