"""Mistakes that people make with recipes and their data, each planted in good data."""

import base64
import random
from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.view.lint import Expected, LintReport
from tests.view.lint.bench import BOS, EOS, PAD, Bench, Case, Row, chats, modules, paragraphs, prose

PLANTED: list[Case] = []
Make = Callable[[Bench], LintReport]
FIT = {"kind": "pack", "length": 768, "policy": "fit"}
PACK = {"kind": "pack", "length": 256}


def planted(kind: str, words: str, *follow: str) -> Callable[[Make], Make]:
    """A line of the table."""

    def add(make: Make) -> Make:
        PLANTED.append(Case(make.__name__, words, make, kind, follow))
        return make

    return add


def some(change: Callable[[str], str], share: float = 0.5) -> list[str]:
    """Paragraphs, some of them changed."""
    draws = random.Random(1)
    return [change(text) if draws.random() < share else text for text in paragraphs()]


@planted("no-end-of-text", "documents are packed without a token between them")
def no_end_of_text(bench: Bench) -> LintReport:
    return bench.lint(bench.recipe(bench.texts(), bench.tokenize(special=False), PACK))


@planted("no-end-of-text", "stored tokens of documents, packed without a token between them")
def no_end_of_stored(bench: Bench) -> LintReport:
    texts = bench.texts()
    tokens = bench.stream(bench.recipe(texts, bench.tokenize(special=False), PACK)).plan.prepared[0].tokens
    rows = [np.asarray(next(iter(row.values()))) for row in tokens.take(range(200))]
    long = np.stack([row[:40] for row in rows if len(row) >= 40])
    recipe = bench.recipe(bench.stored("no-ends", long), PACK)
    return bench.lint(recipe, tokenizer=bench.tokenizer)


@planted("duplicate-documents", "one document is there two hundred times")
def copies_of_one(bench: Bench) -> LintReport:
    return bench.lint(
        bench.recipe(bench.texts("copied", [*paragraphs(), *paragraphs()[7:8] * 200])), steps=24
    )


@planted("duplicate-documents", "all rows are equal")
def all_rows_equal(bench: Bench) -> LintReport:
    ids = bench.encoded([" ".join(paragraphs()[:4])])[0][:128]
    rows = np.tile(np.array(ids, dtype=np.uint16), (64, 1))
    return bench.lint(
        {"batch": 4, "sources": [{"name": bench.stored("equal", rows)}]}, tokenizer=bench.tokenizer
    )


@planted(
    "near-duplicates", "all documents are equal, and rows show different parts of them", "duplicate-documents"
)
def all_long_documents_equal(bench: Bench) -> LintReport:
    texts = [" ".join(paragraphs()[:40])] * 200
    report = bench.lint(bench.recipe(bench.texts("long-equal", texts)), steps=12)
    assert report.findings[0].severity == "error"
    return report


@planted("duplicate-documents", "a tenth of the documents is there twice")
def some_twice(bench: Bench) -> LintReport:
    texts = [*paragraphs()[:200], *paragraphs()[50:100]]
    return bench.lint(bench.recipe(bench.texts("twice", texts)), steps=18)


@planted("near-duplicates", "documents that differ in a date and a name")
def near_duplicates(bench: Bench) -> LintReport:
    draws = random.Random(2)
    texts = [
        f"{draws.randint(1, 28)} May, {draws.random():.3f}: {text}"
        for text in paragraphs()[:40]
        for _ in range(4)
    ]
    draws.shuffle(texts)
    return bench.lint(bench.recipe(bench.texts("near", texts)))


@planted("boilerplate", "every page ends with the same menu")
def boilerplate(bench: Bench) -> LintReport:
    menu = " Home | About us | Contact | Privacy policy | Accept all cookies | Subscribe to our newsletter for more | Log in"
    return bench.lint(bench.recipe(bench.texts("menu", some(lambda text: text[:300] + menu, 0.9))))


@planted("repetitive-text", "a crawler's loop: documents say one sentence again and again")
def loops(bench: Bench) -> LintReport:
    return bench.lint(bench.recipe(bench.texts("loops", some(lambda text: (text[:60] + " ") * 20, 0.2))))


@planted("same-source", "one dataset under two names", "duplicate-documents")
def two_names(bench: Bench) -> LintReport:
    sources = [{"name": bench.texts()}, {"name": bench.texts(), "alias": "more-prose"}]
    return bench.lint(bench.recipe(sources), steps=4)


@planted("contamination", "a test set stands in the training data")
def contamination(bench: Bench) -> LintReport:
    texts = [(f"tests@1/row/{n}", text.upper()) for n, text in enumerate(paragraphs()[:50])]
    return bench.lint(bench.recipe(bench.texts()), steps=60, expected=Expected(against=texts))


@planted("contamination", "the same, with a tokenizer of words")
def contaminated_words(bench: Bench) -> LintReport:
    texts = [(f"tests@1/row/{n}", text) for n, text in enumerate(paragraphs()[:50])]
    stages = ({"kind": "tokenize", "tokenizer": str(bench.words_tokenizer)}, PACK)
    return bench.lint(bench.recipe(bench.texts(), *stages), steps=20, expected=Expected(against=texts))


@planted("mojibake", "UTF-8 was read as Windows-1252")
def mojibake(bench: Bench) -> LintReport:
    def wrong(text: str) -> str:
        return f"“{text}” – it’s naïve".encode().decode("cp1252", "ignore")

    return bench.lint(bench.recipe(bench.texts("mojibake", some(wrong, 0.1))))


@planted("mojibake", "Cyrillic text was read as Latin-1")
def cyrillic_mojibake(bench: Bench) -> LintReport:
    texts = [text.encode().decode("latin-1") for text in prose("абвгдежзиклмнопрстуф", 40)]
    return bench.lint(bench.recipe(bench.texts("cyrillic", [*paragraphs()[:100], *texts])))


@planted("replacement-characters", "bytes that were no UTF-8 were replaced")
def replaced(bench: Bench) -> LintReport:
    return bench.lint(
        bench.recipe(bench.texts("replaced", some(lambda text: text.replace("e", "\ufffd", 5), 0.2)))
    )


@planted("control-characters", "text of binary files, with NUL bytes")
def controls(bench: Bench) -> LintReport:
    return bench.lint(
        bench.recipe(bench.texts("controls", some(lambda text: text.replace(" ", "\x00", 6), 0.2)))
    )


@planted("whitespace-runs", "tables whose cells were cut out and whose spaces stayed", "repetitive-text")
def spaces(bench: Bench) -> LintReport:
    return bench.lint(
        bench.recipe(bench.texts("spaces", some(lambda text: text[:200] + " " * 300 + "\n" * 80, 0.3)))
    )


@planted("binary-text", "pictures inside of pages, as base64")
def pictures(bench: Bench) -> LintReport:
    draws = random.Random(4)

    def with_picture(text: str) -> str:
        return f"{text[:100]} data:image/png;base64,{base64.b64encode(draws.randbytes(400)).decode()}"

    return bench.lint(bench.recipe(bench.texts("pictures", some(with_picture, 0.2))))


@planted("markup", "pages whose HTML nobody took out")
def markup(bench: Bench) -> LintReport:
    def page(text: str) -> str:
        words = text.split()
        return (
            "<div class='c'>"
            + "".join(f"<p><a href='/{w}'>{w}</a> {n}<br/></p>" for n, w in enumerate(words))
            + "</div>"
        )

    return bench.lint(bench.recipe(bench.texts("pages", some(page, 0.4))))


@planted("lost-case", "everything was made small for a tokenizer that knows capitals")
def lost_case(bench: Bench) -> LintReport:
    return bench.lint(bench.recipe(bench.texts("small", [text.lower() for text in paragraphs()])))


@planted("special-inside", "documents spell the token that ends texts, and it becomes one")
def special_inside(bench: Bench) -> LintReport:
    texts = some(lambda text: text.replace(". ", ". <|endoftext|> ", 1), 0.3)
    return bench.lint(bench.recipe(bench.texts("spelled", texts), bench.tokenize(**bench.spelling), PACK))


@planted("special-inside", "the token that begins texts stands in their middle")
def begun_inside(bench: Bench) -> LintReport:
    texts = some(lambda text: text.replace(". ", ". <|begin_of_text|>", 1), 0.3)
    return bench.lint(
        bench.recipe(bench.texts("begun-inside", texts), bench.tokenize(**bench.spelling), PACK)
    )


@planted("doubled-special", "the text ends with the token that the tokenizer adds again")
def ended_twice(bench: Bench) -> LintReport:
    texts = [f"{text}<|endoftext|>" for text in paragraphs()]
    return bench.lint(bench.recipe(bench.texts("ended", texts), bench.tokenize(**bench.spelling), PACK))


@planted("mixed-specials", "documents of one source begin with a token, those of the other do not")
def mixed(bench: Bench) -> LintReport:
    begun = [f"<|begin_of_text|>{text}" for text in modules()]
    sources = [{"name": bench.texts()}, {"name": bench.texts("begun", begun)}]
    return bench.lint(bench.recipe(sources, bench.tokenize(**bench.spelling), PACK), steps=20)


@planted("tiny-documents", "an extraction that left one word of every fourth page")
def tiny(bench: Bench) -> LintReport:
    return bench.lint(bench.recipe(bench.texts("tiny", some(lambda text: "No", 0.3))))


@planted("empty-documents", "rows without a text")
def empty(bench: Bench) -> LintReport:
    texts = some(lambda text: "", 0.3)
    return bench.lint(bench.recipe(bench.texts("empty", texts), bench.tokenize(), PACK))


@planted("mostly-padding", "short texts in long rows, one each")
def padding(bench: Bench) -> LintReport:
    name = bench.texts("short", [text[:150] for text in paragraphs()])
    return bench.lint(bench.recipe(name, bench.tokenize(), {"kind": "pad", "length": 512, "token": PAD}))


@planted("truncated", "a limit that most documents pass")
def truncated(bench: Bench) -> LintReport:
    stages = (bench.tokenize(), {"kind": "truncate", "length": 48}, {"kind": "pack", "length": 256})
    return bench.lint(bench.recipe(bench.texts(), *stages))


@planted("dominating-source", "long documents of one source beside short ones of another, one a row")
def dominating(bench: Bench) -> LintReport:
    long, short = [text for text in paragraphs() if len(text) > 700], [text[:60] for text in paragraphs()]
    sources = [
        {"name": bench.texts("longest", long), "weight": 0.5},
        {"name": bench.texts("shortest", short), "weight": 0.5},
    ]
    stages = (
        bench.tokenize(),
        {"kind": "truncate", "length": 192},
        {"kind": "pad", "length": 192, "token": PAD},
    )
    return bench.lint(bench.recipe(sources, *stages), expected=Expected(truncated_max=1.0))


@planted("outside-vocabulary", "tokens of a larger vocabulary")
def outside(bench: Bench) -> LintReport:
    rows = _stored(bench)
    rows[::5, 7] = 60_000
    return bench.lint(
        {"batch": 4, "sources": [{"name": bench.stored("outside", rows)}]}, tokenizer=bench.tokenizer
    )


@planted("wrong-tokenizer", "tokens that another tokenizer of the same size made")
def wrong_tokenizer(bench: Bench) -> LintReport:
    recipe = {"batch": 4, "sources": [{"name": bench.stored("right", _stored(bench))}]}
    report = bench.lint(recipe, tokenizer=bench.other_tokenizer)
    # What a wrong tokenizer shows is no text, so whatever is said of that text says nothing.
    report.findings = [finding for finding in report.findings if finding.severity == "error"]
    return report


@planted("unknown-tokens", "a tokenizer of words that the text does not have")
def unknown(bench: Bench) -> LintReport:
    texts = bench.texts("unknown", prose("abcdefghijklmnop", 200))
    return bench.lint(
        bench.recipe(texts, {"kind": "tokenize", "tokenizer": str(bench.words_tokenizer)}, PACK)
    )


@planted("loss-on-padding", "rows were padded before they were stored, so padding is data")
def padded_before(bench: Bench) -> LintReport:
    rows = np.full((64, 160), PAD, dtype=np.uint16)
    for row, ids in enumerate(bench.encoded(paragraphs())[:64]):
        rows[row, : min(len(ids), 159)] = ids[:159]
        rows[row, min(len(ids), 159)] = EOS
    return bench.lint(
        {"batch": 4, "sources": [{"name": bench.stored("padded", rows)}]}, tokenizer=bench.tokenizer
    )


@planted("loss-on-padding", "the same, padded with zeros, and nobody said what padding is")
def padded_with_zeros(bench: Bench) -> LintReport:
    rows = np.zeros((64, 160), dtype=np.uint16)
    for row, ids in enumerate(bench.encoded(paragraphs())[:64]):
        rows[row, : min(len(ids), 159)] = ids[:159]
    return bench.lint({"batch": 4, "sources": [{"name": bench.stored("zeros", rows)}]})


@planted(
    "attention-leak",
    "stored rows hold several documents, and nothing keeps them apart",
    "positions-not-reset",
)
def joined(bench: Bench) -> LintReport:
    flat = [token for ids in bench.encoded(paragraphs()) for token in (BOS, *ids, EOS)]
    rows = np.array(flat[: len(flat) // 256 * 256], dtype=np.uint16).reshape(-1, 256)
    return bench.lint(
        {"batch": 4, "sources": [{"name": bench.stored("joined", rows)}]}, tokenizer=bench.tokenizer
    )


def _stored(bench: Bench) -> "np.ndarray[Any, Any]":
    flat = [token for ids in bench.encoded(paragraphs()) for token in (*ids, EOS)]
    return np.array(flat[: len(flat) // 256 * 256], dtype=np.uint16).reshape(-1, 256)


def _chats(bench: Bench, name: str, change: Callable[[Row], Row], **stage: Any) -> LintReport:
    rows = bench.rows(name, [change(chat) for chat in chats(60)])
    return bench.lint(bench.recipe(rows, bench.chat(**stage), FIT), steps=6)


@planted("chat-as-text", "conversations were rendered as text and tokenised, so prompts count", "boilerplate")
def as_text(bench: Bench) -> LintReport:
    texts = [
        "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in c["messages"])
        for c in chats(60)
    ]
    return bench.lint(
        bench.recipe(bench.texts("rendered", texts), bench.tokenize(**bench.spelling), FIT), steps=6
    )


@planted("chat-as-text", "instructions and responses as plain text")
def alpaca(bench: Bench) -> LintReport:
    texts = [
        f"### Instruction:\n{c['messages'][1]['content']}\n\n### Response:\n{c['messages'][2]['content']}"
        for c in chats(60)
    ]
    return bench.lint(bench.recipe(bench.texts("alpaca", texts), bench.tokenize(), FIT), steps=6)


@planted("chat-as-text", "conversations as plain text, with the names of the roles before what they say")
def named_roles(bench: Bench) -> LintReport:
    texts = [
        f"User: {c['messages'][1]['content']}\nAssistant: {c['messages'][2]['content']}" for c in chats(60)
    ]
    return bench.lint(bench.recipe(bench.texts("named-roles", texts), bench.tokenize(), FIT), steps=6)


@planted("roles-swapped", "user and assistant are the wrong way round")
def swapped(bench: Bench) -> LintReport:
    other = {"user": "assistant", "assistant": "user", "system": "system"}
    return _chats(
        bench,
        "swapped",
        lambda chat: {"messages": [{**m, "role": other[m["role"]]} for m in chat["messages"]]},
    )


@planted("roles-swapped", "prompt and response were read from each other's field")
def swapped_fields(bench: Bench) -> LintReport:
    def change(chat: Row) -> Row:
        _, asked, said = chat["messages"]
        return {"messages": [{**asked, "content": said["content"]}, {**said, "content": asked["content"]}]}

    return _chats(bench, "fields", change)


@planted("no-end-of-turn", "a template without an end of turn")
def no_end_of_turn(bench: Bench) -> LintReport:
    template = "{% for m in messages %}\n{{ m.role }}: {{ m.content }}{% endfor %}{% if add_generation_prompt %}\nassistant: {% endif %}"
    return _chats(bench, "chats-60", lambda chat: chat, template=template)


@planted("end-not-learned", "a template that marks the answer without its end")
def end_not_learned(bench: Bench) -> LintReport:
    template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
        "{% endgeneration %}{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}"
    )
    return _chats(bench, "chats-60", lambda chat: chat, template=template)


@planted("loss-on-prompt", "a template that marks what users say too")
def marked_prompts(bench: Bench) -> LintReport:
    template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}\n"
        "{% endfor %}"
    )
    return _chats(bench, "two-turns", lambda chat: {"messages": chat["messages"][1:]}, template=template)


@planted("double-template", "contents were rendered with a template before")
def double_template(bench: Bench) -> LintReport:
    return _chats(
        bench,
        "double",
        lambda chat: {
            "messages": [
                {**m, "content": f"<|im_start|>{m['role']}\n{m['content']}"} for m in chat["messages"]
            ]
        },
    )


@planted("special-in-answer", "answers spell the token that ends texts")
def spelled_answer(bench: Bench) -> LintReport:
    def change(chat: Row) -> Row:
        *before, said = chat["messages"]
        return {"messages": [*before, {**said, "content": said["content"] + " <|endoftext|> and so on"}]}

    return _chats(bench, "spelled-answers", change)


@planted("empty-answers", "every fifth answer is empty")
def empty_answers(bench: Bench) -> LintReport:
    counter = iter(range(1000))

    def change(chat: Row) -> Row:
        *before, said = chat["messages"]
        return {"messages": [*before, {**said, "content": "" if next(counter) % 5 == 0 else said["content"]}]}

    return _chats(bench, "empty-answers", change)


@planted("answers-cut", "conversations end to end in rows that are shorter than they are")
def answers_cut(bench: Bench) -> LintReport:
    rows = bench.rows("chats-60", chats(60))
    return bench.lint(bench.recipe(rows, bench.chat(), {"kind": "pack", "length": 64}), steps=20)


@planted("row-without-loss", "prompts that fill rows of their own")
def prompts_fill_rows(bench: Bench) -> LintReport:
    def change(chat: Row) -> Row:
        system, asked, said = chat["messages"]
        return {
            "messages": [
                system,
                {**asked, "content": " ".join(paragraphs()[:12])},
                {**said, "content": "Yes."},
            ]
        }

    rows = bench.rows("prompts", [change(chat) for chat in chats(40)])
    return bench.lint(bench.recipe(rows, bench.chat(), {"kind": "pack", "length": 128}), steps=12)
