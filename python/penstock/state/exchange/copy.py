"""A checkpoint as the source of another: a copy in a place of its own that refers to nothing else."""

from collections.abc import Sequence

from penstock.errors import UsageError
from penstock.state.checkpoint import Checkpoint
from penstock.state.exchange.foreign_form import Incoming, Wanted
from penstock.state.exchange.intake import Imported, Name, import_state
from penstock.state.inspect.piece_reader import Reader, ReadSpan
from penstock.state.inspect.statistics import Tell
from penstock.store import Store


class CheckpointSource:
    """The pieces of a checkpoint, each chunk checked when it is read."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        if apart := checkpoint.manifest.kept_apart:
            raise UsageError(
                f"each of {checkpoint.manifest.ranks} ranks has contents of its own in this checkpoint: {', '.join(apart[:8])}",
                hint="copy the whole place, file by file",
            )
        self._reader = Reader(checkpoint.manifest, checkpoint.store)
        self.values = checkpoint.manifest.values
        self.entries = checkpoint.manifest.entries
        self.left_out: list[str] = []

    def incoming(self) -> list[Incoming]:
        """Every piece."""
        return [
            Incoming(name, tensor.dtype, tuple(tensor.shape), piece.box, None)
            for name, tensor in self._reader.manifest.tensors.items()
            for piece in tensor.pieces
        ]

    def fill(self, wanted: Sequence[Wanted]) -> None:
        """Read parts of pieces, all at once."""
        tensors = self._reader.manifest.tensors
        parts = [
            ReadSpan(
                request.incoming.name, tensors[request.incoming.name], 0, len(request.memory), box=request.box
            )
            for request in wanted
        ]
        self._reader.fill(parts, [request.memory for request in wanted])


def copy_checkpoint(
    checkpoint: Checkpoint, store: Store, *, force: bool = False, tell: Tell = lambda done, total: None
) -> Imported:
    """Make the same checkpoint in another place, with everything that it refers to."""
    name = Name(checkpoint.step, checkpoint.manifest.run, checkpoint.metrics)
    return import_state(CheckpointSource(checkpoint), store, name, force=force, tell=tell)
