"""Records in JAX: the same bits as in PyTorch and numpy, and a clear word about what is no number."""

import itertools

import numpy as np
import pytest

import penstock as ps
import penstock.torch
from penstock.errors import UsageError
from penstock.jax import loader
from tests.data.gallery import Gallery


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Gallery:
    return Gallery.make(tmp_path_factory.mktemp("gallery"))


def test_jax_torch_and_numpy_have_identical_bits(gallery: Gallery) -> None:
    recipe = gallery.recipe("moves@1")
    with (
        loader(recipe, registry=gallery.registry) as ours,
        penstock.torch.loader(recipe, registry=gallery.registry) as theirs,
    ):
        for a, b, c in itertools.islice(zip(ours, theirs, gallery.read(recipe, 6), strict=False), 6):
            assert a.digest == b.digest == c.digest
            assert a.origin(2) == c.origin(2)
            assert set(a) == set(b) == set(c) == {"valid", "obs", "action", "reward"}
            for field in ("valid", "obs", "reward"):
                assert np.asarray(a[field]).tobytes() == b[field].numpy().tobytes() == c[field].tobytes()
            # Without 64 bits JAX has them as 32; the numbers are the same.
            assert np.array_equal(np.asarray(a["action"]), c["action"])


def test_what_is_no_number_is_refused_by_name(gallery: Gallery) -> None:
    with loader(gallery.recipe("notes@1"), registry=gallery.registry) as batches:
        with pytest.raises(UsageError, match="field 'words'") as raised:
            next(iter(batches))
        assert "('valid', 'id', 'score', 'good')" in f"{raised.value.hint}"
    nothing = loader(gallery.recipe("notes@1"), registry=gallery.registry, fields=("nothing",))
    with nothing as batches, pytest.raises(UsageError, match="no field 'nothing'"):
        next(iter(batches))
    with loader(gallery.recipe("notes@1"), registry=gallery.registry, fields={"score": "float16"}) as batches:
        assert next(iter(batches))["score"].dtype == np.float16


def test_numbers_that_do_not_fit_are_an_error_and_not_other_numbers(gallery: Gallery) -> None:
    from tests.data.record_maps import stamped

    recipe = gallery.recipe(ps.Source("moves@1", stages=[ps.Map(stamped, random=True)]))
    wide = loader(recipe, registry=gallery.registry, fields=("bits",))
    with wide as batches, pytest.raises(UsageError, match="'bits' do not fit into int32"):
        next(iter(batches))
