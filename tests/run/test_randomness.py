"""Random numbers of a run follow from seed, domain, step and lane, and from nothing else."""

import random

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from penstock.run.step.randomness import derive, numpy_generator, python_generator, seed_globals
from penstock.torch import determinism

SEEDS = st.integers(-(1 << 63), (1 << 63) - 1)
STEPS = st.integers(0, 1 << 40)
LANES = st.integers(0, 1 << 16)


@given(SEEDS, st.sampled_from(["dropout", "user", "mine"]), STEPS, LANES, STEPS, LANES)
def test_other_places_have_other_numbers(
    seed: int, domain: str, step: int, lane: int, other_step: int, other_lane: int
) -> None:
    here, there = (
        derive(seed, domain, step=step, lane=lane),
        derive(seed, domain, step=other_step, lane=other_lane),
    )
    assert (here == there) == ((step, lane) == (other_step, other_lane))
    assert here != derive(seed ^ 1, domain, step=step, lane=lane)
    assert 0 <= here < 1 << 128


@given(SEEDS, STEPS, LANES)
def test_first_weights_and_data_are_the_same_on_every_lane(seed: int, step: int, lane: int) -> None:
    assert derive(seed, "init", step=step, lane=lane) == derive(seed, "init")
    assert derive(seed, "data", step=step, lane=lane) == derive(seed, "data", step=step)
    assert len({derive(seed, domain) for domain in ("init", "data", "dropout", "user")}) == 4


@given(SEEDS, STEPS, LANES, st.integers(0, 50))
def test_nothing_depends_on_what_was_drawn_before(seed: int, step: int, lane: int, drawn: int) -> None:
    """Goal: no history. Method: draw any number of times, then begin the step: the same numbers."""

    def numbers() -> list[float]:
        seed_globals(seed, step=step, lane=lane)
        determinism.seed(derive(seed, "dropout", step=step, lane=lane))
        return [random.random(), float(np.random.random()), float(torch.rand(()))]

    first = numbers()
    for _ in range(drawn):
        random.random(), np.random.random(), torch.rand(3)
    assert numbers() == first
    number = derive(seed, "user", step=step, lane=lane)
    assert numpy_generator(number).random() == numpy_generator(number).random()
    assert python_generator(number).random() == python_generator(number).random()
    cpu = torch.device("cpu")
    one, other = (determinism.generator(number, cpu) for _ in range(2))
    assert torch.equal(torch.rand(3, generator=one), torch.rand(3, generator=other))
