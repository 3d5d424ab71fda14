"""Beyond one window: four stages of a sample, where the loss goes, lanes of a step, differences, and filters."""

from pathlib import Path

import numpy as np
import pytest

from penstock.data import join
from penstock.errors import UsageError
from penstock.view.address import parse
from penstock.view.model import BatchView, unpack
from penstock.view.model.difference import compare_batches, compare_streams, compare_versions
from penstock.view.model.fields import field_of, trajectory_of
from penstock.view.model.filter import filter_rows
from penstock.view.model.media import media_of
from penstock.view.model.tokens.budget import budget, budget_by_role
from penstock.view.model.tokens.lanes import rank_lens, unequal
from penstock.view.model.tokens.repeats import Stretch, repeats_of
from penstock.view.model.tokens.samples import Samples
from penstock.view.opener import OpenedStream, OpenedVersion
from tests.view.library import CONVERSATIONS, HOSTILE, Library, ranks


def stream_of(library: Library, text: str) -> OpenedStream:
    opened = library.opener.open(parse(text))
    assert isinstance(opened, OpenedStream)
    return opened


def version_of(library: Library, text: str) -> OpenedVersion:
    opened = library.opener.open(parse(text))
    assert isinstance(opened, OpenedVersion)
    return opened


def batch_of(stream: OpenedStream, step: int = 0) -> BatchView:
    view = stream.batch(step)
    assert isinstance(view, BatchView)
    return view


def test_a_sample_of_a_conversation_in_four_stages(library: Library) -> None:
    """Goal: raw, templated, tokens and input are linked. Method: the characters of every token, and the mask by role."""
    stream = stream_of(library, library.chat("talks@1"))
    view = batch_of(stream)
    samples = Samples(stream.plan, stream.vocabularies)
    stages = samples.stages(view, 0, 0)
    sample = stages["origin"]["sample"]
    assert stages["raw"]["row"] == sample
    text = "".join(piece["text"] for piece in stages["templated"]["pieces"])
    assert text.startswith("<|system|>be kind<|end|><|user|>question")
    said = {
        piece["role"]: piece["trained"]
        for piece in stages["templated"]["pieces"]
        if piece["role"] != "template"
    }
    assert said == {"system": False, "user": False, "assistant": True}
    assert stages["tokens"]["texts"][0] == "<|system|>"
    for words, (start, stop) in zip(stages["tokens"]["texts"], stages["tokens"]["spans"], strict=True):
        if words.isascii():
            assert text[start:stop] == words
    (place,) = stages["input"]
    first, stop = place["row_span"]
    assert np.asarray(view.arrays["tokens"])[0, first:stop].tolist() == stages["tokens"]["ids"]
    assert place["loss"] == int(np.asarray(view.arrays["loss_mask"])[0, first:stop].sum())
    assert str(CONVERSATIONS[sample]["messages"][2]["content"]) in text


def test_a_sample_of_plain_text_and_of_ranks_in_its_stages(library: Library) -> None:
    for tokenizer in (library.tokenizer, ranks(library.folder / "own.tiktoken")):
        stream = stream_of(library, library.recipe("texts@1", tokenizer=tokenizer))
        view = batch_of(stream)
        stages = Samples(stream.plan, stream.vocabularies).stages(view, 0, 5)
        sample = stages["origin"]["sample"]
        assert stages["templated"]["characters"] == len(HOSTILE[sample % len(HOSTILE)])
        assert sum(place["token_span"][1] - place["token_span"][0] for place in stages["input"]) <= len(
            stages["tokens"]["ids"]
        )
    padded = stream_of(library, library.recipe("texts@1", length=256, policy="fit"))
    with pytest.raises(UsageError, match="padding"):
        Samples(padded.plan, padded.vocabularies).stages(batch_of(padded), 0, 255)


def test_the_picture_of_a_batch_has_every_document_and_the_boundaries(library: Library) -> None:
    view = batch_of(stream_of(library, library.recipe("texts@1")))
    facts, columns = unpack(view.picture())
    assert facts["digest"] == view.digest
    assert np.array_equal(columns["cu_seqlens"], view.arrays["cu_seqlens"])
    edges = columns["document_row"].astype(np.int64) * view.length + columns["document_at"]
    assert set(edges.tolist()) <= set(columns["cu_seqlens"].tolist())


def test_the_budget_of_a_batch_adds_up(library: Library) -> None:
    stream = stream_of(library, library.chat("talks@1"))
    view = batch_of(stream)
    totals = budget(view)
    mask = np.asarray(view.arrays["loss_mask"])
    assert (totals["tokens"], totals["loss"]) == (mask.size, int(mask.sum()))
    assert sum(share["tokens"] for share in totals["by_source"]) + totals["padding"] == mask.size
    assert sum(share["loss"] for share in totals["by_kind"]) == int(mask.sum())
    samples = Samples(stream.plan, stream.vocabularies)
    roles = {share["role"]: share for share in budget_by_role(view, samples)["by_role"]}
    assert roles["assistant"]["loss"] == roles["assistant"]["tokens"] > 0
    assert roles["user"]["loss"] == roles["system"]["loss"] == 0
    assert sum(share["loss"] for share in roles.values()) == int(mask.sum())
    cut = budget_by_role(view, samples, samples_max=1)
    assert (cut["documents"], "not looked at" in cut["cut"]) == (1, True)


def test_the_rank_lens_shows_every_row_once_and_what_is_there_twice(library: Library) -> None:
    recipe = library.recipe("texts@1")
    stream = stream_of(library, recipe)
    lens = rank_lens(stream, 1, 4)
    assert lens["digest"] == join([lane["digest"] for lane in lens["lanes"]]) == batch_of(stream, 1).digest
    assert [len(lane["rows"]) for lane in lens["lanes"]] == [1, 1, 1, 1]
    assert lens["repeats"] == []
    later = rank_lens(stream, 0, 2, steps=20)
    assert later["repeats_total"] > 0, "the source is read a second time"
    assert [lane["step"] for lane in later["lanes"][:4]] == [0, 0, 1, 1]
    # A source of one sample has nothing else to give.
    library.add_texts("single", ["only this one text"])
    again = rank_lens(stream_of(library, library.recipe("single@1", length=8)), 0, 2)
    assert again["repeats_total"] > 0
    assert len(again["repeats"][0]["places"]) == 2
    with pytest.raises(UsageError, match="1000 lanes"):
        rank_lens(stream, 0, 1000)


def test_lanes_that_must_be_equal_are_compared_by_digest() -> None:
    by_rank = {"0": ("0/2", 7, "aa"), "1": ("0/2", 7, "aa"), "2": ("1/2", 7, "bb"), "3": ("1/2", 7, "cc")}
    assert unequal(by_rank) == [{"lane": "1/2", "step": 7, "ranks": {"bb": ["2"], "cc": ["3"]}}]
    assert unequal({"0": ("0/1", 7, "aa"), "1": ("0/1", 8, "bb")}) == []


def test_stretches_of_a_cut_sample_are_no_repeats() -> None:
    one, two = Stretch("web", 3, 0, 10, "a"), Stretch("web", 3, 10, 20, "b")
    assert repeats_of([one, two, Stretch("code", 3, 0, 10, "c")]) == []
    (repeat,) = repeats_of([one, two, Stretch("web", 3, 5, 8, "d")])
    assert (repeat.first, repeat.tokens) == (one, 3)


def test_the_first_difference_of_two_batches_is_a_row_a_token_and_a_byte(library: Library) -> None:
    stream = stream_of(library, library.recipe("texts@1"))
    one, other = batch_of(stream, 0), batch_of(stream, 1)
    assert compare_batches(one, one)["equal"]
    comparison = compare_batches(one, other)
    row, token = comparison["first"]["row"], comparison["first"]["token"]
    a, b = (np.asarray(view.arrays["tokens"]).reshape(-1) for view in (one, other))
    assert row * 32 + token == int(np.flatnonzero(a != b)[0])
    assert comparison["summary"]["tokens_differing"] == int((a != b).sum())
    assert [side["id"] for side in comparison["first"]["sides"]] == [
        int(a[row * 32 + token]),
        int(b[row * 32 + token]),
    ]
    assert comparison["first"]["byte"] == 0


def test_two_recipes_differ_from_a_step_on(library: Library) -> None:
    recipe = Path(library.recipe("texts@1"))
    library.add_texts("others", HOSTILE[::-1] * 4)
    both = recipe.read_text().replace('name = "texts@1"', 'name = "texts@1"\n[[sources]]\nname = "others@1"')
    schedule = "weights = [[0, {texts = 1.0, others = 0.0}], [3, {texts = 0.0, others = 1.0}]]\n"
    one = library.write("one.toml", schedule.replace("[3,", "[9,") + both)
    other = library.write("other.toml", schedule + both)
    comparison = compare_streams(stream_of(library, one), stream_of(library, other))
    assert (comparison["first_step"], comparison["compared_steps"]) == (3, 4)
    assert list(comparison["fields"]) == ["weights"]
    assert comparison["batch"]["first"]["row"] == 0
    same = compare_streams(stream_of(library, one), stream_of(library, one), steps_max=2)
    assert (same["equal"], same["compared_steps"]) == (True, 2)


def test_two_versions_differ_in_a_row_and_a_field(library: Library) -> None:
    rows = [{"id": n, "text": f"row {n}"} for n in range(20)]
    library.add("edition", rows)
    rows[13]["text"] = "another"
    library.add("edition", rows)
    one, other = version_of(library, "edition@1"), version_of(library, "edition@2")
    comparison = compare_versions(one, other)
    assert (comparison["equal"], comparison["first"]["row"], comparison["first"]["field"]) == (
        False,
        13,
        "text",
    )
    assert [side["preview"] for side in comparison["first"]["sides"]] == ["row 13", "another"]
    assert compare_versions(one, one)["equal"]
    assert compare_versions(one, other, rows_max=5)["compared_rows"] == 5


def test_filters_say_how_many_rows_they_looked_at(library: Library) -> None:
    library.add(
        "people", [{"age": n % 50, "lang": "en" if n % 3 else "de", "text": "x" * n} for n in range(300)]
    )
    view = version_of(library, "people@1")
    page = filter_rows(view, "lang == 'de' and age > 40", count=3)
    assert page.rows == [42, 45, 48]
    more = filter_rows(view, "lang == 'de' and age > 40", first=page.next or 0, count=500)
    assert [*page.rows, *more.rows] == [n for n in range(300) if n % 3 == 0 and n % 50 > 40]
    assert more.next is None
    bounded = filter_rows(view, "age > 1000", looked_max=100)
    assert (bounded.rows, bounded.looked, bounded.next) == ([], 100, 100)
    assert filter_rows(view, "lang > 3").failed == 300


def test_values_are_told_apart_by_what_they_hold() -> None:
    kinds = {
        b"\x89PNG\r\n\x1a\n....": "image/png",
        b"\xff\xd8\xff\xe0": "image/jpeg",
        b"RIFF....WAVEfmt ": "audio/wav",
        b"OggS\0\0OpusHead": "audio/ogg",
        b"\0\0\0\x18ftypmp42": "video/mp4",
        b"\x1a\x45\xdf\xa3": "video/webm",
    }
    assert {data: media_of(data).type for data in kinds} == kinds  # type: ignore[union-attr]
    assert [media_of(data) for data in (b"<svg onload=x>", b"BMW drives", b"", b"\0" * 80)] == [None] * 4
    assert field_of("a", np.zeros((50, 3), np.float32)).kind == "trajectory"
    assert field_of("a", [[0.1, 0.2]] * 9).kind == "trajectory"
    assert field_of("a", np.zeros((50, 64, 64, 3), np.uint8)).kind == "array"
    assert trajectory_of([{"x": 1}] * 9) is None
    cut = field_of("text", "x" * 5000)
    assert (len(cut.preview), cut.cut) == (2000, "3,000 characters of 5,000")
    assert field_of("n", float("nan")).preview == "nan"
    assert field_of("n", 1 << 70).preview == str(1 << 70)
