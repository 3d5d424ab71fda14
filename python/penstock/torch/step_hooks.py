"""Forward, backward and optimizer as parts of a step, seen from outside: the program says nothing about them.

Hooks of the model and its optimizers, and wrappers around ``torch.autograd.backward``, which every ``loss.backward()`` calls, and ``torch.autograd.grad``. A model that is compiled is
hooked where it is called, outside of what is compiled: hooks inside would be traced once and never called again. Nothing here touches a tensor (O8).
"""

import gc
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import wraps

import torch
from torch import nn
from torch.optim import Optimizer

from penstock.observe.steps import StepRecorder
from penstock.torch.compile_watch import CompileWatch
from penstock.torch.device.marks import DeviceMarks

#: Wrappers around a model that are looked through to see whether it is theirs.
_WRAPS_MAX = 8


class StepHooks:
    """From the beginning of a loop until ``close``. Only the loop's own thread counts."""

    def __init__(
        self,
        model: nn.Module,
        optimizers: Sequence[Optimizer],
        recorder: StepRecorder,
        marks: DeviceMarks | None,
    ) -> None:
        self._recorder, self._marks = recorder, marks
        self._compiles = CompileWatch(recorder)
        #: Parts that are open, innermost last, and how often each was entered again inside of itself.
        self._open: list[str] = []
        self._again: Counter[str] = Counter()
        self._undo: list[Callable[[], object]] = []
        self._is_closed = False
        for called in _called(model):
            for module in (called, *_compiled_around(called)):
                self._hook_module(module)
        for optimizer in optimizers:
            pre = optimizer.register_step_pre_hook(lambda *_: self.enter("optimizer"))
            post = optimizer.register_step_post_hook(lambda *_: self.leave("optimizer"))
            self._undo += [pre.remove, post.remove]
        for name in ("backward", "grad"):
            self._hook_gradients(name)

    def enter(self, part: str) -> None:
        """A part begins. Inside of itself, inside of an evaluation, in other threads and while a compiler traces it is nothing new."""
        if torch.compiler.is_compiling() or self._is_closed or threading.get_ident() != self._recorder.thread:
            return
        if part in self._open:
            self._again[part] += 1
            return
        if self._recorder.is_evaluating():
            return
        self._open.append(part)
        self._recorder.enter(part)
        if self._marks is not None:
            self._marks.mark(part)

    def leave(self, part: str) -> None:
        """It ends."""
        if torch.compiler.is_compiling() or self._is_closed or threading.get_ident() != self._recorder.thread:
            return
        if not self._open or self._open[-1] != part:
            return
        if self._again[part]:
            self._again[part] -= 1
            return
        self._open.pop()
        self._recorder.leave()
        if self._marks is not None:
            self._marks.mark(self._open[-1] if self._open else "user")

    def turn(self, row: int | None) -> None:
        """The step is over: what an error has left open is closed."""
        self._open.clear()
        self._again.clear()
        self._compiles.look()
        if self._marks is not None:
            self._marks.turn(row)

    def close(self) -> None:
        """Everything is as it was."""
        self._is_closed = True
        self._compiles.look()
        for undo in reversed(self._undo):
            undo()
        self._undo = []
        if self._marks is not None:
            self._marks.close()

    def _hook_module(self, module: nn.Module) -> None:
        pre = module.register_forward_pre_hook(lambda *_: self.enter(_part_of(module)))
        # Also after an error: a program may go on, as with a smaller batch when memory is short.
        post = module.register_forward_hook(lambda *_: self.leave(_part_of(module)), always_call=True)
        self._undo += [pre.remove, post.remove]
        compiled = getattr(module, "_compiled_call_impl", None)
        if compiled is not None:
            # Compiled in place: hooks are inside of what is compiled.
            def call(*args: object, **named: object) -> object:
                part = _part_of(module)
                self.enter(part)
                try:
                    return compiled(*args, **named)
                finally:
                    self.leave(part)

            object.__setattr__(module, "_compiled_call_impl", call)
            self._undo.append(lambda: object.__setattr__(module, "_compiled_call_impl", compiled))

    def _hook_gradients(self, name: str) -> None:
        """``loss.backward()`` calls ``torch.autograd.backward``; penalties and loops of their own call ``torch.autograd.grad``."""
        before: Callable[..., object] = getattr(torch.autograd, name)

        @wraps(before)
        def differentiated(*args: object, **named: object) -> object:
            self.enter("backward")
            try:
                return before(*args, **named)
            finally:
                self.leave("backward")

        def put_back() -> None:
            # Whoever has wrapped it since keeps their wrapper; ours does nothing any more.
            if getattr(torch.autograd, name) is differentiated:
                setattr(torch.autograd, name, before)

        setattr(torch.autograd, name, differentiated)
        self._undo.append(put_back)


def _called(model: nn.Module) -> Iterator[nn.Module]:
    """What the program calls: a list of models is called one by one, as by a loop that trains two against each other."""
    if isinstance(model, nn.ModuleList | nn.ModuleDict):
        for child in model.children():
            yield from _called(child)
    else:
        yield model


def _part_of(module: nn.Module) -> str:
    """A model that is called without gradients and in its mode for evaluation trains nothing."""
    return "forward" if module.training or torch.is_grad_enabled() else "eval"


def _compiled_around(model: nn.Module) -> Iterator[nn.Module]:
    """What ``torch.compile`` has made of the model, or of a wrapper around it: the program calls that."""
    frames = sys.modules.get("torch._dynamo.eval_frame")
    kind = getattr(frames, "OptimizedModule", None)
    if kind is None or isinstance(model, kind):
        return
    for candidate in gc.get_objects():
        if type(candidate) is kind and _is_inside(model, candidate):
            yield candidate


def _is_inside(model: nn.Module, wrapper: nn.Module) -> bool:
    """Whether a wrapper has the model at its core, as DDP and compiled modules have: a module with one child."""
    module = wrapper
    for _ in range(_WRAPS_MAX):
        inner = module._modules.get("_orig_mod") or module._modules.get("module")
        if inner is None:
            return False
        if inner is model:
            return True
        module = inner
    return False
