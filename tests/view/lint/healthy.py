"""Good data of many kinds, of which lint must have nothing to say."""

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.view.lint import Expected, LintReport, lint_batches
from penstock.view.model.tokens.vocabulary import read_vocabulary
from tests.view.lint.bench import BOS, CHATML, EOS, IMAGE, PAD, Bench, Case, chats, modules, paragraphs, prose

HEALTHY: list[Case] = []
Make = Callable[[Bench], LintReport]


def healthy(words: str) -> Callable[[Make], Make]:
    """A line of the table."""

    def add(make: Make) -> Make:
        HEALTHY.append(Case(make.__name__, words, make))
        return make

    return add


@healthy("prose, packed end to end, part of one epoch")
def packed_prose(bench: Bench) -> LintReport:
    return bench.lint(bench.recipe(bench.texts()))


@healthy("texts that the recipe ends itself, with a token by its name")
def ended_by_name(bench: Bench) -> LintReport:
    stage = bench.tokenize(special=False, eos="<|endoftext|>", bos="<|begin_of_text|>")
    return bench.lint(bench.recipe(bench.texts(), stage, {"kind": "pack", "length": 256}))


@healthy("crops at random places, which have tokens twice in an epoch")
def cropped(bench: Bench) -> LintReport:
    pack = {"kind": "pack", "length": 256, "policy": "crop"}
    return bench.lint(bench.recipe(bench.texts(), bench.tokenize(), pack))


@healthy("texts with a separator between them")
def separated(bench: Bench) -> LintReport:
    pack = {"kind": "pack", "length": 256, "separator": EOS}
    return bench.lint(bench.recipe(bench.texts(), bench.tokenize(special=False), pack))


@healthy("texts that spell special tokens, and stay text")
def spelled_plainly(bench: Bench) -> LintReport:
    texts = [f"{text} So <|endoftext|> and </s> are written." for text in paragraphs()[::9]]
    return bench.lint(bench.recipe(bench.texts("plainly", [*paragraphs(), *texts])))


@healthy("the same, in windows longer than an epoch: samples come again")
def many_epochs(bench: Bench) -> LintReport:
    return bench.lint(bench.recipe(bench.texts("few", paragraphs()[:60])), steps=20)


@healthy("a window that begins in the middle of a later epoch")
def later_epoch(bench: Bench) -> LintReport:
    from penstock.view.lint import lint_stream

    return lint_stream(bench.stream(bench.recipe(bench.texts("few", paragraphs()[:60]))), range(31, 52))


@healthy("a tiny dataset of five documents, read forty times")
def tiny_dataset(bench: Bench) -> LintReport:
    return bench.lint(bench.recipe(bench.texts("five", paragraphs()[:5])), steps=20)


@healthy("one document")
def one_document(bench: Bench) -> LintReport:
    return bench.lint(bench.recipe(bench.texts("one", paragraphs()[:1])), steps=4)


@healthy("prose, whole documents fitted into rows")
def fitted(bench: Bench) -> LintReport:
    return bench.lint(
        bench.recipe(bench.texts(), bench.tokenize(), {"kind": "pack", "length": 512, "policy": "fit"})
    )


@healthy("prose, one document a row, padded")
def padded(bench: Bench) -> LintReport:
    stages = (
        bench.tokenize(),
        {"kind": "truncate", "length": 400},
        {"kind": "pad", "length": 400, "token": PAD},
    )
    rows = bench.texts("long", [text for text in paragraphs() if len(text) > 500])
    return bench.lint(bench.recipe(rows, *stages))


@healthy("prose in the order of the file, not shuffled")
def in_order(bench: Bench) -> LintReport:
    return bench.lint(bench.recipe(bench.texts(), shuffle="none"))


@healthy("programs")
def code(bench: Bench) -> LintReport:
    return bench.lint(bench.recipe(bench.texts("code", modules())))


@healthy("prose and programs, mixed by weight")
def mixture(bench: Bench) -> LintReport:
    sources = [
        {"name": bench.texts(), "weight": 0.7},
        {"name": bench.texts("code", modules()), "weight": 0.3},
    ]
    return bench.lint(bench.recipe(sources))


@healthy("weights that change with the step")
def scheduled(bench: Bench) -> LintReport:
    sources = [{"name": bench.texts()}, {"name": bench.texts("code", modules())}]
    weights = [[0, {"prose": 0.9, "code": 0.1}], [6, {"prose": 0.1, "code": 0.9}]]
    return bench.lint(bench.recipe(sources, weights=weights))


@healthy("a source and its held-out part, as two sources")
def held_out(bench: Bench) -> LintReport:
    name = bench.texts()
    sources: list[dict[str, Any]] = [
        {"name": name, "alias": "train", "split": "train", "held_share": 0.3},
        {"name": name, "alias": "held", "split": "held", "held_share": 0.3},
    ]
    return bench.lint(bench.recipe(sources))


@healthy("Cyrillic, Greek, Japanese and Arabic prose")
def multilingual(bench: Bench) -> LintReport:
    texts = [
        *prose("абвгдежзиклмнопрстуфхцчшщыьэюя", 60),
        *prose("αβγδεζηθικλμνξοπρστυφχψω", 60),
        *prose("日本語文字漢字平仮名片仮名山川空海人口目耳手足力水火土木金", 60),
        *prose("ابتثجحخدذرزسشصضطظعغفقكلمنهوي", 60),
    ]
    return bench.lint(bench.recipe(bench.texts("languages", texts)))


@healthy("French and German with accents, quotes and dashes")
def accents(bench: Bench) -> LintReport:
    texts = [f"« {text} » – „{text[:40]}“ … ÇÃO, IRMÃ" for text in prose("abcdéèêàçôîûüöäßœ", 200)]
    return bench.lint(bench.recipe(bench.texts("accents", texts)))


@healthy("tables of numbers")
def numbers(bench: Bench) -> LintReport:
    draws = np.random.default_rng(0)
    texts = [
        "\n".join(",".join(map(str, row)) for row in draws.integers(0, 10**6, (12, 6))) for _ in range(150)
    ]
    return bench.lint(bench.recipe(bench.texts("numbers", texts)))


@healthy("short texts, such as headlines")
def headlines(bench: Bench) -> LintReport:
    return bench.lint(
        bench.recipe(bench.texts("headlines", [" ".join(p.split()[:9]) for p in paragraphs()])), steps=4
    )


@healthy("conversations, fitted into rows")
def conversations(bench: Bench) -> LintReport:
    return bench.lint(
        bench.recipe(
            bench.rows("chats", chats(80)), bench.chat(), {"kind": "pack", "length": 768, "policy": "fit"}
        )
    )


@healthy("conversations of several turns")
def several_turns(bench: Bench) -> LintReport:
    rows = bench.rows("turns", chats(30, turns=4))
    return bench.lint(bench.recipe(rows, bench.chat(), {"kind": "pack", "length": 1024, "policy": "fit"}))


@healthy("names, one word each")
def names(bench: Bench) -> LintReport:
    words = dict.fromkeys(word for text in paragraphs() for word in text.split())
    return bench.lint(bench.recipe(bench.texts("names", list(words))), steps=4)


@healthy("lines of a log, alike but for their numbers")
def log_lines(bench: Bench) -> LintReport:
    lines = [
        f"2024-05-{n % 28 + 1:02d} server[{n * 7}]: Request {n} took {n * 13 % 977} ms" for n in range(600)
    ]
    return bench.lint(bench.recipe(bench.texts("log", lines)), steps=6)


@healthy("conversations, one a row, padded, for several epochs")
def padded_conversations(bench: Bench) -> LintReport:
    rows = bench.rows(
        "long-chats", [chat for chat in chats(480) if len(chat["messages"][2]["content"]) > 600][:40]
    )
    return bench.lint(
        bench.recipe(rows, bench.chat(), {"kind": "pad", "length": 512, "token": PAD}), steps=16
    )


@healthy("conversations whose template marks what is generated")
def generation(bench: Bench) -> LintReport:
    template = (
        "{% for message in messages %}<|im_start|>{{ message.role }}\n{% if message.role == 'assistant' %}"
        "{% generation %}{{ message.content }}<|im_end|>{% endgeneration %}\n{% else %}{{ message.content }}<|im_end|>\n"
        "{% endif %}{% endfor %}"
    )
    stages = (bench.chat(template=template), {"kind": "pack", "length": 768, "policy": "fit"})
    return bench.lint(bench.recipe(bench.rows("chats", chats(80)), *stages))


@healthy("conversations in which all roles are learned on purpose")
def all_roles(bench: Bench) -> LintReport:
    rows = [{"messages": chat["messages"][1:]} for chat in chats(80)]
    stages = (bench.chat(train_on=["user", "assistant"]), {"kind": "pack", "length": 768, "policy": "fit"})
    return bench.lint(bench.recipe(bench.rows("no-system", rows), *stages))


@healthy("several answers to the same question")
def several_answers(bench: Bench) -> LintReport:
    rows = [
        {
            "messages": [
                {"role": "user", "content": paragraphs()[n // 8]},
                {"role": "assistant", "content": text},
            ]
        }
        for n, text in enumerate(paragraphs()[100:200])
    ]
    stages = (bench.chat(), {"kind": "pack", "length": 768, "policy": "fit"})
    return bench.lint(bench.recipe(bench.rows("answers", rows), *stages))


@healthy("stored tokens in rows, texts joined with the token that ends them")
def stored_rows(bench: Bench) -> LintReport:
    flat = [token for ids in bench.encoded(paragraphs()) for token in (*ids, EOS)]
    rows = np.array(flat[: len(flat) // 256 * 256], dtype=np.uint16).reshape(-1, 256)
    return bench.lint(
        {"batch": 4, "sources": [{"name": bench.stored("flat", rows)}]}, tokenizer=bench.tokenizer
    )


@healthy("stored tokens without any tokenizer")
def stored_unknown(bench: Bench) -> LintReport:
    flat = [token for ids in bench.encoded(paragraphs()) for token in (*ids, EOS)]
    rows = np.array(flat[: len(flat) // 256 * 256], dtype=np.uint16).reshape(-1, 256)
    return bench.lint({"batch": 4, "sources": [{"name": bench.stored("flat", rows)}]})


@healthy("texts cut to a limit that few reach")
def truncated_few(bench: Bench) -> LintReport:
    return bench.lint(
        bench.recipe(
            bench.texts(),
            bench.tokenize(),
            {"kind": "truncate", "length": 300},
            {"kind": "pack", "length": 512},
        )
    )


@healthy("a tokenizer that has no token to end texts with")
def no_specials(bench: Bench) -> LintReport:
    stages = ({"kind": "tokenize", "tokenizer": str(bench.words_tokenizer)}, {"kind": "pack", "length": 256})
    return bench.lint(bench.recipe(bench.texts(), *stages))


@healthy("an evaluation set whose last step is padded with empty rows")
def evaluation(bench: Bench) -> LintReport:
    name = bench.texts("evaluation", paragraphs()[:90])
    sources = [{"name": name, "epochs": 1}]
    return bench.lint(bench.recipe(sources, exhaustion="pad"), steps=40)


@healthy("a training set looked at against a test set it does not hold")
def clean_of_tests(bench: Bench) -> LintReport:
    texts = [("tests@1/row/0", text) for text in paragraphs()[300:]]
    return bench.lint(
        bench.recipe(bench.texts("first", paragraphs()[:300])), expected=Expected(against=texts)
    )


def clean(rows: int = 4, seed: int = 0) -> dict[str, Any]:
    """A batch as a good collator makes it: two documents a row, then padding."""
    draws = np.random.default_rng(seed)
    tokens = np.full((rows, 24), PAD)
    segments, positions = np.zeros((2, rows, 24), dtype=np.int64)
    for row in range(rows):
        for number, (first, stop) in enumerate(((0, 10), (10, 20)), start=1):
            tokens[row, first:stop] = draws.integers(10, 100, stop - first)
            tokens[row, [first, stop - 1]] = BOS, EOS
            segments[row, first:stop] = number
            positions[row, first:stop] = np.arange(stop - first)
    labels = np.where(tokens == PAD, -100, tokens)
    return {
        "input_ids": tokens,
        "labels": labels,
        "segment_ids": segments,
        "position_ids": positions,
        "attention_mask": (segments > 0).astype(np.int64),
    }


EXPECTED = Expected(
    vocabulary_size=100, bos=BOS, eos=EOS, pad=PAD, placeholders=frozenset({IMAGE}), begins=True, ends=True
)


@healthy("batches of another loader: packed, padded, labels at their tokens")
def foreign(bench: Bench) -> LintReport:
    return lint_batches([clean(seed=seed) for seed in range(8)], EXPECTED)


@healthy("batches of another loader, for three epochs")
def foreign_epochs(bench: Bench) -> LintReport:
    return lint_batches([clean(seed=seed % 6) for seed in range(18)], EXPECTED)


@healthy("labels that the loader has already moved by one, with a mask of its own")
def foreign_shifted(bench: Bench) -> LintReport:
    tokens = np.random.default_rng(1).integers(10, 100, (8, 65))
    batch = {"tokens": tokens[:, :-1], "labels": tokens[:, 1:], "loss_mask": np.ones((8, 64))}
    return lint_batches([batch])


@healthy("masked language modelling, where labels stand behind one hidden token")
def foreign_masked(bench: Bench) -> LintReport:
    tokens = np.random.default_rng(1).integers(10, 100, (8, 64))
    hidden = np.random.default_rng(2).random((8, 64)) < 0.15
    return lint_batches(
        [{"input_ids": np.where(hidden, 5, tokens), "labels": np.where(hidden, tokens, -100)}]
    )


@healthy("conversations of another loader, padded on the left, answers alone in the loss")
def foreign_chats(bench: Bench) -> LintReport:
    expected = Expected().knowing(read_vocabulary(bench.tokenizer))
    batches = []
    for first in range(0, 32, 4):
        rows = [rendered(bench, chat) for chat in chats(32)[first : first + 4]]
        width = max(len(ids) for ids, _ in rows)
        ids = np.array([[PAD] * (width - len(ids)) + ids for ids, _ in rows])
        labels = np.array([[-100] * (width - len(labels)) + labels for _, labels in rows])
        mask = np.array([[0] * (width - len(ids)) + [1] * len(ids) for ids, _ in rows])
        batches.append({"input_ids": ids, "labels": labels, "attention_mask": mask})
    return lint_batches(batches, expected)


def rendered(
    bench: Bench, chat: dict[str, Any], learned: tuple[str, ...] = ("assistant",)
) -> tuple[list[int], list[int]]:
    """Tokens and labels of a conversation, as a careful collator makes them."""
    assert "im_start" in CHATML
    ids: list[int] = []
    labels: list[int] = []
    for message in chat["messages"]:
        head, body = bench.encoded([f"<|im_start|>{message['role']}\n", f"{message['content']}<|im_end|>"])
        (after,) = bench.encoded(["\n"])
        ids += [*head, *body, *after]
        counted = message["role"] in learned
        labels += [-100] * len(head) + (body if counted else [-100] * len(body)) + [-100] * len(after)
    return ids, labels
