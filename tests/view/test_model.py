"""BatchView: exact bytes of tokens, windows that say what they leave out, rows of versions, and how all of it travels."""

import subprocess
import sys
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import RowOutOfRange, TokenOutOfRange, UsageError
from penstock.view.address import parse
from penstock.view.model import BatchView, RecordView, TokenKind, pack, unpack
from penstock.view.model.tokens.glyphs import shown
from penstock.view.model.tokens.samples import Samples
from penstock.view.model.tokens.vocabulary import read_ranks, read_vocabulary
from penstock.view.opener import OpenedStream, OpenedVersion, Opener
from tests.data.gallery import Gallery
from tests.view.library import HOSTILE, Library, byte_level, metaspace, ranks, word_pieces


def tokens_of(library: Library, recipe: str, step: int = 0) -> BatchView:
    """The batch of a recipe's step."""
    opened = library.opener.open(parse(f"{recipe}#step={step}"))
    assert isinstance(opened, OpenedStream)
    view = opened.batch()
    assert isinstance(view, BatchView)
    return view


@pytest.mark.parametrize("style", ["byte level", "metaspace", "ranks"])
def test_the_bytes_of_tokens_are_the_text_exactly(tmp_path: Path, style: str) -> None:
    """Goal: byte-true tokens. Method: encode hard text with the real library and put the bytes of its tokens together."""
    if style == "ranks":
        import tiktoken

        vocabulary = read_ranks(ranks(tmp_path / "r.tiktoken"), {"<|end|>": 300})
        table = {vocabulary.bytes_of(n): n for n in vocabulary.texts}
        encoding = tiktoken.Encoding("r", pat_str=r"\w+|\W+", mergeable_ranks=table, special_tokens={})
        encoded = [encoding.encode(text) for text in HOSTILE]
    else:
        from tokenizers import Tokenizer

        make = byte_level if style == "byte level" else metaspace
        path = make(tmp_path / "tokenizer.json")
        tokenizer = Tokenizer.from_file(str(path))
        vocabulary = read_vocabulary(path)
        encoded = [tokenizer.encode(text, add_special_tokens=False).ids for text in HOSTILE]
    assert vocabulary.style == style
    for text, numbers in zip(HOSTILE, encoded, strict=True):
        assert b"".join(vocabulary.bytes_of(n) or b"" for n in numbers) == text.encode()


def test_pieces_specials_and_unknown_numbers_are_told_apart(tmp_path: Path) -> None:
    pieces = read_vocabulary(word_pieces(tmp_path / "bert.json"))
    assert (pieces.style, pieces.bytes_of(4), pieces.display(4)[0]) == ("pieces", b"s", b"##s")
    assert pieces.display(1) == (b"[CLS]", TokenKind.SPECIAL)
    assert pieces.display(99) == ("⟨99⟩".encode(), TokenKind.UNKNOWN)
    assert pieces.size == 10
    level = read_vocabulary(byte_level(tmp_path / "tokenizer.json"))
    halves = [n for n in range(level.size) if level.display(n)[1] is TokenKind.PARTIAL]
    assert all("\ufffd" not in level.display(n)[0].decode() for n in halves)
    assert {level.bytes_of(n) for n in halves} >= {bytes([byte]) for byte in range(0x80, 0x100)}
    with pytest.raises(UsageError, match=r"not a tokenizer\.json"):
        read_vocabulary(Path(__file__))


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_that_acts_or_hides_comes_through(text: str) -> None:
    """Goal: what is shown can be printed. Method: no control, format, bidi or unassigned character is left in the display."""
    words, partial, _ = shown(text.encode())
    assert not partial
    assert [c for c in words if unicodedata.category(c)[0] in "CZ" and c != " "] == []
    assert "\ufffd" not in words


@given(st.binary(max_size=64))
def test_no_bytes_at_all_come_through_as_anything_but_shapes(data: bytes) -> None:
    words, partial, _ = shown(data)
    assert [c for c in words if unicodedata.category(c)[0] in "CZ" and c != " "] == []
    assert "\ufffd" not in words
    try:
        data.decode()
    except UnicodeDecodeError:
        assert partial
    else:
        assert not partial


def test_bytes_that_are_no_characters_are_shown_as_bytes() -> None:
    assert shown("☃".encode()[:2]) == ("⟨E2⟩⟨98⟩", True, False)
    assert shown(b"a\xffb") == ("a⟨FF⟩b", True, False)
    assert shown(b"a\n\tb") == ("a⏎⇥b", False, False)
    assert shown(b"\x1b[31m") == ("␛[31m", False, True)
    assert shown("\u202e".encode()) == ("⟨U+202E⟩", False, True)
    assert shown("\u0301".encode())[0] == "◌\u0301"


def test_a_window_is_that_part_of_the_batch_and_says_what_is_left_out(library: Library) -> None:
    view = tokens_of(library, library.recipe("texts@1"), step=1)
    whole, part = view.window(), view.window((1, 3), (8, 20))
    assert whole.cuts == []
    assert part.cuts == ["rows 1:3 of 4", "tokens 8:20 of 32"]
    for name, values in part.columns.items():
        assert np.array_equal(values, whole.columns[name][1:3, 8:20]), name
    assert part.texts() == [row[8:20] for row in whole.texts()[1:3]]
    assert np.array_equal(whole.columns["tokens"], view.arrays["tokens"])
    # Documents of the window, each where the batch says that it stands.
    for document in part.documents:
        (origin,) = view.origin(document.row, document.at)
        assert (origin.sample, origin.row_span) == (document.sample, (document.at, document.stop))
    assert view.window((9, 12), (0, 5)).columns["tokens"].shape == (0, 5)


def test_a_token_has_its_exact_bytes_and_its_origin(library: Library) -> None:
    """Goal: provenance. Method: the bytes of a row's tokens, put together, are what its samples hold."""
    view = tokens_of(library, library.recipe("texts@1"))
    version = library.registry.resolve("texts@1")
    for origin in view.origin(0):
        stretch = range(*origin.row_span)
        data = b"".join(bytes.fromhex(view.token(0, at)["bytes"]) for at in stretch)
        text = version[origin.sample]["text"].encode()
        assert data in text
        if origin.token_span[0] == 0:
            assert text.startswith(data)
    detail = view.token(0, 3)
    assert (detail["row"], detail["token"], detail["id"]) == (0, 3, int(view.arrays["tokens"][0, 3]))
    with pytest.raises(RowOutOfRange):
        view.token(4, 0)
    with pytest.raises(TokenOutOfRange, match="no token 32"):
        view.token(0, 32)


def test_packed_columns_are_the_window_again(library: Library) -> None:
    view = tokens_of(library, library.recipe("texts@1"))
    window = view.window((0, 2))
    data = window.packed()
    assert data[:4] == b"PSV1"
    assert (8 + int.from_bytes(data[4:8], "little")) % 8 == 0
    facts, columns = unpack(data)
    assert facts["rows"] == [0, 2]
    assert facts["kinds"][TokenKind.PADDING] == "padding"
    assert np.array_equal(columns["tokens"], window.columns["tokens"])
    assert columns["text"].tobytes() == window.text
    assert columns["text_ends"][-1] == len(window.text)
    assert columns["document_sample"].tolist() == [document.sample for document in window.documents]
    for bad in (b"nope", data[:60], pack({}, {})[:9]):
        with pytest.raises(UsageError, match="packed columns"):
            unpack(bad)


def test_columns_of_the_batchs_shape_are_shown_and_others_are_not(library: Library) -> None:
    """Goal: per-token numbers. Method: the arrays of a training loop, with logprobs beside them."""
    base = tokens_of(library, library.recipe("texts@1"))
    logprobs = np.linspace(-3, 0, base.rows * base.length).reshape(base.rows, base.length)
    arrays = {**base.arrays, "logprobs": logprobs, "loss": np.zeros(base.rows), "name": ["a"] * base.rows}
    view = BatchView(
        arrays, address=base.address, sources=base.sources, documents=base.documents, facts={"step": 7}
    )
    assert view.numeric == ["logprobs"]
    assert np.array_equal(view.window((0, 1), (0, 3)).columns["logprobs"], logprobs[:1, :3])


def test_numbers_of_any_size_are_shown(library: Library) -> None:
    """Goal: tokens that make no sense are shown as they are. Method: negative and huge numbers beside ordinary ones."""
    base = tokens_of(library, library.recipe("texts@1"))
    tokens = np.asarray(base.arrays["tokens"]).astype(np.int64)
    tokens[0, :2] = -7, 1 << 40
    view = BatchView(
        {**base.arrays, "tokens": tokens},
        address=base.address,
        sources=base.sources,
        documents=base.documents,
        facts={},
    )
    window = view.window()
    assert window.texts()[0][:2] == ["⟨-7⟩", f"⟨{1 << 40}⟩"]
    assert window.texts()[0][2:] == base.window().texts()[0][2:]
    assert window.columns["kinds"][0, :2].tolist() == [TokenKind.UNKNOWN] * 2


def test_padding_and_sources_without_a_tokenizer(library: Library, tmp_path: Path) -> None:
    view = tokens_of(library, library.recipe("texts@1", length=128, policy="fit", pad=4))
    window = view.window()
    padded = np.asarray(view.arrays["segments"]) == 0
    assert padded.any()
    assert (window.columns["kinds"][padded] == TokenKind.PADDING).all()
    assert (window.columns["sources"][padded] == 0xFFFF).all()
    np.save(tmp_path / "rows.npy", np.arange(64, dtype=np.uint16).reshape(8, 8))
    library.registry.register("numbers", tmp_path / "rows.npy")
    recipe = library.write("numbers.toml", 'batch = 2\nshuffle = "none"\n[[sources]]\nname = "numbers@1"\n')
    plain = tokens_of(library, recipe).window()
    assert plain.texts()[0] == [str(n) for n in plain.columns["tokens"][0].tolist()]
    assert set(plain.columns["kinds"].flat) == {TokenKind.NUMBER}
    explained = Opener(library.registry, tokenizer=library.tokenizer).open(parse(recipe))
    assert isinstance(explained, OpenedStream)
    view = explained.batch()
    assert isinstance(view, BatchView)
    assert set(view.window().columns["kinds"].flat) != {TokenKind.NUMBER}


def test_a_recipe_that_is_measured_while_it_is_read_can_be_looked_at(library: Library) -> None:
    recipe = Path(library.recipe("texts@1", length=24))
    recipe.write_text('measure = "eras"\n' + recipe.read_text().replace('shuffle = "none"', ""))
    view = tokens_of(library, str(recipe), step=1)
    opened = library.opener.open(parse(str(recipe)))
    assert isinstance(opened, OpenedStream)
    stages = Samples(opened.plan, opened.vocabularies).stages(view, 0, 0)
    (first, *_), ids = stages["input"], stages["tokens"]["ids"]
    start, stop = first["token_span"]
    assert ids[start:stop] == view.arrays["tokens"][first["row"], slice(*first["row_span"])].tolist()


def test_unigram_models_and_plain_words_are_read(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    pieces = [
        ("<unk>", 0.0),
        *((f"<0x{byte:02X}>", -9.0) for byte in range(256)),
        ("▁snow", -1.0),
        ("▁", -2.0),
    ]
    unigram = Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=True))
    unigram.pre_tokenizer = pre_tokenizers.Metaspace()
    unigram.save(str(tmp_path / "unigram.json"))
    vocabulary = read_vocabulary(tmp_path / "unigram.json")
    numbers = unigram.encode("snow ☃").ids
    assert b"".join(vocabulary.bytes_of(n) or b"" for n in numbers) == " snow ☃".encode()
    words = Tokenizer(models.WordLevel({"[UNK]": 0, "snow": 1}, unk_token="[UNK]"))
    words.save(str(tmp_path / "words.json"))
    plain = read_vocabulary(tmp_path / "words.json")
    assert (plain.style, plain.bytes_of(1), plain.bytes_of(7)) == ("text", b"snow", None)


def test_lanes_of_a_step_are_its_rows(library: Library) -> None:
    recipe = library.recipe("texts@1")
    whole = tokens_of(library, recipe, step=2)
    for lane in range(2):
        opened = library.opener.open(parse(f"{recipe}#step=2,lane={lane}/2"))
        assert isinstance(opened, OpenedStream)
        view = opened.batch()
        assert isinstance(view, BatchView)
        assert str(view.address).endswith(f"#step=2,lane={lane}/2")
        assert np.array_equal(view.arrays["tokens"], whole.arrays["tokens"][lane * 2 : lane * 2 + 2])


def test_an_edited_recipe_is_opened_anew(library: Library) -> None:
    recipe = library.recipe("texts@1", length=16)
    first = tokens_of(library, recipe)
    assert tokens_of(library, recipe) is first
    path = Path(recipe)
    path.write_text(path.read_text().replace("length = 16", "length = 8"))
    assert tokens_of(library, recipe).length == 8


def test_a_view_that_may_not_measure_says_what_would_have_to_be(library: Library) -> None:
    library.add_texts("unread", HOSTILE)
    recipe = library.recipe("unread@1")
    with pytest.raises(UsageError, match="would have to be measured first"):
        Opener(library.registry, measure=False).open(parse(recipe))
    assert tokens_of(library, recipe).rows == 4
    assert Opener(library.registry, measure=False).open(parse(recipe)).kind == "stream"


def test_rows_of_a_version_have_fields_by_kind(tmp_path: Path) -> None:
    gallery = Gallery.make(tmp_path)
    opened = Opener(gallery.registry).open(parse("pictures@1/row/7"))
    assert isinstance(opened, OpenedVersion)
    assert opened.chosen_row == 7
    fields = {field.name: field for field in opened.row(7).fields}
    assert {name: field.kind for name, field in fields.items()} == {
        "__key__": "text",
        "png": "image",
        "json": "nested",
        "cls": "number",
    }
    assert fields["png"].type == "image/png"
    page = opened.page(38, 50)
    assert [row.number for row in page] == [38, 39]
    assert str(page[0].address) == "pictures@1/row/38"
    with pytest.raises(RowOutOfRange):
        opened.row(40)
    with pytest.raises(UsageError, match="no field 'x'"):
        opened.value(0, "x")


def test_records_of_a_batch_have_fields_by_kind_and_origins(tmp_path: Path) -> None:
    gallery = Gallery.make(tmp_path)
    recipe = tmp_path / "records.toml"
    recipe.write_text('batch = 6\n[[sources]]\nname = "pictures@1"\n[[sources]]\nname = "moves@1"\n')
    opened = Opener(gallery.registry).open(parse(f"{recipe}#step=1"))
    assert isinstance(opened, OpenedStream)
    view = opened.batch()
    assert isinstance(view, RecordView)
    for row in view.window(0, view.rows):
        kinds = {field["name"]: field["kind"] for field in row["fields"] if field["kind"] != "nothing"}
        (origin,) = row["origin"]
        wanted = {"png": "image"} if origin["source"] == "pictures" else {"obs": "array", "reward": "number"}
        assert wanted.items() <= kinds.items()


def test_looking_imports_no_framework_and_no_tokenizer() -> None:
    """Goal: a first screen in under a second. Method: what importing the model and the openings pulls in."""
    program = "import sys, penstock.view.opener; print(sorted({m.partition('.')[0] for m in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not {"torch", "jax", "tokenizers", "textual", "starlette", "rich", "pyarrow"} & set(
        eval(done.stdout)
    )
