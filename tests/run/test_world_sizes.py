"""A job that may go on with another number of ranks: batches that one of them cannot share are refused when the run starts (L1)."""

from pathlib import Path

import pytest

import penstock as ps
from penstock import errors
from penstock.data import Lane
from penstock.run import Policy
from penstock.run.gang import Gang, gang_of
from penstock.run.start.refusals import refuse_sizes
from tests.run.small import make, train
from tests.torch.stream import Stream


def test_a_size_that_does_not_divide_a_later_batch_is_refused_at_the_start(
    stream: Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: nobody learns of it when a host is lost. Method: batches of 16 rows and, from step 6 on, of 24; sizes as the launcher says them."""
    monkeypatch.setenv("PENSTOCK_JOB", "train-1")
    policy = Policy(save_every=4, stop_at=8, keep=ps.Keep(every=1))
    monkeypatch.setenv("PENSTOCK_WORLD_SIZES", "1,8,16")
    with pytest.raises(errors.WorldSizeUnfit, match=r"16 ranks.*24 rows, from step 6 on") as caught:
        train(make(stream, tmp_path / "a", policy))
    assert (caught.value.size, caught.value.fitting) == (16, (1, 8))
    assert "1, 8 fit" in str(caught.value.hint)

    monkeypatch.setenv("PENSTOCK_WORLD_SIZES", "1,2,4,8")
    _, executed = train(make(stream, tmp_path / "b", policy))
    assert executed == list(range(8))


def test_ranks_that_share_a_lane_count_once(stream: Stream) -> None:
    """Method: eight ranks in lanes of four, as with tensor parallelism."""
    recipe = stream.recipe()
    refuse_sizes(recipe, Lane(0, of=2), Gang(0, 8, "penstock", sizes=(4, 8, 16, 32)))
    with pytest.raises(errors.WorldSizeUnfit, match="each of its lanes is read by 4 ranks"):
        refuse_sizes(recipe, Lane(0, of=2), Gang(0, 8, "penstock", sizes=(6, 8)))


@pytest.mark.parametrize(
    ("words", "sizes"), [("", ()), ("4,2,4", (2, 4)), ("2, 4", (2, 4)), ("0,two,8", (8,))]
)
def test_the_launchers_list_is_read_as_it_comes(words: str, sizes: tuple[int, ...]) -> None:
    assert gang_of({"PENSTOCK_JOB": "a", "PENSTOCK_WORLD_SIZES": words}).sizes == sizes
    assert gang_of({"TORCHELASTIC_RUN_ID": "a", "PENSTOCK_WORLD_SIZES": words}).sizes == ()
