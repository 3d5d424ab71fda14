"""Records in PyTorch: arrays become tensors, everything else stays what it is, and states are exact."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch

import penstock as ps
from penstock.errors import SampleUndecodable, UsageError
from penstock.torch import loader
from tests.data.gallery import Gallery
from tests.data.record_maps import fragile


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Gallery:
    return Gallery.make(tmp_path_factory.mktemp("gallery"))


def test_arrays_are_tensors_and_the_rest_stays_lists(gallery: Gallery) -> None:
    recipe = gallery.recipe("notes@1")
    with loader(recipe, registry=gallery.registry) as batches:
        for batch, expected in zip(itertools.islice(batches, 4), gallery.read(recipe, 4), strict=True):
            assert (batch.step, batch.digest) == (expected.step, expected.digest)
            assert batch.origin(5) == expected.origin(5)
            assert set(batch) == set(expected)
            for name, values in expected.items():
                if isinstance(values, np.ndarray):
                    assert isinstance(batch[name], torch.Tensor)
                    assert batch[name].numpy().tobytes() == values.tobytes()
                else:
                    assert batch[name] == values
            assert "text list of 12" in repr(batch)
            assert batch.to("cpu")["text"] == batch["text"]


def test_fields_and_types_can_be_chosen(gallery: Gallery) -> None:
    recipe = gallery.recipe("moves@1")
    types = {"obs": torch.bfloat16, "action": None, "valid": torch.bool}
    with loader(recipe, registry=gallery.registry, fields=types) as batches:
        batch = next(iter(batches))
    assert {name: value.dtype for name, value in batch.items()} == {
        "obs": torch.bfloat16,
        "action": torch.int64,
        "valid": torch.bool,
    }
    with loader(recipe, registry=gallery.registry, fields=("pixels",)) as batches:
        with pytest.raises(UsageError, match="no field 'pixels'") as raised:
            next(iter(batches))
        assert "obs, action, reward" in f"{raised.value.hint}"
    with pytest.raises(UsageError, match="got the text 'obs'"):
        loader(recipe, registry=gallery.registry, fields="obs")


@pytest.mark.parametrize(("prefetch", "threads"), [(0, 0), (3, 2)])
def test_a_state_resumes_with_other_lanes(gallery: Gallery, prefetch: int, threads: int) -> None:
    expected = gallery.read(gallery.mixed(), 6)
    options = {"registry": gallery.registry, "prefetch": prefetch, "threads": threads}
    with loader(gallery.mixed(), **options) as batches:
        assert [b.digest for b in itertools.islice(batches, 3)] == [b.digest for b in expected[:3]]
        state = batches.state_dict()
    parts = [loader(gallery.mixed(), lane=ps.Lane(k, of=2), **options) for k in range(2)]
    for part in parts:
        part.load_state_dict(state)
    for batch, *lanes in zip(expected[3:], *parts, strict=False):
        assert batch.digest == ps.data.join([lane.digest for lane in lanes])
    for part in parts:
        part.close()


def test_a_finite_stream_has_a_length(gallery: Gallery) -> None:
    recipe = gallery.recipe(ps.Source("moves@1", epochs=1), exhaustion="pad")
    with loader(recipe, registry=gallery.registry, threads=2) as batches:
        assert len(batches) == 5
        assert [len(list(batches)) for _ in range(2)] == [5, 5]


def test_a_length_is_known_without_decoding_anything(gallery: Gallery) -> None:
    source = ps.Source("notes@1", stages=[ps.Map(fragile)], epochs=1)
    with loader(gallery.recipe(source, batch=7), registry=gallery.registry, threads=0) as batches:
        assert len(batches) == 4
        with pytest.raises(SampleUndecodable):
            list(batches)


def test_types_that_torch_lacks_stay_arrays(tmp_path: Path) -> None:
    np.savez(
        tmp_path / "odd.npz",
        when=np.array(["2020-01-01", "2021-01-01"], "M8[D]"),
        big=np.arange(2, dtype=">f4"),
    )
    registry = ps.Registry(tmp_path / "registry")
    registry.register("odd", tmp_path / "odd.npz")
    with loader(
        ps.Recipe(sources=[ps.Source("odd@1")], batch=2, shuffle="none"), registry=registry
    ) as batches:
        batch = next(iter(batches))
    assert batch["big"].tolist() == [0.0, 1.0]
    assert isinstance(batch["when"], np.ndarray)
