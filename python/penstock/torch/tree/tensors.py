"""Tensors as the state room sees them: which boxes this rank holds, of which type, and how their bytes are moved."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from weakref import ref

import torch
from torch.nn.parameter import is_lazy

from penstock.errors import TreeInvalid
from penstock.state.contract import Held
from penstock.state.load.host_mover import HOST
from penstock.torch.device.cuda import OnDevice, cuda_mover
from penstock.torch.device.mover import SAFETENSORS_NAMES, STRIDED, as_array
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
    return list(Holder(rank, ranks).held(Leaf(name, tensor)))


@dataclass(frozen=True, slots=True)
class Looked:
    """What was found out about a tensor. It is looked at again when it is another one, or of another type or shape."""

    tensor: "ref[torch.Tensor]"
    dtype: torch.dtype
    shape: torch.Size
    layout: Layout
    #: What was made of it then, on a device, and what it was made from.
    boxes: "tuple[Held, ...]" = ()
    leaf: tuple[Any, ...] = ()
    address: int = 0
    strides: tuple[int, ...] = ()
    stream: torch.cuda.Stream | None = None

    def is_of(self, tensor: torch.Tensor) -> bool:
        """Whether it still holds."""
        return self.tensor() is tensor and self.dtype is tensor.dtype and self.shape == tensor.shape

    def has_boxes(self, leaf: Leaf, stream: torch.cuda.Stream | None) -> bool:
        """Whether the boxes still hold, of a tensor that it is of: the memory is where it was, and the same is asked for."""
        tensor = leaf.tensor
        return (
            bool(self.boxes)
            and self.stream is stream
            and self.address == tensor.data_ptr()
            and self.strides == tensor.stride()
            and self.leaf == _asked(leaf)
        )


@dataclass(slots=True)
class Findings:
    """What earlier saves found out about plain tensors, as one of so many ranks: training waits for a save, and most tensors are the same every time."""

    rank: int = 0
    ranks: int = 1
    tensors: dict[str, Looked] = field(default_factory=dict)
    #: The stream that the caller of the last save worked on, by device.
    streams: dict[torch.device, torch.cuda.Stream] = field(default_factory=dict)


class Holder:
    """Makes ``Held`` of tensors. One per save or load: layouts are worked out once, and the stream is the caller's."""

    def __init__(self, rank: int, ranks: int, findings: Findings | None = None) -> None:
        self._findings = Findings(rank, ranks) if findings is None else findings
        self._layouts = Layouts(rank, ranks)
        self._streams: dict[torch.device, torch.cuda.Stream] = {}

    def held(self, leaf: Leaf) -> Sequence[Held]:
        """The boxes of a tensor."""
        tensor = leaf.tensor
        stream = self._stream(tensor.device) if tensor.is_cuda else None
        looked = self._findings.tensors.get(leaf.name)
        if looked is not None and looked.is_of(tensor):
            if looked.has_boxes(leaf, stream):
                return looked.boxes
            layout = looked.layout
        else:
            check(leaf.name, tensor)
            layout, looked = self._layouts.of(leaf.name, tensor), None
        if type(tensor) in _PLAIN_KINDS:
            if stream is not None and tensor.numel():
                boxes = self._boxes(leaf, layout, stream, ref(tensor))
                place = (tensor.data_ptr(), tensor.stride(), stream)
                looked = Looked(ref(tensor), tensor.dtype, tensor.shape, layout, boxes, _asked(leaf), *place)
            self._findings.tensors[leaf.name] = looked or Looked(
                ref(tensor), tensor.dtype, tensor.shape, layout
            )
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
                mover, memory = HOST, as_array(window)
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


def _asked(leaf: Leaf) -> tuple[Any, ...]:
    return leaf.dtype, leaf.restless, leaf.source, leaf.per_rank


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
