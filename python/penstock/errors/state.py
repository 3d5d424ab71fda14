"""Errors of checkpoints."""

from penstock.errors.root import PenstockError


class StateError(PenstockError):
    """Something about checkpoints."""


class TreeInvalid(StateError):
    """Something in a tree that cannot be saved or loaded."""

    def __init__(self, *, name: str, reason: str, hint: str | None = None) -> None:
        self.name, self.reason, self.hint = name, reason, hint
        super().__init__(f"{name!r} in the tree: {reason}")


class TreeMismatch(StateError):
    """A tree and a checkpoint do not fit together."""

    def __init__(
        self, *, missing: list[str], unexpected: list[str], different: list[str], hint: str = ""
    ) -> None:
        self.missing, self.unexpected, self.different = missing, unexpected, different
        self.hint = hint or "load with strict=False, with only=, or with a rename map"
        lines = [
            *(f"  missing in the checkpoint: {name}" for name in _some(missing)),
            *(f"  unexpected in the checkpoint: {name}" for name in _some(unexpected)),
            *(f"  different: {what}" for what in _some(different)),
        ]
        super().__init__("tree and checkpoint do not fit together\n" + "\n".join(lines))


class SelectionEmpty(StateError):
    """A selector or a rename finds nothing, so loading by it would load nothing."""

    def __init__(self, *, selector: str, where: str, nearest: list[str]) -> None:
        self.selector, self.where, self.nearest = selector, where, nearest
        self.hint = f"the nearest names are {', '.join(nearest)}" if nearest else f"{where} has no names"
        super().__init__(f"{selector} finds nothing in {where}")


def _some(names: list[str], most: int = 12) -> list[str]:
    return names if len(names) <= most else [*names[:most], f"… and {len(names) - most} more"]


class CheckpointDamaged(StateError):
    """Bytes of a checkpoint are not what was saved."""

    exit_code = 1

    def __init__(
        self, *, file: str, reason: str, offset: int = 0, tensor: str = "", piece: int | None = None
    ) -> None:
        self.file, self.reason, self.offset, self.tensor = file, reason, offset, tensor
        #: Its number among those that were read, for the caller to name the tensor.
        self.piece = piece
        of = f" (tensor {tensor})" if tensor else ""
        super().__init__(f"{file} is damaged at byte {offset}{of}: {reason}")


class RecordUnknown(CheckpointDamaged):
    """A record of the log is whole and of a kind, or with a field, that this release does not know."""


class CheckpointUnknown(StateError):
    """There is no such checkpoint."""

    def __init__(self, *, place: str, wanted: str, known: list[int]) -> None:
        self.place, self.wanted, self.known = place, wanted, known
        self.hint = (
            f"known steps are {', '.join(map(str, known[-8:]))}" if known else "nothing is saved there"
        )
        super().__init__(f"there is no checkpoint {wanted} in {place}")


class NothingSaved(CheckpointUnknown):
    """There is no checkpoint at all in a place."""

    exit_code = 1

    def __init__(self, *, place: str) -> None:
        super().__init__(place=place, wanted="at all", known=[])


class NothingLoads(StateError):
    """Checkpoints were committed, and none of them can be loaded."""

    exit_code = 1

    def __init__(self, *, place: str, reasons: dict[str, str]) -> None:
        self.place, self.reasons = place, reasons
        self.hint = (
            f"look with penstock checkpoint verify {place} --all, mend with penstock checkpoint repair {place}; "
            "allow_empty=True begins from nothing all the same"
        )
        lines = _some([f"  {what}: {reason}" for what, reason in reasons.items()])
        super().__init__(f"{place} has checkpoints, and none of them can be loaded\n" + "\n".join(lines))


class CheckpointRetired(StateError):
    """A checkpoint was retired while it was being read."""

    exit_code = 1
    hint = "look again: latest() gives the newest one that is there"

    def __init__(self, *, place: str, step: int, number: int) -> None:
        self.place, self.step, self.number = place, step, number
        super().__init__(f"the checkpoint of step {step} (number {number}) in {place} was retired meanwhile")


class TreeSpoiled(StateError):
    """A tree was filled in part by a load that failed, so what it holds is no state of any step."""

    hint = "load a checkpoint into it, or make the tree anew"

    def __init__(self, *, step: int, reason: str) -> None:
        self.step, self.reason = step, reason
        super().__init__(f"the tree is filled in part with step {step}, whose load failed: {reason}")


class PlaceInUse(StateError):
    """A repair was asked for beside an incarnation that is at work."""

    exit_code = 1
    hint = "stop the run first, or wait until it has ended"

    def __init__(self, *, place: str, incarnation: int) -> None:
        self.place, self.incarnation = place, incarnation
        super().__init__(f"incarnation {incarnation} is at work in {place}")


class ForeignUnusable(StateError):
    """A file of another system cannot be imported."""

    def __init__(self, *, path: str, reason: str, hint: str | None = None) -> None:
        self.path, self.reason, self.hint = path, reason, hint
        super().__init__(f"{path} cannot be imported: {reason}")


class SaveFailed(StateError):
    """A save could not be made durable."""

    exit_code = 1

    def __init__(self, *, step: int, reason: str, hint: str | None = None) -> None:
        self.step, self.reason, self.hint = step, reason, hint
        super().__init__(f"the checkpoint of step {step} was not saved: {reason}")


class RanksDiffer(SaveFailed):
    """Ranks hold different things under one name, where only one can be saved."""

    def __init__(
        self, *, step: int, name: str, ranks: list[int], reason: str, hint: str | None = None
    ) -> None:
        self.name, self.ranks = name, ranks
        super().__init__(step=step, reason=f"{name!r} is not the same on all ranks: {reason}", hint=hint)


class LayoutChanged(StateError):
    """What ranks kept to themselves can only be loaded by as many ranks, in the layout that it was saved in."""

    def __init__(self, *, names: list[str], saved_ranks: int, ranks: int) -> None:
        self.names, self.saved_ranks, self.ranks = names, saved_ranks, ranks
        self.hint = "load with the same ranks and layout, or open Checkpoints with replicas='first' to take those of the first rank"
        now = f"{ranks} ranks load it" if ranks != saved_ranks else "the layout is another one now"
        shown = ", ".join(_some(names))
        super().__init__(f"each of {saved_ranks} ranks saved contents of its own, and {now}: {shown}")


class Fenced(StateError):
    """A newer incarnation of the run has taken over; this one may not write any more."""

    def __init__(self, *, incarnation: int, newer: int | None, place: str) -> None:
        #: ``newer`` is None when a record that cannot be read may have begun one.
        self.incarnation, self.newer, self.place = incarnation, newer, place
        self.hint = (
            f"start the run anew, or mend the place: penstock checkpoint repair {place}"
            if newer is None
            else "end this process: its successor has resumed"
        )
        by = "one that cannot be known, because a record of the log is lost," if newer is None else newer
        super().__init__(f"incarnation {incarnation} was replaced by {by} in {place}")


class IncarnationTaken(StateError):
    """Other processes began the incarnation that this one was told to join."""

    def __init__(self, *, incarnation: int, reason: str, place: str) -> None:
        self.incarnation, self.reason, self.place = incarnation, reason, place
        self.hint = "give every start a higher incarnation=, or none"
        super().__init__(f"incarnation {incarnation} in {place} belongs to other processes: {reason}")


class CommitsUnseen(StateError):
    """Another incarnation committed after this one had loaded its state, and before it put its fence."""

    def __init__(self, *, incarnation: int, steps: list[int], place: str) -> None:
        self.incarnation, self.steps, self.place = incarnation, steps, place
        self.hint = "load the newest checkpoint and go on from there: this state is older"
        shown = ", ".join(_some([str(step) for step in steps]))
        super().__init__(f"{place} has checkpoints that incarnation {incarnation} has not seen: step {shown}")


class ResumeFailed(StateError):
    """A rank could not load for another reason than damage."""

    exit_code = 1

    def __init__(self, *, rank: int, reason: str) -> None:
        self.rank, self.reason = rank, reason
        super().__init__(f"nothing was resumed, because rank {rank} could not load: {reason}")


class RanksMissing(StateError):
    """Ranks did not report before the deadline."""

    exit_code = 1

    def __init__(self, *, what: str, missing: list[int], ranks: int, waited_s: float) -> None:
        self.what, self.missing, self.ranks, self.waited_s = what, missing, ranks, waited_s
        self.hint = "look at the logs of these ranks first"
        shown = ", ".join(_some([str(rank) for rank in missing]))
        super().__init__(f"{what}: after {waited_s:.0f} s nothing was heard of rank {shown} (of {ranks})")


class PlaceNotShared(StateError):
    """A host of a job does not see the place that rank 0 writes to: local disks under one name."""

    exit_code = 1

    def __init__(self, *, host: str, host_rank: int, place: str, waited_s: float) -> None:
        self.host, self.host_rank, self.place, self.waited_s = host, host_rank, place, waited_s
        self.hint = (
            "give a directory on a file system that all hosts share, or an object store (s3://…, gs://…)"
        )
        super().__init__(
            f"host {host} (host rank {host_rank}) does not see in {place} what rank 0 wrote there {waited_s:.0f} s ago"
        )
