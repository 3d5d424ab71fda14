"""Tensors as the state room sees them: which boxes this rank holds, of which type, and how their bytes are moved."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter, call, is_, itemgetter
from typing import Any, NamedTuple
from weakref import ref

import torch
from torch.nn.parameter import is_lazy

from penstock.errors import TreeInvalid
from penstock.state.contract import Held
from penstock.state.load.host_mover import HOST
from penstock.torch.device.cuda import OnDevice, cuda_mover
from penstock.torch.device.mover import SAFETENSORS_NAMES, STRIDED, as_array
from penstock.torch.tree.documents import Tensors
from penstock.torch.tree.layout import Layout, Layouts, Part, is_dtensor, local_of

_PLAIN_KINDS = (torch.Tensor, torch.nn.Parameter)
_PLAIN_DISPATCH = torch.Tensor.__torch_dispatch__
#: How tensors of types that safetensors does not know are looked at as ones that it knows, over the same memory.
_VIEWS = {
    "complex128": "register torch.view_as_real(tensor), which is float64, and view it as complex where it is used",
    "complex32": "register torch.view_as_real(tensor), which is float16, and view it as complex where it is used",
    "float4_e2m1fn_x2": "register tensor.view(torch.uint8) and view it back where it is used",
}


class Leaf(NamedTuple):
    """A tensor of the tree."""

    name: str
    tensor: torch.Tensor
    #: Whether it may change before the next optimizer step.
    restless: bool = False
    #: The type it is stored as, if not its own.
    dtype: str | None = None
    #: The rank whose contents count, where ranks differ by design.
    source: int | None = None
    #: Whether every rank keeps its own: see ``Held.per_rank``.
    per_rank: bool = False


def held_of(name: str, tensor: torch.Tensor, rank: int, ranks: int) -> list[Held]:
    """What this rank holds of a tensor; more than one box only for strided shards."""
    return list(Holder(Findings(rank, ranks)).held(Leaf(name, tensor)))


class Looked(NamedTuple):
    """What was found out about a tensor. It is looked at again when it is another one, or of another type or shape."""

    tensor: "ref[torch.Tensor]"
    #: Type and shape.
    form: tuple[torch.dtype, torch.Size]
    layout: Layout
    #: What was made of it then, and what it was made from: where it was, and what was asked for. It keeps no memory alive.
    boxes: "tuple[Held, ...]" = ()
    place: "_Place | None" = None

    def is_of(self, tensor: torch.Tensor) -> bool:
        """Whether it still holds."""
        return self.tensor() is tensor and self.form == (tensor.dtype, tensor.shape)


#: Address, strides, stream, and all of a leaf but its name and tensor.
_Place = tuple[int, tuple[int, ...], torch.cuda.Stream | None, tuple[Any, ...]]


class Roster(NamedTuple):
    """All tensors of a save, where all of them were plain and lay as they are stored. While none of them has changed, what is held is the same list."""

    #: Of every leaf all but its tensor.
    asked: list[tuple[Any, ...]]
    tensors: "list[ref[torch.Tensor]]"
    #: Type and shape, address, and strides of each.
    forms: list[tuple[torch.dtype, torch.Size]]
    addresses: list[int]
    strides: list[tuple[int, ...]]
    #: Streams that the caller worked on.
    streams: dict[torch.device, torch.cuda.Stream]
    #: Which of them lie in memory of the host.
    host: list[int]
    boxes: list[Held]

    def is_of(self, asked: list[tuple[Any, ...]], tensors: list[torch.Tensor]) -> bool:
        """Whether it still holds. One pass in C for each question, because there may be thousands of tensors and training waits."""
        return (
            self.asked == asked
            and all(map(is_, map(call, self.tensors), tensors))
            and self.forms == list(map(_FORM, tensors))
            and self.addresses == list(map(torch.Tensor.data_ptr, tensors))
            and self.strides == list(map(torch.Tensor.stride, tensors))
        )


_FORM = attrgetter("dtype", "shape")
_ASKED = itemgetter(0, 2, 3, 4, 5)


@dataclass(slots=True)
class Findings:
    """What earlier saves found out about plain tensors, as one of so many ranks: training waits for a save, and most tensors are the same every time."""

    rank: int = 0
    ranks: int = 1
    tensors: dict[str, Looked] = field(default_factory=dict)
    roster: Roster | None = None
    #: The stream that the caller of the last save worked on, by device.
    streams: dict[torch.device, torch.cuda.Stream] = field(default_factory=dict)


class Memory(list[Held]):
    """What is held. Boxes that earlier saves have made keep no memory of the host alive, so this does, as long as it is used."""

    __slots__ = ("_storages",)

    def __init__(self) -> None:
        super().__init__()
        self._storages: list[torch.UntypedStorage] = []

    def keep(self, tensor: torch.Tensor) -> None:
        """Let its memory live as long as this."""
        self._storages.append(tensor.untyped_storage())


class Holder:
    """Makes ``Held`` of tensors. One per save or load: layouts are worked out once, and the stream is the caller's."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._layouts = Layouts(findings.rank, findings.ranks)
        self._streams: dict[torch.device, torch.cuda.Stream] = {}
        self._memory = Memory()

    def all_of(self, leaves: Sequence[Leaf]) -> Memory:
        """The boxes of all tensors; no two of them may have one name."""
        asked, tensors = list(map(_ASKED, leaves)), [leaf.tensor for leaf in leaves]
        roster = self._findings.roster
        if roster is not None and roster.is_of(asked, tensors) and self._is_on(roster.streams):
            for at in roster.host:
                self._memory.keep(tensors[at])
            self._memory += roster.boxes
            return self._memory
        names = Tensors()
        for leaf in leaves:
            names.add(leaf.name, leaf.tensor)
            self._memory += self.held(leaf)
        self._findings.roster = self._roster(asked, tensors)
        return self._memory

    def _is_on(self, streams: dict[torch.device, torch.cuda.Stream]) -> bool:
        """Whether the caller works on the streams that it worked on before."""
        return all(self._stream(device) is stream for device, stream in streams.items())

    def _roster(self, asked: list[tuple[Any, ...]], tensors: list[torch.Tensor]) -> Roster | None:
        looks = [self._findings.tensors.get(about[0]) for about in asked]
        known = [look for look in looks if look is not None and look.place is not None]
        if len(known) < len(asked) or not all(map(is_, (look.tensor() for look in known), tensors)):
            return None
        host = [at for at, tensor in enumerate(tensors) if not tensor.is_cuda]
        return Roster(
            asked,
            [look.tensor for look in known],
            list(map(_FORM, tensors)),
            list(map(torch.Tensor.data_ptr, tensors)),
            list(map(torch.Tensor.stride, tensors)),
            dict(self._streams),
            host,
            [box for look in known for box in look.boxes],
        )

    def held(self, leaf: Leaf) -> Sequence[Held]:
        """The boxes of a tensor, for as long as the program keeps it."""
        tensor = leaf.tensor
        stream = self._stream(tensor.device) if tensor.is_cuda else None
        looked = self._findings.tensors.get(leaf.name)
        if looked is not None and looked.is_of(tensor):
            # The memory is where it was, and the same is asked for.
            if looked.place is not None and looked.place == _place_of(leaf, stream):
                if stream is None:
                    self._memory.keep(tensor)
                return looked.boxes
            layout = looked.layout
        else:
            check(leaf.name, tensor)
            layout = self._layouts.of(leaf.name, tensor)
        if type(tensor) in _PLAIN_KINDS:
            looked = Looked(ref(tensor), (tensor.dtype, tensor.shape), layout)
            if tensor.numel() and (stream is not None or _lies_as_stored(leaf)):
                boxes = self._boxes(leaf, layout, stream, looked.tensor)
                looked = looked._replace(boxes=boxes, place=_place_of(leaf, stream))
            self._findings.tensors[leaf.name] = looked
        return self._boxes(leaf, layout, stream)

    def _boxes(
        self,
        leaf: Leaf,
        layout: Layout,
        stream: torch.cuda.Stream | None,
        owner: "ref[torch.Tensor] | None" = None,
    ) -> tuple[Held, ...]:
        """With an owner they keep no memory alive: boxes that are kept for later saves, of tensors that the program may let go of."""
        local = local_of(leaf.tensor)
        stored = leaf.dtype or SAFETENSORS_NAMES[local.dtype]
        boxes = []
        for part in layout.parts:
            window = _window(local, part)
            mover: Any
            memory: Any
            if stream is not None:
                mover, memory = cuda_mover(window.device), OnDevice.of(window, stream, owner)
            elif stored != SAFETENSORS_NAMES[window.dtype] or not window.is_contiguous():
                mover, memory = STRIDED, window
            else:
                mover, memory = HOST, as_array(window, keep=owner is None)
            boxes.append(
                Held(
                    leaf.name,
                    stored,
                    layout.shape,
                    part.box,
                    mover,
                    memory,
                    layout.replica,
                    layout.replicas,
                    leaf.restless,
                    leaf.source,
                    leaf.per_rank,
                )
            )
        return tuple(boxes)

    def _stream(self, device: torch.device) -> torch.cuda.Stream:
        """The caller's, as the object that the last save knew it by, if it is the same."""
        stream = self._streams.get(device)
        if stream is None:
            known, stream = self._findings.streams.get(device), torch.cuda.current_stream(device)
            if known is not None and known.cuda_stream == stream.cuda_stream:
                stream = known
            self._streams[device] = self._findings.streams[device] = stream
        return stream


def _place_of(leaf: Leaf, stream: torch.cuda.Stream | None) -> _Place:
    return leaf.tensor.data_ptr(), leaf.tensor.stride(), stream, leaf[2:]


def _lies_as_stored(leaf: Leaf) -> bool:
    """Whether its bytes in memory are those that are stored."""
    return leaf.dtype in (None, SAFETENSORS_NAMES[leaf.tensor.dtype]) and leaf.tensor.is_contiguous()


def check(name: str, tensor: torch.Tensor) -> None:
    """Nothing that has no bytes, or bytes that nobody could read again."""
    if is_lazy(tensor):
        raise TreeInvalid(
            name=name, reason="it has no shape yet", hint="run the model once, so that it gets one"
        )
    if tensor.is_meta:
        raise TreeInvalid(name=name, reason="a meta tensor has no contents", hint="module.to_empty(device=…)")
    if tensor.is_nested:
        raise TreeInvalid(
            name=name, reason="a nested tensor has no one shape", hint="save its values and lengths"
        )
    if kind := _foreign_kind(tensor):
        hint = "save its parts: give the module get_extra_state and set_extra_state, or skip= its name"
        raise TreeInvalid(name=name, reason=f"a {kind} is more than its elements", hint=hint)
    if tensor.layout is not torch.strided:
        raise TreeInvalid(name=name, reason=f"its layout is {tensor.layout}", hint="save it as dense tensors")
    if tensor.dtype not in SAFETENSORS_NAMES:
        known = ", ".join(str(dtype).removeprefix("torch.") for dtype in SAFETENSORS_NAMES)
        hint = _VIEWS.get(str(tensor.dtype).removeprefix("torch."), f"there are {known}")
        raise TreeInvalid(name=name, reason=f"{tensor.dtype} cannot be stored", hint=hint)
    if tensor.is_conj() or tensor.is_neg():
        raise TreeInvalid(
            name=name, reason="it is a conjugate view", hint="tensor.resolve_conj().resolve_neg()"
        )
    if not (tensor.is_cpu or tensor.is_cuda):
        raise TreeInvalid(
            name=name, reason=f"nothing moves bytes of {tensor.device}", hint="save a copy on the CPU"
        )


def _foreign_kind(tensor: torch.Tensor) -> str:
    """The class of a tensor that is made of other tensors (torchao's and the like); its own memory, if it has any, is not what it holds."""
    for candidate in {id(part): part for part in (tensor, local_of(tensor))}.values():
        if type(candidate) not in _PLAIN_KINDS and not is_dtensor(candidate) and _is_wrapper(type(candidate)):
            return type(candidate).__name__
    return ""


def _is_wrapper(kind: type) -> bool:
    """Whether a class of tensors decides itself what operations mean."""
    own = getattr(kind, "__torch_dispatch__", _PLAIN_DISPATCH)
    return hasattr(kind, "__tensor_flatten__") or own is not _PLAIN_DISPATCH


def _window(local: torch.Tensor, part: Part) -> torch.Tensor:
    if tuple(local.shape) == part.box.shape:
        return local
    for dim, (at, length) in enumerate(zip(part.at, part.box.shape, strict=True)):
        local = local.narrow(dim, at, length)
    return local
