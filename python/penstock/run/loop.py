"""The run: a loop around a user's step that survives any interruption and is bit-equal after it (R1).

The run never touches the model. It brings batches, sets generators, saves and restores, judges what is reported, and writes down
what was decided. What a step consists of stays the user's.
"""

import atexit
import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Literal, SupportsFloat, Unpack

from penstock import events
from penstock.data import Recipe, SkipJournal, Skips
from penstock.data.feed.options import BatchKeywords
from penstock.data.service import Service
from penstock.errors import UsageError
from penstock.observe.steps.flop_record import FlopCount
from penstock.registry import Registry
from penstock.run import determinism as pinning
from penstock.run import gang
from penstock.run.directory import RunDirectory
from penstock.run.journal import journal
from penstock.run.life import Life
from penstock.run.plain import as_trainable
from penstock.run.policies import Policy
from penstock.run.proof import repeat_mode as repeating
from penstock.run.settings import Settings
from penstock.run.start.decisions import decisions_of
from penstock.run.step.notices import Leave
from penstock.run.step.randomness import derive, numpy_generator, python_generator, seed_globals
from penstock.state import Checkpoints


class Run:
    """One training effort, in one directory, across all of its lives.

    Made before the model, so that what decides bits is set before it: threads, algorithms, and the global generators, from which the
    model's first weights are drawn. ``checkpoints`` are in the directory unless given. ``seed`` decides every random number but the order
    of the data, which follows from the recipe. Batches come from a registry, or from a ``Service`` of the same recipe (or its
    address, ``penstock://host:port``); the bits are the same, so lives may differ in it. ``deterministic`` also pins algorithms; see ``unpinned`` for what is left.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        recipe: Recipe,
        registry: Registry | Service | str | os.PathLike[str] | None = None,
        checkpoints: Checkpoints | None = None,
        policy: Policy | None = None,
        seed: int = 0,
        deterministic: bool = False,
    ) -> None:
        if type(seed) is not int:
            raise UsageError(f"seed must be a whole number, got {seed!r}")
        origin = _origin(registry or recipe.registry or None)
        repeat = repeating.given()
        place = RunDirectory(directory if repeat is None else repeat.place_of(directory))
        around = gang.gang_of()
        before = decisions_of(journal.read(place.path))
        #: Of an earlier life on as many ranks.
        self._threads = before.threads.get(str(around.ranks), {})
        pins = pinning.pin(deterministic=deterministic, threads=self._threads)
        self.settings = Settings(
            place,
            recipe,
            origin if isinstance(origin, Registry) else None,
            checkpoints if repeat is None else None,
            (policy or Policy()) if repeat is None else repeat.policy_of(policy or Policy()),
            seed,
            deterministic,
            around,
            pins,
            origin if isinstance(origin, Service) else None,
            repeat,
        )
        self._life: Life | None = None
        self._state: Any = None
        #: Of the last life, for whoever asks after it.
        self._number = -1
        seed_globals(seed, step=0, lane=0)
        pinning.seed_frameworks(derive(seed, "init"))

    def steps(
        self,
        state: Any,
        *,
        record: bool = True,
        flops: FlopCount | None = None,
        **wanted: Unpack[BatchKeywords],
    ) -> "Steps":
        """Join the gang, go on from the newest good checkpoint, and give ``(step, batch)`` after ``(step, batch)``.

        ``state`` is what ``penstock.torch.state`` or ``penstock.jax.state`` makes, or a dict of numpy arrays. What is ``wanted`` is for its
        batches: ``fields``, ``prefetch``, ``device`` with torch; ``mesh``, ``axis`` and ``fields`` with JAX. ``record``: whether each step becomes a
        row of the step table (``steps/`` in the run's directory), which changes no bit of training. ``flops``, of ``penstock.torch.flops``, counts what
        each step multiplies, so that ``penstock report`` knows the MFU.
        """
        if self._life is not None:
            raise UsageError("this run is under way already", hint="one loop at a time")
        trainable = self._state = as_trainable(state, self.settings.gang.ranks)
        gang.check(self.settings.gang, trainable.ranks)
        # Again, for frameworks that were loaded and threads that were set since.
        pins = pinning.pin(deterministic=self.settings.deterministic, threads=self._threads)
        self.settings = replace(self.settings, pins=pins)
        life = Life(self.settings, trainable, wanted, record=record)
        if flops is not None:
            life.observed.count(flops)
        return Steps(self, life)

    def accept(self, loss: Any = None, grad_norm: Any = None, tokens: Any = None) -> bool:
        """Whether the optimizer may step: call it between backward and ``optimizer.step()``, on every rank.

        False when the policy skips this step, now or in an earlier life, or goes back behind it. Numbers, or tensors with one element; what
        ``report`` was given before in this step counts too.
        It waits for the device only where a rule may skip the step (``skip``, ``replay``); under other rules the values are looked at one step
        later, as those of ``report`` are.
        """
        return self._now().accept(loss, grad_norm, tokens)

    def report(self, *, loss: Any = None, grad_norm: Any = None, tokens: Any = None) -> None:
        """What the step gave; of this rank. Without ``accept`` a policy judges it after the optimizer's step, and undoes that by going back."""
        self._now().report(loss, grad_norm, tokens)

    def log(self, **values: SupportsFloat) -> None:
        """Named numbers, or tensors with one element: a line in the run's metrics. Nothing waits for a device.

        What rank 0 logged since the last checkpoint is committed with the next one, for ``Keep(best=Best("val_loss"))``.
        """
        self._now().log(values)

    def save(self) -> None:
        """Save after this step. One rank's call is enough; all save after the same step: this one, or the next if ``accept`` was called before."""
        self._now().save()

    def stop(self, reason: str = "the program asked for it") -> None:
        """End the loop after this step, saved, as if the data had ended; the next start goes on from there. One rank's call is enough."""
        self._now().stop(reason)

    def phase(self, name: str) -> AbstractContextManager[None]:
        """``with run.phase("eval"):`` around what is no training: it is no hang, its time is counted apart, and it changes no bit of training,
        because it draws from generators of its own.
        """
        return self._now().phase(name)

    def note(self, text: str, **facts: object) -> None:
        """Put something into the journal."""
        self._now().note(text, facts)

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        """Time a part of a step, such as ``forward``: on the host as an event, and on the device where that does the work."""
        life = self._now()
        step = life.next_step - 1
        with events.span(f"run.{name}", step=step), life.observed.part(name), ExitStack() as after:
            if life.timer is not None:
                life.timer.begin(name, step)
                after.callback(life.timer.end, name)
            yield

    def seed_of(self, domain: str, *, step: int | None = None, lane: int | None = None) -> int:
        """128 bits for a domain (``init``, ``data``, ``dropout``, ``user``, or a name of your own), now or at another step and lane."""
        life = self._life
        at = step if step is not None else (0 if life is None else max(0, life.next_step - 1))
        number = lane if lane is not None else (0 if life is None else life.lane.number)
        return derive(self.settings.seed, domain, step=at, lane=number)

    def generator(self, domain: str = "user", *, kind: Literal["numpy", "python", "native"] = "numpy") -> Any:
        """A fresh generator for a domain at this step: of NumPy, of Python, or of the state's framework (``native``)."""
        number = self.seed_of(domain)
        if kind == "native":
            generator = self._now().state.generator(number)
        else:
            generator = python_generator(number) if kind == "python" else numpy_generator(number)
        if self._life is not None:
            self._life.standing.gave(domain, generator)
        return generator

    @property
    def incarnation(self) -> int:
        """Which life this is, from 0."""
        return self._number

    @property
    def skips(self) -> Skips:
        """What is left out of the data."""
        return SkipJournal(self.settings.directory.skips).read()

    @property
    def unpinned(self) -> tuple[str, ...]:
        """What may make bits differ between two executions, in words; what training changes and the state does not hold is among it."""
        of_state = getattr(self._state, "unpinned", tuple)
        return (*self.settings.pins.unpinned, *of_state())

    @property
    def is_repeating(self) -> bool:
        """Whether steps of a run are executed again to be compared (``penstock runs prove``), so that nothing else should be written."""
        return self.settings.repeat is not None

    @property
    def rank(self) -> int:
        """Of this process."""
        return self.settings.gang.rank

    def _now(self) -> Life:
        if self._life is None:
            raise UsageError(
                "no step is under way", hint="call it inside of `for step, batch in run.steps(state)`"
            )
        return self._life

    def _enter(self, life: Life | None) -> None:
        self._life = life
        if life is not None:
            self._number = life.incarnation


def _origin(registry: Registry | Service | str | os.PathLike[str] | None) -> Registry | Service:
    """Where batches come from."""
    if isinstance(registry, Registry | Service):
        return registry
    if isinstance(registry, str) and registry.startswith(("penstock://", "penstocks://")):
        return Service(address=registry)
    return Registry(registry)


class Steps:
    """Iterate it. It ends what it began when the loop ends, breaks or fails; as a context it also learns how.

    An error that leaves a plain ``for`` tells the iterator nothing, so what is written about it then is written when the process ends.
    """

    def __init__(self, run: Run, life: Life) -> None:
        self._run = run
        self._life = life
        self._steps: Iterator[tuple[int, Any]] | None = None
        self._closed = False
        #: The child of a fork has a copy of this, and none of the threads: it ends nothing.
        self._process = os.getpid()
        self._at_exit = partial(_exiting, life, self._process)
        atexit.register(self._at_exit)

    def __iter__(self) -> "Steps":
        return self

    def __next__(self) -> tuple[int, Any]:
        if self._closed:
            raise StopIteration
        try:
            if self._steps is None:
                self._run._enter(self._life)
                _let_begin(self._life.state)
                self._life.begin()
                self._steps = self._life.steps()
            return next(self._steps)
        except StopIteration:
            self._finish(None)
            if self._run.is_repeating:
                # What a program does after its loop is no part of the steps, and was done already.
                raise SystemExit(0) from None
            raise
        except BaseException as problem:
            self._finish(problem)
            raise

    def close(self) -> None:
        """Leave the loop, as ``break`` does. What is not known to be whole is not saved, and is executed again by the next life."""
        self._finish(GeneratorExit())

    def _finish(self, problem: BaseException | None) -> None:
        if self._closed or self._process != os.getpid():
            return
        self._closed = True
        atexit.unregister(self._at_exit)
        try:
            if isinstance(problem, GeneratorExit):
                self._life.break_off()
        except BaseException as trouble:
            problem = trouble
            raise
        finally:
            self._ended(problem)

    def _ended(self, problem: BaseException | None) -> None:
        """Say how it ended, and give everything back."""
        self._run._enter(None)
        self._life.end(problem)
        in_time = isinstance(problem, Leave) and problem.committed
        self._life.close(orderly=problem is None or in_time or isinstance(problem, GeneratorExit))

    def __enter__(self) -> "Steps":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._finish(value or GeneratorExit())

    def __del__(self) -> None:
        # Left by `break` or by an error: only the end of the process shows which. Alone, nobody has to be waited for.
        if getattr(self, "_closed", True) or sys.is_finalizing() or self._process != os.getpid():
            return
        self._closed = True
        try:
            self._life.break_off()
        finally:
            self._run._enter(None)
            self._life.close(orderly=self._life.state.ranks == 1)


def _let_begin(state: Any) -> None:
    """Training begins here, and with it what the program carries in its own variables: states that look at them are told."""
    begin = getattr(state, "begin", None)
    if begin is not None:
        begin()


def _exiting(life: Life, process: int) -> None:
    """The process ends, and nobody has said how the loop did."""
    if process != os.getpid():
        return
    life.end(getattr(sys, "last_value", None) or GeneratorExit())
    life.close(orderly=False)
