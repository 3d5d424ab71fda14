"""What a training run resumes from, as a tree that knows its own parts: model, optimizer, schedule, random generators."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Unpack

import torch
from torch import distributed, nn
from torch.optim import Optimizer

from penstock.data import Feed, Lane
from penstock.data.feed.options import BatchKeywords
from penstock.errors import TreeInvalid, UsageError
from penstock.observe.steps import StepRecorder
from penstock.state.contract import Copying, Held
from penstock.state.inspect.fingerprint import fingerprint
from penstock.torch import determinism, gang, randomness
from penstock.torch.device.guards import guard_before_change, settle
from penstock.torch.device.marks import marks_of, memory_of
from penstock.torch.device.mover import TORCH_TYPES
from penstock.torch.device.readback import readback
from penstock.torch.device.timer import DeviceTimer
from penstock.torch.lane import lane_of_model
from penstock.torch.loader import Loader, loader
from penstock.torch.outsiders import Outsiders, unscheduled
from penstock.torch.step_hooks import StepHooks
from penstock.torch.tree import buffer_sync, gradients
from penstock.torch.tree.documents import Document, Tensors, decode, encode, escaped, tensor_names
from penstock.torch.tree.extra import Extra
from penstock.torch.tree.modes import Modes
from penstock.torch.tree.names import Names, names_of
from penstock.torch.tree.optimizers import GROUPS, Kinds, Optimizing, with_inner
from penstock.torch.tree.step_count import progress_of
from penstock.torch.tree.tensors import Findings, Holder, Leaf
from penstock.torch.tree.unheld import Unheld
from penstock.torch.tree.variables import Variables

TIED = "tied"


class State:
    """The tree that ``state`` makes. It satisfies ``penstock.state.contract.Tree``."""

    def __init__(
        self,
        model: nn.Module,
        optimizers: Sequence[Optimizer],
        extra: Extra,
        dtype: torch.dtype | Mapping[str, torch.dtype] | None,
        skip: Sequence[str],
        lane: Lane | None = None,
    ) -> None:
        self.model = model
        #: As the program has them, wrappers and all; and what has the state.
        self._given, self.optimizers = tuple(optimizers), with_inner(optimizers)
        self._extra = extra
        self._dtype = dtype
        self._skip = tuple(skip)
        self._lane = lane
        #: While loading: the documents, the tensors inside of them, and gradients, if the checkpoint decides about them.
        self._incoming: dict[str, Any] = {}
        self._rooms: dict[str, torch.Tensor] = {}
        self._findings = Findings()
        self._gradients: dict[str, torch.Tensor] | None = None
        #: Gradients that were zero when what is held was last asked for.
        self._zeros: list[str] = []
        self._unheld = Unheld({"model/": model, **extra.modules()}, self.optimizers)
        self._modes = Modes(model, self.optimizers)
        self._outsiders = Outsiders(model, self.optimizers)
        self._variables = Variables(model, self._parts, self._tensors)
        self._variables.begin()
        self._told: set[str] = set()

    @property
    def rank(self) -> int:
        """Of this process in the default group."""
        return distributed.get_rank() if _is_distributed() else 0

    @property
    def ranks(self) -> int:
        """Processes in the default group."""
        return distributed.get_world_size() if _is_distributed() else 1

    def held(self) -> list[Held]:
        """Every tensor, as far as this rank holds it."""
        names = names_of(self.model)
        inside = Tensors()
        for name, document in self._owned(names).items():
            encode(name, document.read(), inside.add)
        if (self._findings.rank, self._findings.ranks) != (self.rank, self.ranks):
            self._findings = Findings(self.rank, self.ranks)
        return self._held(names, inside, {}, self._pending(names), self._findings)

    def values(self) -> dict[str, Any]:
        """Groups of parameters, state that is no tensor, and documents."""
        names = names_of(self.model)
        values: dict[str, Any] = {TIED: names.tied}
        if self.optimizers:
            values |= self._optimizing(names).values()
        for name, document in self._owned(names).items():
            values[name] = encode(name, document.read(), lambda *_: None)
        return {name: value for name, value in values.items() if self._wants(name)}

    def room_for(self, tensors: Kinds, values: Mapping[str, Any]) -> list[Held]:
        """What a checkpoint with these tensors and values is loaded into; what is not there yet is made."""
        for owner in self._owners():
            settle(owner)
        names = names_of(self.model)
        tensors = {name: kind for name, kind in tensors.items() if self._wants(name)}
        values = {name: value for name, value in values.items() if self._wants(name)}
        if self.optimizers:
            self._optimizing(names).make_room(tensors, values)
        self._rooms = {}
        for name, document in self._owned(names).items():
            if name in values:
                self._rooms |= _rooms(name, document, tensors, values[name])
        self._gradients = None
        if GROUPS in values and self._wants(gradients.ROOT):
            self._gradients = gradients.Gradients(self.optimizers, names.of).rooms(tensors)
        dtypes = {name: dtype for name, (dtype, _) in tensors.items()}
        return self._held(names, self._rooms, dtypes, self._gradients or {}, Findings(self.rank, self.ranks))

    def load_values(self, values: dict[str, Any]) -> None:
        """Take values back; documents are given to their owners when their tensors are there."""
        names = names_of(self.model)
        values = {name: value for name, value in values.items() if self._wants(name)}
        if TIED in values and values[TIED] != names.tied:
            reason = f"tied when saved: {values[TIED] or 'nothing'}, tied now: {names.tied or 'nothing'}"
            raise TreeInvalid(
                name=TIED, reason=reason, hint="tie the weights as they were, or skip=('tied',)"
            )
        if self.optimizers:
            optimizing = self._optimizing(names)
            optimizing.load_groups(values.get(GROUPS, ()))
            optimizing.load_values(values)
        self._incoming = {name: values[name] for name in self._owned(names) if name in values}

    def loaded(self) -> None:
        """Give documents to their owners."""
        names = names_of(self.model)
        owned = self._owned(names)
        for name, document in self._incoming.items():
            owned[name].write(decode(document, self._room))
        if self._gradients is not None:
            gradients.Gradients(self.optimizers, names.of).put(self._gradients)
        self._incoming, self._rooms, self._gradients = {}, {}, None
        self.begin()

    def begin(self) -> None:
        """Training begins, or goes on from what was loaded: what the program has in its variables now, it makes anew in every life."""
        self._variables.begin()

    def entries(self) -> dict[str, Any]:
        """The random generators of this rank, whether its buffers stay its own, and which of its gradients are zero."""
        entries: dict[str, Any] = {randomness.ENTRY: randomness.capture()} if self._wants("rng") else {}
        entries |= buffer_sync.entry_of(self.model, self.ranks)
        return {**entries, gradients.ENTRY: {"zeros": self._zeros}} if self._zeros else entries

    def load_entries(self, entries: dict[str, Any]) -> None:
        """Put the random generators back, what becomes of buffers, and gradients that were zero."""
        buffer_sync.load(self.model, entries, self.ranks)
        if gradients.ENTRY in entries and self._wants(gradients.ROOT):
            zeros = entries[gradients.ENTRY]["zeros"]
            gradients.Gradients(self.optimizers, names_of(self.model).of).put_zeros(zeros)
        if randomness.ENTRY in entries and self._wants("rng"):
            randomness.restore(entries[randomness.ENTRY])

    def on_save(self, copying: Copying) -> None:
        """The next optimizer step waits for the copies. Who trains without one cannot be waited for, so the copies are."""
        if not self.optimizers:
            copying.guard()
        for owner in self._owners():
            guard_before_change(owner, copying)
        carried = self._variables.on_save()
        for text in (*self._unpinned(), *carried.words(surely=True)):
            if text not in self._told:
                self._told.add(text)
                warnings.warn(text, stacklevel=4)

    def unpinned(self) -> tuple[str, ...]:
        """What has changed since the state was made and is not part of it, in words: a resume does not bring it back."""
        return (*self._unpinned(), *self._variables.carried().words())

    def _unpinned(self) -> tuple[str, ...]:
        """Of the state's own parts, and of what trains them."""
        outsiders: tuple[str, ...] = ()
        if self._wants("optimizer"):
            extra = self._extra.values()
            outsiders = (*self._outsiders.named(extra), *unscheduled(self.optimizers, extra))
        of_gradients = gradients.unowned(self.model, self.optimizers)
        counted = gradients.counted_elsewhere(self._given)
        changed = (*self._unheld.changed(), *self._modes.changed())
        return (*changed, *of_gradients, *counted, *outsiders, *randomness.kept_by_cudnn(self.model))

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        parameter = next(iter(self.model.parameters()), None)
        return torch.device("cpu") if parameter is None else parameter.device

    @property
    def device_name(self) -> str:
        """What its driver calls it."""
        return torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else "processor"

    @property
    def deferred(self) -> bool:
        """Whether a loss is ready only later."""
        return self.device.type != "cpu"

    def lane_of(self, **wanted: Unpack[BatchKeywords]) -> Lane:
        """The lane that was given, or the one that the model's mesh says, or one per rank."""
        return lane_of_model(self.model) if self._lane is None else self._lane

    def batches(self, feed: Feed, **wanted: Unpack[BatchKeywords]) -> Loader:
        """Batches of tensors, where the model is."""
        keywords: dict[str, Any] = {"device": self.device, **wanted}
        return loader(feed, **keywords)

    def agree(self, values: Sequence[float]) -> list[list[float]]:
        """The values of every rank, in the order of ranks."""
        return gang.agree(values)

    def share(self, document: bytes) -> bytes:
        """What rank 0 has given."""
        return gang.share(document)

    def to_host(self, value: Any) -> Any:
        """A value on its way to the host; looking at it waits for nothing that is launched later."""
        return readback(value)

    def optimizer_progress(self) -> tuple[int, Sequence[Any]] | None:
        """How many steps the optimizers have taken since the first question, and a sign for each gradient."""
        return progress_of(self.optimizers) if self.optimizers else None

    def observe(self, recorder: StepRecorder) -> StepHooks:
        """Tell a recorder about forward, backward and optimizer, until what is returned is closed."""
        if self.device.type == "cuda":
            recorder.memory = partial(memory_of, self.device)
        return StepHooks(self.model, self.optimizers, recorder, marks_of(self.device, recorder))

    def exchange(self, document: bytes) -> list[bytes]:
        """What every rank has given, in the order of ranks."""
        return gang.exchange(document)

    def seed(self, number: int) -> None:
        """Set PyTorch's global generators."""
        determinism.seed(number)

    def generator(self, number: int) -> torch.Generator:
        """A generator of its own, where the model is."""
        return determinism.generator(number, self.device)

    def standing(self) -> dict[str, int]:
        """Where PyTorch's global generators stand, and its number of threads, which decides bits as well."""
        return determinism.standing(self.device)

    def digest(self) -> bytes:
        """16 bytes that follow from every tensor that this rank holds, pending gradients aside."""
        return fingerprint([held for held in self.held() if not held.name.startswith(f"{gradients.ROOT}/")])

    def timer(self) -> DeviceTimer | None:
        """CUDA events; nothing on the CPU, where the host does the work."""
        return DeviceTimer(self.device) if self.device.type == "cuda" else None

    def _pending(self, names: Names) -> dict[str, torch.Tensor]:
        """Gradients that are state now; those that are zero are only named."""
        self._zeros = []
        if not self.optimizers or not self._wants(gradients.ROOT):
            return {}
        gradients.refuse_outside(self.model)
        known = gradients.Gradients(self.optimizers, names.of)
        pending = known.pending()
        zeros = gradients.zeros_among(pending)
        self._zeros = zeros + known.reused()
        return {name: tensor for name, tensor in pending.items() if name not in zeros}

    def _held(
        self,
        names: Names,
        inside: Mapping[str, torch.Tensor],
        dtypes: Mapping[str, str],
        pending: Mapping[str, torch.Tensor],
        findings: Findings,
    ) -> list[Held]:
        """What is held: tensors of the model and the optimizers, those inside of documents, and pending gradients."""
        own = [Leaf(name, tensor, restless=True, per_rank=True) for name, tensor in pending.items()]
        leaves = [*self._leaves(names, dtypes), *_leaves_inside(inside), *own]
        wanted = [leaf for leaf in leaves if self._wants(leaf.name)] if self._skip else leaves
        return Holder(findings).all_of(wanted)

    def _leaves(self, names: Names, dtypes: Mapping[str, str]) -> Iterator[Leaf]:
        for name, tensor in names.parameters.items():
            yield Leaf(f"model/{escaped(name)}", tensor)
        for name, tensor in names.buffers.items():
            yield Leaf(f"model/{escaped(name)}", tensor, restless=True, source=names.sources.get(name))
        if self.optimizers:
            optimizing = self._optimizing(names)
            for name, tensor in optimizing.tensors():
                stored = optimizing.stored_as(name, tensor)
                yield Leaf(
                    name, tensor, False, _loaded_as(dtypes[name], tensor) if name in dtypes else stored
                )
        for name, tensor in self._extra.tensors().items():
            yield Leaf(name, tensor, restless=True)

    def _parts(self) -> Iterator[Any]:
        """Objects that the state has."""
        yield from (self, self.model, *self._given, *self.optimizers, *self._extra.parts())
        for optimizer in self.optimizers:
            yield from (
                optimizer.state,
                *optimizer.state.values(),
                optimizer.param_groups,
                *optimizer.param_groups,
            )

    def _tensors(self) -> Iterator[torch.Tensor]:
        """Tensors that the state has, and gradients."""
        for module in self.model.modules():
            for parameter in module._parameters.values():
                if parameter is not None:
                    yield parameter
                    if parameter.grad is not None:
                        yield parameter.grad
            yield from (buffer for buffer in module._buffers.values() if buffer is not None)
        for optimizer in self.optimizers:
            for kept in optimizer.state.values():
                values = kept.values() if isinstance(kept, dict) else [kept]
                yield from (value for value in values if isinstance(value, torch.Tensor))

    def _owners(self) -> tuple[nn.Module | Optimizer, ...]:
        return (self.model, *self.optimizers)

    def _owned(self, names: Names) -> dict[str, Document]:
        """Every document, those of modules too."""
        modules = {
            f"model/{escaped(name)}": Document(module.get_extra_state, module.set_extra_state)
            for name, module in names.extras.items()
        }
        optimizers = self._optimizing(names).documents() if self.optimizers else {}
        documents = {**modules, **self._extra.documents(), **optimizers}
        return {name: document for name, document in documents.items() if self._wants(name)}

    def _optimizing(self, names: Names) -> Optimizing:
        return Optimizing(self.optimizers, names.of, self._dtype)

    def _room(self, name: str) -> torch.Tensor:
        if name not in self._rooms:
            raise TreeInvalid(name=name, reason="there was no room for this tensor of a document")
        return self._rooms[name]

    def _wants(self, name: str) -> bool:
        return not self._skip or not any(
            name == part or name.startswith((f"{part}/", f"{part}.")) for part in self._skip
        )


def state(
    model: nn.Module,
    optimizer: Optimizer | Sequence[Optimizer] | None = None,
    *,
    scheduler: Any = None,
    extra: dict[str, Any] | None = None,
    optimizer_dtype: torch.dtype | Mapping[str, torch.dtype] | None = None,
    skip: Sequence[str] = (),
    lane: Lane | None = None,
) -> State:
    """Everything that a run resumes from, for ``ps.Checkpoints``: any layout (FSDP2, tensor parallel, DDP, one process) loads any other.

    ``optimizer``: one or several, always in the same order. ``extra``: more by name: objects with ``state_dict`` and ``load_state_dict``, tensors, dicts
    and lists (filled in place), generators, or plain values (put back into this dict). ``optimizer_dtype``: the type that the optimizer's floating-point tensors are stored as, or one by key, such as
    ``{"exp_avg": torch.bfloat16}``. ``skip``: beginnings of names to leave out: ``"optimizer"``, ``"model/vision"``, ``"rng"``. Tensors that are not DTensors
    are equal on all ranks that have them; small ones that differ are kept per rank. ``lane``: of a run's batches, where the names of the mesh do not say it.
    """
    if isinstance(skip, str):
        raise UsageError(
            f"skip must be a tuple of names, got the text {skip!r}", hint=f"give a tuple: ({skip!r},)"
        )
    optimizers = [optimizer] if isinstance(optimizer, Optimizer) else list(optimizer or ())
    return State(model, optimizers, Extra(extra, scheduler), optimizer_dtype, skip, lane)


def _leaves_inside(tensors: Mapping[str, torch.Tensor]) -> Iterator[Leaf]:
    for name, tensor in tensors.items():
        # Parameters of another module, such as an average of the model, change after the optimizer step.
        yield Leaf(name, tensor, restless=not isinstance(tensor, nn.Parameter))


def _rooms(name: str, document: Document, tensors: Kinds, saved: Any) -> dict[str, torch.Tensor]:
    """The tensors that a saved document is filled into: those that its owner has, where they fit, else new ones."""
    live = Tensors()
    encode(name, document.read(), live.add)
    rooms = {}
    for inside in tensor_names(saved):
        if inside not in tensors:
            raise TreeInvalid(name=inside, reason=f"{name} refers to it, but it is not loaded")
        dtype, shape = TORCH_TYPES[tensors[inside][0]], tuple(tensors[inside][1])
        old = live.get(inside)
        fits = old is not None and old.dtype == dtype and tuple(old.shape) == shape
        rooms[inside] = old if old is not None and fits else torch.zeros(shape, dtype=dtype)
    return rooms


def _loaded_as(dtype: str, tensor: torch.Tensor) -> str | None:
    """The type that the checkpoint has, where the optimizer's differs and both are of floating point."""
    known = TORCH_TYPES.get(dtype)
    return dtype if known is not None and known.is_floating_point and tensor.is_floating_point() else None


def _is_distributed() -> bool:
    return distributed.is_available() and distributed.is_initialized()
