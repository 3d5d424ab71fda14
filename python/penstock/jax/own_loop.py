"""Any JAX loop, observed: the rows of a run without its data, checkpoints or launcher.

A jitted step is one call: what it takes on the host is its dispatch, and what the device does shows when somebody waits for a result. Both are told:
dispatch as ``forward``, because that is where a model is called, and waits as ``judge``.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, Self, SupportsFloat, TypeVar

import jax

from penstock.errors import UsageError
from penstock.jax import gang
from penstock.jax.compile_events import CompileEvents
from penstock.observe.steps import StepRecorder, list_steps
from penstock.observe.steps.loop_record import LoopRecord, waited_for
from penstock.observe.steps.recorder import recorder_of

Item = TypeVar("Item")
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class _Value:
    """A scalar that may still be computed."""

    def __init__(self, value: jax.Array) -> None:
        self._value = value
        value.copy_to_host_async()

    def is_here(self) -> bool:
        """Whether it can be read without a wait."""
        # Every array has it; its declared type has not.
        is_ready: Callable[[], bool] = getattr(self._value, "is_ready")  # noqa: B009
        return is_ready()

    def item(self) -> float:
        """The value."""
        return float(self._value)


class ObservedLoop:
    """What ``observed`` gives. Steps are what lies between two calls of ``step``."""

    def __init__(self, into: Path) -> None:
        self._into = into
        self._recorder: StepRecorder | None = None
        self._record: LoopRecord | None = None
        self._compiles: CompileEvents | None = None

    @property
    def number(self) -> int:
        """The number of the step that is under way; set it where training goes on from a later one."""
        return 0 if self._record is None else self._record.number

    @number.setter
    def number(self, number: int) -> None:
        if self._record is not None:
            self._record.renumber(number)

    def __enter__(self) -> Self:
        if self._record is not None:
            raise UsageError(
                "this loop is observed already", hint="call penstock.jax.observed once for each loop"
            )
        rank = jax.process_index()
        mine = 1 + max((life for life, number in list_steps(self._into) if number == rank), default=-1)
        life = int(gang.share(str(mine).encode()))
        self._recorder = recorder_of(self._into, life, rank)
        if self._recorder is not None:
            self._compiles = CompileEvents(self._recorder)
            self._record = LoopRecord(self._recorder)
            self._record.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._recorder is None or self._record is None or self._compiles is None:
            return
        self._record.look()
        self._compiles.close()
        if value is None:
            # Nothing comes after the last step.
            self._recorder.pause()
        self._recorder.close()

    def data(self, batches: Iterable[Item]) -> Iterator[Item]:
        """The same batches; the time that each is waited for is counted as ``data``."""
        return waited_for(batches, self._recorder)

    def dispatch(self, function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        """The same function; the time until it returns is counted as dispatch, not as your own code."""

        def called(*args: Arguments.args, **named: Arguments.kwargs) -> Result:
            if self._recorder is None:
                return function(*args, **named)
            with self._recorder.part("forward"):
                return function(*args, **named)

        return called

    def wait(self, value: Item) -> Item:
        """The same value, computed; the time until it is there is counted as a wait."""
        with nullcontext() if self._recorder is None else self._recorder.part("judge"):
            jax.block_until_ready(value)
        return value

    def step(self, *, loss: Any = None, batch: Any = None, **scalars: SupportsFloat) -> None:
        """A step is over: what it gave, as numbers or arrays with one element, for which nothing waits; and its array of tokens, which are counted."""
        if self._recorder is None or self._record is None:
            return
        named = {**({} if loss is None else {"loss": loss}), **scalars}
        values = {name: _known(name, value) for name, value in named.items()}
        if batch is not None and jax.numpy.issubdtype(getattr(batch, "dtype", float), jax.numpy.integer):
            self._recorder.fact("tokens", int(batch.size))
        self._record.end(values)
        self._record.begin()


def _known(name: str, value: Any) -> "float | _Value":
    """A number, or one that may still be computed."""
    if isinstance(value, jax.Array) and value.size == 1:
        return _Value(value)
    try:
        return float(value)
    except (TypeError, ValueError):
        raise UsageError(
            f"{name} must be a number or an array with one element, got {value!r:.80}",
            hint="take its mean or its sum",
        ) from None


def observed(*, into: str | os.PathLike[str]) -> ObservedLoop:
    """Record where the time of your own JAX loop goes, below a directory; use it as a context.

    Call ``seen.step(loss=…, batch=tokens)`` at the end of every step and iterate ``seen.data(batches)``. ``train = seen.dispatch(train)`` tells the call
    of a jitted function from your own code, and ``seen.wait(loss)`` waits for the device from both; nothing else waits. What is compiled is an account
    of its own. No bit of training changes.
    """
    return ObservedLoop(Path(into))
