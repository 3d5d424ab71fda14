"""Hugging Face's Trainer, observed: a callback that records the rows of a loop which is Trainer's own.

Trainer says when a step begins and ends, when it has logged, evaluated and saved. Waits for batches it does not tell, so iterators of DataLoaders are
timed while training goes on. A row is called by the number of steps before it, as everywhere; Trainer's own ``global_step`` counts them from 1.
"""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import dataloader

from penstock.errors import UsageError
from penstock.observe.steps import StepRecorder
from penstock.torch.own_loop import ObservedLoop

if TYPE_CHECKING:
    from transformers import TrainerCallback

#: What models of Hugging Face call their tokens.
_TOKENS = "input_ids"


class TrainerRows:
    """What the callback does, in words of a recorder. Nothing here changes a bit of training (O8)."""

    def __init__(self, into: Path) -> None:
        self._into = into
        self._loop: ObservedLoop | None = None
        self._undo: list[Callable[[], object]] = []
        #: What Trainer does after a step, in its order, as far as it is still to come; and whether the first of it is under way.
        self._coming: list[str] = []
        self._is_open = False
        self._tokens = 0

    @property
    def _recorder(self) -> StepRecorder | None:
        return None if self._loop is None else self._loop.recorder

    def begin(self, model: torch.nn.Module, optimizer: Any, step: int) -> None:
        """Training begins at a step."""
        self.end()
        # Accelerate wraps the optimizer; hooks are called by the one inside.
        inner = getattr(optimizer, "optimizer", optimizer)
        self._loop = ObservedLoop(model, [] if inner is None else [inner], self._into)
        self._loop.number = step
        self._loop.__enter__()
        counted = model.register_forward_pre_hook(self._count, with_kwargs=True)
        self._undo = [counted.remove, _timed_loaders(self._enter_data, self._leave_data)]

    def step_begins(self, step: int) -> None:
        """Trainer has the batches of a step. Whoever resumed may have set its number since."""
        self._close_part()
        if self._loop is not None and self._recorder is not None and self._loop.number != step:
            self._loop.number = step
            self._recorder.begin(step)

    def step_ends(self, coming: list[str], *, is_logged: bool) -> None:
        """A step is over, and some of ``eval`` and ``checkpoint`` come next; with ``is_logged`` after a log."""
        if self._loop is None:
            return
        if self._recorder is not None and self._tokens:
            self._recorder.fact("tokens", self._tokens)
        self._tokens = 0
        self._loop.step()
        self._coming = coming
        if not is_logged:
            self._open_part()

    def other_ends(self, coming: list[str], *, is_logged: bool) -> None:
        """An epoch is over."""
        self._close_part()
        self._coming = coming
        if not is_logged:
            self._open_part()

    def logged(self, step: int, values: dict[str, Any]) -> None:
        """Trainer has logged after a step."""
        if self._recorder is not None:
            for name, value in values.items():
                if isinstance(value, int | float) and not isinstance(value, bool):
                    self._recorder.scalar(step, name, float(value))
        self._open_part()

    def part_ends(self, name: str) -> None:
        """What it did after a step is over; the next of it begins."""
        if self._coming[:1] == [name]:
            if not self._is_open:
                self._coming.pop(0)
            self._close_part()
            self._open_part()

    def saved(self, step: int) -> None:
        """The checkpoint before a step exists."""
        if self._recorder is not None:
            self._recorder.commit(step)
        self.part_ends("checkpoint")

    def end(self) -> None:
        """Training is over; everything is as it was."""
        self._close_part()
        for undo in reversed(self._undo):
            undo()
        self._undo = []
        if self._loop is not None:
            self._loop.__exit__(None, None, None)
            self._loop = None

    def _open_part(self) -> None:
        if self._recorder is not None and self._coming and not self._is_open:
            self._recorder.enter(self._coming[0])
            self._is_open = True

    def _close_part(self) -> None:
        if self._is_open:
            self._is_open = False
            self._coming.pop(0)
            if self._recorder is not None:
                self._recorder.leave()

    def _count(self, model: torch.nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Tokens by shape alone; nothing waits for the device."""
        recorder = self._recorder
        if torch.compiler.is_compiling() or recorder is None or recorder.is_evaluating():
            return
        tokens = named.get(_TOKENS, args[0] if args else None)
        if isinstance(tokens, torch.Tensor) and not tokens.is_floating_point():
            self._tokens += tokens.numel()

    def _enter_data(self) -> bool:
        recorder = self._recorder
        if recorder is None or threading.get_ident() != recorder.thread or recorder.is_evaluating():
            return False
        recorder.enter("data")
        return True

    def _leave_data(self) -> None:
        if self._recorder is not None:
            self._recorder.leave()


def _timed_loaders(enter: Callable[[], bool], leave: Callable[[], None]) -> Callable[[], None]:
    """Every wait for a batch of a DataLoader between ``enter`` and ``leave``, until what is returned is called."""
    kind = dataloader._BaseDataLoaderIter
    before = kind.__next__

    def timed(self: Any) -> Any:
        is_entered = enter()
        try:
            return before(self)
        finally:
            if is_entered:
                leave()

    def put_back() -> None:
        # Whoever has wrapped it since keeps their wrapper; ours does nothing any more.
        if kind.__next__ is timed:
            kind.__next__ = before  # type: ignore[method-assign]

    kind.__next__ = timed  # type: ignore[method-assign]
    return put_back


def trainer_callback(*, into: str | os.PathLike[str]) -> "TrainerCallback":
    """A callback for ``transformers.Trainer`` that records where the time of its steps goes, below a directory.

    Waits for batches, forward, backward, optimizer, evaluation and saving are told apart, what Trainer logs becomes scalars, and no bit of training
    changes. ``penstock report`` says why training is slow; ``penstock runs export`` writes the same rows for other tools.
    """
    try:
        import transformers
    except ImportError as problem:
        raise UsageError(
            "a callback for Trainer needs the package transformers", hint="pip install transformers"
        ) from problem

    class PenstockRows(transformers.TrainerCallback):
        def __init__(self) -> None:
            self._rows = TrainerRows(Path(into))

        def on_train_begin(self, args: Any, state: Any, control: Any, **parts: object) -> None:
            model = parts["model"]
            assert isinstance(model, torch.nn.Module), "Trainer gives its model"
            self._rows.begin(model, parts.get("optimizer"), state.global_step)

        def on_step_begin(self, args: Any, state: Any, control: Any, **parts: object) -> None:
            self._rows.step_begins(state.global_step)

        def on_step_end(self, args: Any, state: Any, control: Any, **parts: object) -> None:
            self._rows.step_ends(_coming(control), is_logged=control.should_log)

        def on_epoch_end(self, args: Any, state: Any, control: Any, **parts: object) -> None:
            self._rows.other_ends(_coming(control), is_logged=control.should_log)

        def on_log(
            self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **parts: object
        ) -> None:
            self._rows.logged(state.global_step - 1, logs or {})

        def on_evaluate(self, args: Any, state: Any, control: Any, **parts: object) -> None:
            self._rows.part_ends("eval")

        def on_save(self, args: Any, state: Any, control: Any, **parts: object) -> None:
            self._rows.saved(state.global_step)

        def on_train_end(self, args: Any, state: Any, control: Any, **parts: object) -> None:
            self._rows.end()

    return PenstockRows()


def _coming(control: Any) -> list[str]:
    """What Trainer does next, in its order."""
    wanted = {"eval": control.should_evaluate, "checkpoint": control.should_save}
    return [name for name, is_wanted in wanted.items() if is_wanted]
