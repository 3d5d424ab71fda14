"""Random maps on records: what they draw follows from seed, version, epoch, sample and stage, and from nothing else."""

import itertools
from collections import defaultdict
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.data.maps.rows import generator
from tests.data.gallery import Gallery, move, read_lanes
from tests.data.record_maps import decoded, shifted, tossed

STAGES = [ps.Map(shifted, random=True), ps.Map(tossed, random=True)]


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Gallery:
    return Gallery.make(tmp_path_factory.mktemp("gallery"))


def drawn(gallery: Gallery, recipe: ps.Recipe, steps: int) -> dict[tuple[int, int], tuple[bytes, float]]:
    """What was drawn, by epoch and sample."""
    draws = {}
    for batch in gallery.read(recipe, steps):
        for row in range(batch.rows):
            (origin,) = batch.origin(row)
            draws[origin.epoch, origin.sample] = (batch["obs"][row].tobytes(), float(batch["draw"][row]))
    return draws


def test_draws_are_the_same_on_every_lane_thread_and_resume(gallery: Gallery) -> None:
    recipe = gallery.recipe("moves@1", stages=STAGES)
    expected, _ = read_lanes(gallery, recipe, None, 1, 0, 8)
    for lanes, threads in itertools.product((1, 2, 4), (0, 3)):
        first, cursor = read_lanes(gallery, recipe, None, lanes, threads, 3)
        second, _ = read_lanes(gallery, recipe, cursor, 3, 1, 5)
        assert first + second == expected


def test_draws_follow_the_position_and_not_the_order(gallery: Gallery) -> None:
    """Another shuffle brings samples in another order, and each draws what it drew before."""
    shuffled = drawn(gallery, gallery.recipe("moves@1", stages=STAGES, batch=50), 2)
    stored = drawn(gallery, gallery.recipe("moves@1", stages=STAGES, batch=50, shuffle="none"), 2)
    assert shuffled == stored
    assert len({draw for _, draw in stored.values()}) == 100
    assert shuffled != drawn(gallery, gallery.recipe("moves@1", stages=STAGES, batch=50, seed=18), 2)
    by_sample = defaultdict(set)
    for (_, sample), (seen, _) in stored.items():
        by_sample[sample].add(seen)
    assert all(len(draws) == 2 for draws in by_sample.values()), "epochs draw apart"


def test_a_draw_can_be_said_in_plain_numpy(gallery: Gallery) -> None:
    """Goal: D1 as a formula. Method: make the generator of one call, and draw what the map drew."""
    version = gallery.registry.resolve("moves@1").digest
    (batch,) = gallery.read(gallery.recipe("moves@1", stages=STAGES), 1)
    for row in range(12):
        (origin,) = batch.origin(row)
        noise = generator(17, version, origin.epoch, origin.sample, 0).normal(size=(2, 3)).astype(np.float32)
        assert np.array_equal(batch["obs"][row], move(origin.sample)["obs"] + noise)
        second = generator(17, version, origin.epoch, origin.sample, 1)
        assert (batch["coin"][row], batch["draw"][row]) == (bool(second.integers(2)), second.random())


def test_generators_differ_in_everything_they_are_made_of() -> None:
    keys: list[Any] = [(0, "b3:1", 0, 0, 0), (1, "b3:1", 0, 0, 0), (0, "b3:2", 0, 0, 0), (0, "b3:1", 1, 0, 0)]
    keys += [(0, "b3:1", 0, 1, 0), (0, "b3:1", 0, 0, 1), (-1, "b3:1", 0, 0, 0)]
    assert len({generator(*key).integers(1 << 62) for key in keys}) == len(keys)
    # Philox and its key are part of what a recipe means: these bits never change.
    bits: Any = generator(17, "b3:1", 2, 3, 4).bit_generator
    assert bits.random_raw(2).tolist() == GOLDEN_BITS


GOLDEN_BITS = [4453618102340891982, 3900607381908785532]


def test_a_map_that_decodes_pictures_gives_one_array(gallery: Gallery) -> None:
    (batch,) = gallery.read(gallery.recipe("pictures@1", stages=[ps.Map(decoded)]), 1)
    assert (batch["image"].dtype, batch["image"].shape) == (np.uint8, (12, 4, 5, 3))
    assert batch["key"][0] == f"{batch.origin(0)[0].sample:04}"
    assert set(batch) == {"valid", "key", "image", "label"}


def test_the_text_of_a_map_is_part_of_the_recipe(gallery: Gallery) -> None:
    digests = {
        gallery.recipe("moves@1", stages=stages).digest
        for stages in ([], STAGES, STAGES[:1], [ps.Map(shifted, random=True, version="2")])
    }
    assert len(digests) == 4
