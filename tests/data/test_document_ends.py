"""Tokens that begin and end documents: added when they are tokenised, or put after them when they are packed."""

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.errors import CursorForeign, RecipeInvalid
from tests.data.corpus import Corpus, assert_once, some_documents

SEPARATOR, BOS, EOS = 990, 991, 992


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Documents without numbers from 900 on, of which some are empty."""
    corpus = Corpus(tmp_path_factory.mktemp("texts"))
    documents = [[n % 900 for n in document] for document in some_documents(120, longest=30, seed=3)]
    corpus.add("web", documents, shards=3)
    return corpus


def ended(document: list[int], *, before: tuple[int, ...] = (), after: tuple[int, ...] = ()) -> list[int]:
    """A document with tokens around it; nothing is put around an empty one."""
    return [*before, *document, *after] if document else []


def recipe_of(corpus: Corpus, *stages: Any, **fields: Any) -> ps.Recipe:
    about = {"exhaustion": "pad", "stages": list(stages)} | fields
    return corpus.recipe(ps.Source("web@1", epochs=1), **about)


class _Ended:
    """A corpus whose documents are taken to have other ends than they were written with."""

    def __init__(self, corpus: Corpus, **ends: tuple[int, ...]) -> None:
        self.corpus = corpus
        self._written = corpus.documents
        self._ends = ends

    def __enter__(self) -> Corpus:
        self.corpus.documents = {
            name: [ended(document, **self._ends) for document in documents]
            for name, documents in self._written.items()
        }
        return self.corpus

    def __exit__(self, *_: Any) -> None:
        self.corpus.documents = self._written


@pytest.mark.parametrize("policy", ["concat", "fit"])
def test_tokenize_puts_tokens_around_documents(texts: Corpus, policy: Any) -> None:
    """Goal: counted in lengths, in the loss, none around nothing. Method: every token of an epoch is traced."""
    tokenize = ps.Tokenize(str(texts.tokenizer), bos=BOS, eos=str(EOS))
    batches = texts.read(recipe_of(texts, tokenize, ps.Pack(16, policy)))
    with _Ended(texts, before=(BOS,), after=(EOS,)) as expected:
        assert_once(expected.trace(batches), "web", 0, dict(enumerate(expected.documents["web"])))
    ends = [batch["loss_mask"][np.isin(batch["tokens"], [BOS, EOS])] for batch in batches]
    assert (np.concatenate(ends) == 1).all()


@pytest.mark.parametrize("shuffle", ["full", "none"])
@pytest.mark.parametrize("policy", ["concat", "fit"])
def test_pack_puts_a_token_after_documents(texts: Corpus, policy: Any, shuffle: str) -> None:
    pack = ps.Pack(16, policy, separator=SEPARATOR)
    batches = texts.read(recipe_of(texts, ps.Tokenize(str(texts.tokenizer)), pack, shuffle=shuffle))
    with _Ended(texts, after=(SEPARATOR,)) as expected:
        assert_once(expected.trace(batches), "web", 0, dict(enumerate(expected.documents["web"])))
    assert all((batch["loss_mask"][batch["tokens"] == SEPARATOR] == 1).all() for batch in batches)


@pytest.mark.parametrize("keep", ["start", "end"])
def test_truncated_documents_have_their_separator_too(texts: Corpus, keep: Any) -> None:
    """Goal: the separator comes after what is left. Method: rows of a packing that keeps documents whole and in order."""
    stages = [ps.Tokenize(str(texts.tokenizer)), ps.Truncate(5, keep), ps.Pack(16, separator=SEPARATOR)]
    batches = texts.read(recipe_of(texts, *stages, shuffle="none"))
    tokens = np.concatenate([batch["tokens"][batch["loss_mask"] == 1] for batch in batches]).tolist()
    written = texts.documents["web"]
    cut = [document[:5] if keep == "start" else document[-5:] for document in written]
    assert tokens == [token for document in cut for token in ended(document, after=(SEPARATOR,))]


def test_a_separator_survives_changes_of_length(texts: Corpus) -> None:
    stages = [ps.Tokenize(str(texts.tokenizer)), ps.Pack([(0, 16), (7, 24), (11, 8)], separator=SEPARATOR)]
    batches = texts.read(recipe_of(texts, *stages, batch=2))
    with _Ended(texts, after=(SEPARATOR,)) as expected:
        assert_once(expected.trace(batches), "web", 0, dict(enumerate(expected.documents["web"])))


def test_eras_have_separators_and_ends(texts: Corpus) -> None:
    tokenize = ps.Tokenize(str(texts.tokenizer), eos=EOS)
    recipe = recipe_of(texts, tokenize, ps.Pack(16, separator=SEPARATOR), measure="eras")
    batches = texts.read(recipe)
    with _Ended(texts, after=(EOS, SEPARATOR)) as expected:
        assert_once(expected.trace(batches), "web", 0, dict(enumerate(expected.documents["web"])))


def test_stored_tokens_are_separated(tmp_path: Path) -> None:
    """Goal: files of tokens without ends, as others wrote them. Method: rows of an array, and conversations with a mask."""
    corpus = Corpus(tmp_path)
    rows = np.arange(60, dtype=np.uint16).reshape(12, 5)
    np.save(tmp_path / "rows.npy", rows)
    corpus.registry.register("rows", tmp_path / "rows.npy")
    source = ps.Source("rows@1", epochs=1)
    recipe = corpus.recipe(
        source, stages=[ps.Pack(12, separator=SEPARATOR)], shuffle="none", exhaustion="pad"
    )
    tokens = np.concatenate([batch["tokens"][batch["loss_mask"] == 1] for batch in corpus.read(recipe)])
    assert tokens.tolist() == [token for row in rows.tolist() for token in [*row, SEPARATOR]]
    wide = corpus.recipe(source, stages=[ps.Pack(12, separator=1 << 16)])
    with pytest.raises(RecipeInvalid, match="does not fit"):
        corpus.read(wide, 1)


def test_a_separator_counts_in_the_loss_of_conversations(texts: Corpus, tmp_path: Path) -> None:
    template = "{% for m in messages %}{{ m.content }} {% endfor %}"
    talks = [
        [{"role": "user", "content": "1 2"}, {"role": "assistant", "content": f"{n} 4"}] for n in range(8)
    ]
    path = tmp_path / "talks.jsonl"
    path.write_text("".join(json.dumps({"messages": messages}) + "\n" for messages in talks))
    texts.registry.register("talks", path)
    stages = [ps.Chat(str(texts.tokenizer), template), ps.Pack(5, separator=SEPARATOR)]
    recipe = texts.recipe(ps.Source("talks@1", epochs=1), stages=stages, shuffle="none", exhaustion="pad")
    batches = texts.read(recipe)
    assert [row.tolist() for batch in batches for row in batch["tokens"]] == [
        [1, 2, n, 4, SEPARATOR] for n in range(8)
    ]
    assert all(row.tolist() == [0, 0, 1, 1, 1] for batch in batches for row in batch["loss_mask"])


def test_digests_stay_what_they_were_without_any_of_it(texts: Corpus) -> None:
    """Goal: new fields are off by default and leave no trace. Method: documents written out as they were."""
    tokenize = ps.Tokenize(str(texts.tokenizer))
    assert set(tokenize.document()) == {"kind", "tokenizer", "field", "special"}
    assert ps.Pack(16).document() == {"kind": "pack", "length": 16, "policy": "concat"}
    plain = recipe_of(texts, tokenize, ps.Pack(16))
    others = [
        recipe_of(texts, ps.Tokenize(str(texts.tokenizer), bos=BOS), ps.Pack(16)),
        recipe_of(texts, ps.Tokenize(str(texts.tokenizer), eos=EOS), ps.Pack(16)),
        recipe_of(texts, tokenize, ps.Pack(16, separator=0)),
        recipe_of(texts, tokenize, ps.Pack(16, separator=SEPARATOR)),
    ]
    assert len({recipe.digest for recipe in [plain, *others]}) == 5
    named = ps.Tokenize(str(texts.tokenizer), eos=str(EOS))
    assert named.document() == ps.Tokenize(str(texts.tokenizer), eos=EOS).document()
    assert len({tuple(batch.digest for batch in texts.read(recipe)) for recipe in [plain, *others]}) == 5


CONFIGURATIONS: dict[str, tuple[dict[str, Any], int]] = {
    "tokenizer_config.json": ({"eos_token": "12"}, 12),
    "special_tokens_map.json": ({"eos_token": {"content": "13"}}, 13),
    "generation_config.json": ({"eos_token_id": [14, 15]}, 14),
    "config.json": ({"eos_token_id": 16}, 16),
}


@pytest.fixture
def beside(texts: Corpus, tmp_path: Path) -> Path:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(texts.tokenizer.read_bytes())
    return path


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_auto_is_what_the_configuration_says(beside: Path, name: str) -> None:
    document, expected = CONFIGURATIONS[name]
    (beside.parent / name).write_text(json.dumps(document))
    assert ps.Tokenize(str(beside), eos="auto").specials.eos == expected


def test_auto_is_what_the_tokenizer_adds_itself(beside: Path) -> None:
    from tokenizers import Tokenizer
    from tokenizers.processors import TemplateProcessing

    tokenizer = Tokenizer.from_file(str(beside))
    tokenizer.post_processor = TemplateProcessing(single="7 $A 8", special_tokens=[("7", 7), ("8", 8)])
    tokenizer.save(str(beside))
    specials = ps.Tokenize(str(beside), bos="auto", eos="auto").specials
    assert (specials.bos, specials.eos) == (7, 8)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "nobody says which": ({"eos": "auto"}, "nothing beside"),
    "no such name": ({"eos": "<|nothing|>"}, "no token '<|nothing|>'"),
    "no such number": ({"bos": 5000}, "no token 5000"),
    "neither name nor number": ({"bos": 1.5}, "number or name"),
    "negative": ({"bos": -1}, "number or name"),
    "twice": ({"bos": 1, "add_special": True}, "already"),
    "no way to treat text": ({"special_in_text": "maybe"}, "plain, token or error"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_tokens_that_cannot_be_found_are_said_at_once(beside: Path, what: str) -> None:
    fields, reason = REFUSED[what]
    with pytest.raises(RecipeInvalid, match=reason.replace("|", r"\|")):
        ps.Tokenize(str(beside), **fields)


def test_a_separator_that_maps_would_not_see_is_refused(texts: Corpus) -> None:
    from tests.data import token_maps

    stages = [
        ps.Tokenize(str(texts.tokenizer)),
        ps.Pack(16, separator=1),
        ps.Map(token_maps.noisy, random=True),
    ]
    with pytest.raises(RecipeInvalid, match="separator"):
        texts.read(recipe_of(texts, *stages), 1)
    for wrong in (-1, 1 << 32, "<s>"):
        with pytest.raises(RecipeInvalid, match="separator"):
            ps.Pack(16, separator=wrong)  # type: ignore[arg-type]
    with pytest.raises(RecipeInvalid, match="separator"):
        ps.Pack(16, "crop", separator=1)


@pytest.fixture(scope="module")
def spelled(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Documents of which three spell a special token."""
    from tokenizers import Tokenizer

    corpus = Corpus(tmp_path_factory.mktemp("spelled"))
    tokenizer = Tokenizer.from_file(str(corpus.tokenizer))
    tokenizer.add_special_tokens(["<|end|>"])
    tokenizer.enable_truncation(512)
    tokenizer.save(str(corpus.tokenizer))
    folder = corpus.folder / "web"
    folder.mkdir()
    rows = [{"text": f"{n} 2 3" + (" <|end|> 4" if n in (5, 17, 31) else "")} for n in range(40)]
    (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    corpus.registry.register("web", folder)
    return corpus


def spelling(corpus: Corpus, in_text: Any = "plain", **fields: Any) -> ps.Recipe:
    stages = [ps.Tokenize(str(corpus.tokenizer), special_in_text=in_text), ps.Pack(16)]
    return corpus.recipe("web@1", stages=stages, **fields)


@pytest.mark.parametrize("in_text", ["plain", "token"])
def test_rows_that_spell_special_tokens_are_counted_and_said(
    spelled: Corpus, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str], in_text: str
) -> None:
    from penstock.cli.main import main

    with caplog.at_level(logging.WARNING), spelled.open(spelling(spelled, in_text)) as feed:
        (prepared,) = feed.plan.prepared
        next(feed)
    off, count = prepared.notes
    assert off.startswith("truncation in tokenizer.json is switched off (")
    assert "max_length 512" in off
    assert count.startswith("3 rows spell special tokens: ")
    assert f'special_in_text = "{in_text}"' in count
    assert [record.getMessage() for record in caplog.records] == [f"web: {off}", f"web: {count}"]
    assert main(["data", "show", "web@1", "--registry", str(spelled.folder / "registry")]) == 0
    shown = capsys.readouterr().out
    assert "switched off" in shown
    assert f'special_in_text = "{in_text}"' in shown


def test_rows_that_spell_special_tokens_may_be_errors(spelled: Corpus) -> None:
    with pytest.raises(ps.errors.SampleUndecodable, match=r"row 5 .*special_in_text"):
        spelled.read(spelling(spelled, "error"), 1)
    with spelled.open(spelling(spelled, "error", undecodable="mask")) as feed:
        assert [entry.row for entry in feed.plan.prepared[0].undecodable] == [5, 17, 31]


def test_a_run_from_before_resumes_with_token_and_is_told_so(spelled: Corpus) -> None:
    """Goal: the way back is in the error. Method: ``token`` is what recipes were; its cursor comes to a recipe of today."""
    with spelled.open(spelling(spelled, "token")) as feed:
        next(feed)
        cursor = feed.cursor
    with pytest.raises(CursorForeign) as raised:
        spelled.open(spelling(spelled), cursor=cursor)
    assert 'special_in_text = "token"' in f"{raised.value.hint}"
    with spelled.open(spelling(spelled, "token"), cursor=cursor) as feed:
        assert next(feed).step == 1
    with pytest.raises(CursorForeign) as raised:
        spelled.open(spelling(spelled, seed=99), cursor=cursor)
    assert "special_in_text" not in f"{raised.value.hint}"
