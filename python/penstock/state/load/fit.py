"""How a tree and a checkpoint fit together: what is filled as it is, what after a change of type or size, and what not at all.

Decided before anything is written, from names, types and shapes alone. ``LoadReport`` is what a reader sees of it; the hints of a refusal
name the option that would have made it fit.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from penstock.errors import TreeInvalid, TreeMismatch, UsageError
from penstock.state.contract import Held
from penstock.state.inspect.dtypes import FLOATS, TARGETS
from penstock.state.inspect.optimizer_moments import moments_of
from penstock.state.load.selection import Wish, begins
from penstock.state.manifest import Manifest, Tensor

#: How a tensor of another size is filled: ``pad`` where the tree's is larger, and what is new keeps what it has; ``crop`` where it is smaller.
RESIZES = ("pad", "crop")
_SHOWN = 20


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What a load did, by names in the tree. ``print`` it after a load that was not strict."""

    #: Tensors that were filled.
    loaded: list[str] = field(default_factory=list)
    #: Those of them that came from another floating-point type, in words.
    cast: list[str] = field(default_factory=list)
    #: Those of them that had another size, in words.
    resized: list[str] = field(default_factory=list)
    #: In the tree and not in the checkpoint: left as they were.
    missing: list[str] = field(default_factory=list)
    #: In the checkpoint and not in the tree, by their names there.
    unexpected: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        """One line per name, the most important first."""
        lines = [f"{len(self.loaded)} tensors loaded"]
        for title, names in (
            ("not in the checkpoint, left as it was", self.missing),
            ("not in the tree, left out", self.unexpected),
            ("another type", self.cast),
            ("another size", self.resized),
        ):
            lines += [f"  {title}: {name}" for name in names[:_SHOWN]]
            if len(names) > _SHOWN:
                lines.append(f"  {title}: … and {len(names) - _SHOWN} more")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Fit:
    """What is to be done."""

    #: Filled byte by byte.
    same: list[Held]
    #: Filled after a change of type or size.
    adapted: list[tuple[Held, Tensor]]
    report: LoadReport


def fit(
    manifest: Manifest,
    held: list[Held],
    values: Mapping[str, str],
    wish: Wish,
    elsewhere: frozenset[str] = frozenset(),
) -> Fit:
    """How they fit; an error where they do not, or where strictness asks for more. ``values`` are names here with names there.

    Names ``elsewhere`` may be in the trees of other ranks, so this one may lack them.
    """
    report = LoadReport()
    different: list[tuple[Held, Tensor]] = []
    result = Fit([], [], report)
    resized = resizes(manifest, wish)
    for tensor in held:
        saved = manifest.tensors.get(wish.saved_as(tensor.name))
        if saved is None:
            report.missing.append(tensor.name)
        elif (saved.dtype, saved.shape) == (tensor.dtype, tuple(tensor.shape)):
            result.same.append(tensor)
            report.loaded.append(tensor.name)
        elif _can_adapt(tensor, saved, wish, resized.get(tensor.name)):
            result.adapted.append((tensor, saved))
            report.loaded.append(tensor.name)
            if saved.dtype != tensor.dtype:
                report.cast.append(f"{tensor.name} from {saved.dtype} to {tensor.dtype}")
            if saved.shape != tuple(tensor.shape):
                report.resized.append(f"{tensor.name} from {list(saved.shape)} to {list(tensor.shape)}")
        else:
            different.append((tensor, saved))
    report.missing.extend(name for name, saved in values.items() if saved not in manifest.values)
    known = {wish.saved_as(own.name) for own in held} | set(values.values()) | elsewhere
    if not wish.only:
        report.unexpected.extend(n for n in [*manifest.tensors, *manifest.values] if n not in known)
    for names in (report.loaded, report.cast, report.resized, report.missing, report.unexpected):
        names[:] = sorted(set(names))
    nothing = bool(held and manifest.tensors and not report.loaded)
    if different or nothing or (wish.strict and (report.missing or report.unexpected)):
        _refuse(report, different, tell_names=wish.strict or nothing)
    return result


def resizes(manifest: Manifest, wish: Wish) -> dict[str, str]:
    """How tensors are resized, by their names in the tree: what was asked for, and the moments of such parameters with them."""
    if not wish.resize:
        return {}
    for mode in wish.resize.values():
        if mode not in RESIZES:
            raise UsageError(
                f"resize must be a known mode, got {mode!r}", hint=f"one of {', '.join(RESIZES)}"
            )
    modes = {}
    moments = moments_of(manifest.tensors)
    for saved in manifest.tensors:
        parameter = moments.get(saved, saved)
        for beginning, mode in wish.resize.items():
            if begins(wish.known_as(parameter), beginning) or begins(wish.known_as(saved), beginning):
                modes[wish.known_as(saved)] = mode
    return modes


def resized_kinds(
    manifest: Manifest, held: Iterable[Held], wish: Wish
) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Types and shapes of what was saved, by names in the tree, with sizes as the tree will have them: it makes room by these."""
    kinds = {wish.known_as(name): (tensor.dtype, tensor.shape) for name, tensor in manifest.tensors.items()}
    modes = resizes(manifest, wish)
    if not modes:
        return kinds
    here = {tensor.name: tuple(tensor.shape) for tensor in held}
    parameters = {
        wish.known_as(moment): wish.known_as(name) for moment, name in moments_of(manifest.tensors).items()
    }
    for name in modes:
        dtype, shape = kinds[name]
        parameter = parameters.get(name)
        if parameter is None or parameter not in here:
            kinds[name] = (dtype, here.get(name, shape))
        elif shape == kinds_shape(manifest, parameter, wish):
            kinds[name] = (dtype, here[parameter])
        elif shape and here[parameter] != kinds_shape(manifest, parameter, wish):
            reason = f"{list(shape)} of a parameter that is resized to {list(here[parameter])}"
            raise TreeInvalid(
                name=name, reason=reason, hint='load only="model" and begin with a new optimizer'
            )
    return kinds


def kinds_shape(manifest: Manifest, name: str, wish: Wish) -> tuple[int, ...] | None:
    """The shape that a tensor of the tree has in the checkpoint."""
    saved = manifest.tensors.get(wish.saved_as(name))
    return None if saved is None else saved.shape


def _can_adapt(tensor: Held, saved: Tensor, wish: Wish, resize: str | None) -> bool:
    if saved.dtype != tensor.dtype and not (wish.cast and _are_floats(tensor, saved)):
        return False
    shape = tuple(tensor.shape)
    if saved.shape == shape:
        return True
    if resize is None or len(saved.shape) != len(shape):
        return False
    sizes = zip(shape, saved.shape, strict=True)
    return all((here >= there) if resize == "pad" else (here <= there) for here, there in sizes)


def _are_floats(tensor: Held, saved: Tensor) -> bool:
    return saved.dtype in FLOATS and tensor.dtype in TARGETS


def _refuse(report: LoadReport, different: list[tuple[Held, Tensor]], *, tell_names: bool) -> None:
    missing = report.missing if tell_names else []
    unexpected = report.unexpected if tell_names else []
    raise TreeMismatch(
        missing=missing,
        unexpected=unexpected,
        different=[
            f"{tensor.name} is {tensor.dtype} {list(tensor.shape)}, saved was {saved.dtype} {list(saved.shape)}"
            for tensor, saved in different
        ],
        hint="; ".join(_hints(missing, unexpected, different)),
    )


def _hints(missing: list[str], unexpected: list[str], different: list[tuple[Held, Tensor]]) -> Iterable[str]:
    other_types = [(own, saved) for own, saved in different if saved.dtype != own.dtype]
    fixed = [(own, saved) for own, saved in other_types if not _are_floats(own, saved)]
    if len(fixed) < len(other_types):
        yield "cast=True converts floating-point types"
    if fixed:
        own, saved = fixed[0]
        yield f"make {own.name!r} {saved.dtype}, which is not converted, or leave it out with only="
    for tensor, saved in different:
        if saved.shape != tuple(tensor.shape) and len(saved.shape) == len(tensor.shape):
            larger = all(here >= there for here, there in zip(tensor.shape, saved.shape, strict=True))
            yield f"resize={{{tensor.name!r}: {'pad' if larger else 'crop'!r}}} fills what both have"
            break
    if (pair := _suggested(missing, unexpected)) is not None:
        yield f"rename={{{pair[0]!r}: {pair[1]!r}}} maps the tree's names to the checkpoint's"
    elif missing or unexpected:
        yield "strict=False leaves these alone (then print(checkpoints.report)); only= loads a part of the tree"
    elif not different:
        yield "is it a checkpoint of this model?"


def _suggested(missing: list[str], unexpected: list[str]) -> tuple[str, str] | None:
    """A rename of beginnings that would find every missing name among the unexpected ones."""
    if not missing or not unexpected:
        return None
    first, there = missing[0], set(unexpected)
    for start in [0, *(at + 1 for at, letter in enumerate(first) if letter in "/.")]:
        tail = first[start:]
        for candidate in unexpected:
            if not candidate.endswith(tail) or candidate[: -len(tail)][-1:] not in ("/", ".", ""):
                continue
            here, saved_prefix = first[:start], candidate[: -len(tail)]
            if here != saved_prefix and all(
                name.startswith(here) and saved_prefix + name[len(here) :] in there for name in missing
            ):
                return here, saved_prefix
    return None
