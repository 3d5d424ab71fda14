"""Conversations become the text that their template says, and what the model says is what it is trained on."""

import itertools
import json
import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock import Registry, errors
from penstock.registry.columns.measure import Limits, NothingToMeasure, measure_version
from penstock.registry.tokenize.chat import ChatTokens, Telling
from penstock.registry.tokenize.rendering import Conversation, Renderer
from penstock.registry.tokenize.template import Template
from tests.registry.chats import (
    CHATML,
    CHATML_MARKED,
    FORGETFUL,
    GEMMA,
    MISTRAL,
    TEMPLATES,
    WORDS,
    Turns,
    slow_loss,
    write_bytes_tokenizer,
)

SAID = [
    "Hello there",
    "  spaces around ",
    "two\nlines",
    "naïve 😀 naïve",
    "",
    "a < b && 'c'",
    "[INST]",
    "日本語",
]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bytes_tokenizer(tmp_path_factory.mktemp("tokenizer") / "tokenizer.json")


def conversations(count: int, seed: int = 0) -> list[Turns]:
    """User and assistant in turn, of any length; what all the templates take."""
    draws = random.Random(seed)
    roles = itertools.cycle(["user", "assistant"])
    return [
        [(role, draws.choice(SAID)) for _, role in zip(range(draws.randint(1, 7)), roles, strict=False)]
        if next(roles) == "assistant"
        else [("user", draws.choice(SAID))]
        for _ in range(count)
    ]


def messages(turns: Turns) -> list[dict[str, Any]]:
    return [{"role": role, "content": said} for role, said in turns]


def telling(template: str, **more: Any) -> Telling:
    return Telling(template=Template(template, WORDS), **more)


@pytest.mark.parametrize("roles", [("assistant",), ("user",), ("assistant", "user"), ()])
@pytest.mark.parametrize("name", TEMPLATES)
def test_tokens_and_loss_are_what_a_slow_way_says(tokenizer: Path, name: str, roles: tuple[str, ...]) -> None:
    """Method: the text piece by piece in plain Python, and token by token which bytes each stands for."""
    from tokenizers import Tokenizer

    template, pieces_of = TEMPLATES[name]
    plain = Tokenizer.from_file(str(tokenizer))
    measure = ChatTokens(tokenizer, telling(template, train_on=roles))
    turns = conversations(60)
    lengths, payloads = measure.compute([measure.read({"messages": messages(talk)}) for talk in turns])
    assert len({len(talk) for talk in turns}) > 3
    for conversation, length, tokens, loss in zip(
        turns, lengths, payloads["tokens"], payloads["loss"], strict=True
    ):
        pieces = pieces_of(conversation, set(roles))
        ids = plain.encode("".join(piece for piece, _ in pieces), add_special_tokens=False).ids
        assert tokens.tolist() == ids
        assert loss.tolist() == slow_loss(plain, ids, pieces)
        assert length == len(tokens) == len(loss)
    total = np.concatenate(payloads["loss"])
    assert bool(total.any()) is (bool(roles) or "marks" in name)
    assert not total.all()


def test_both_payloads_are_versions_with_the_rows_of_the_conversations(
    local: Registry, tokenizer: Path, tmp_path: Path
) -> None:
    turns = conversations(1200, seed=1)
    rows = [messages(talk) for talk in turns]
    path = tmp_path / "chats.jsonl"
    path.write_text("".join(json.dumps({"messages": talk}) + "\n" for talk in rows))
    version = local.register("chats", path)
    measure = ChatTokens(tokenizer, telling(CHATML))

    column = local.measure("chats", measure)

    _, expected = measure.compute([measure.read({"messages": talk}) for talk in rows])
    tokens, loss = local.payload(version, column), local.payload(version, column, "loss")
    assert [np.asarray(row["tokens"]).tolist() for row in tokens] == [e.tolist() for e in expected["tokens"]]
    assert [np.asarray(row["loss"]).tolist() for row in loss] == [e.tolist() for e in expected["loss"]]
    assert local.values(column).tolist() == [len(ids) for ids in expected["tokens"]]
    assert local.measure("chats", pickle.loads(pickle.dumps(measure))) == column


def test_conversations_may_be_json_text_and_have_tools(tokenizer: Path) -> None:
    template = "{% if tools %}{{ tools | tojson }}\n{% endif %}" + CHATML
    turns: Any = [
        {"role": "user", "content": "5 < 6?"},
        {"role": "assistant", "content": "", "tool_calls": [{"name": "less"}]},
    ]
    measure = ChatTokens(tokenizer, telling(template, field="talk", tools="tools"))
    plain = measure.read({"talk": turns, "tools": [{"name": "less", "about": "a<b é"}]})
    assert plain.text.startswith('[{"name": "less", "about": "a<b é"}]\n<|im_start|>user\n5 < 6?')
    text = measure.read({"talk": json.dumps(turns), "tools": '[{"name": "less", "about": "a<b é"}]'})
    assert plain == text
    assert measure.read({"talk": turns}).text.startswith("<|im_start|>")


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "missing": ({"text": "x"}, "'messages' is missing"),
    "text": ({"messages": "hello"}, "expected JSON"),
    "number": ({"messages": 5}, "is int"),
    "empty": ({"messages": []}, "is empty"),
    "no messages": ({"messages": ["hello"]}, "has no role"),
    "no role": ({"messages": [{"content": "hello"}]}, "has no role"),
    "role that is a number": ({"messages": [{"role": 5, "content": "hello"}]}, "has no role"),
    "content that is missing": ({"messages": [{"role": "user"}]}, "template fails"),
    "content of the wrong kind": ({"messages": [{"role": "user", "content": 5}]}, "template fails"),
    "system": ({"messages": [{"role": "system", "content": "be kind"}]}, "alternate"),
}


@pytest.mark.parametrize("what", BAD)
def test_rows_that_are_no_conversations_are_said(tokenizer: Path, what: str) -> None:
    row, reason = BAD[what]
    with pytest.raises(NothingToMeasure, match=reason):
        ChatTokens(tokenizer, telling(MISTRAL)).read(row)


def test_such_rows_may_be_borne(local: Registry, tokenizer: Path, tmp_path: Path) -> None:
    rows = [messages(talk) for talk in conversations(10)]
    rows[4] = messages([("system", "x")])
    path = tmp_path / "chats.jsonl"
    path.write_text("".join(json.dumps({"messages": talk}) + "\n" for talk in rows))
    version = local.register("chats", path)
    measure = ChatTokens(tokenizer, telling(GEMMA))
    with pytest.raises(errors.SampleUndecodable, match=r"row 4 .*System role not supported"):
        local.measure("chats", measure)
    column = measure_version(local, version, measure, limits=Limits(undecodable_max=1))
    assert [entry.row for entry in column.undecodable] == [4]
    assert [row for row, length in enumerate(local.values(column)) if not length] == [4]
    assert len(local.payload(version, column, "loss")[4]["loss"]) == 0


def test_a_template_may_change_earlier_turns_and_ask_for_the_whole_conversation() -> None:
    """Goal: turns are found in one rendering. Method: templates that no prefix of a conversation could be rendered with."""
    renderer = Renderer(Template(FORGETFUL, {}))
    turn = messages([("user", "hi"), ("assistant", "<think>so</think>hello")])
    conversation = renderer.conversation([*turn, *turn], None, ["assistant"])
    head = "<|im_start|>assistant\n"
    assert trained_of(conversation) == [f"{head}hello<|im_end|>", f"{head}<think>so</think>hello<|im_end|>"]
    whole = "{% if messages[-1].role != 'user' %}{{ raise_exception('ask') }}{% endif %}" + CHATML
    turns = messages([("user", "hi"), ("assistant", "hello"), ("user", "bye")])
    assert trained_of(Renderer(Template(whole, {})).conversation(turns, None, ["assistant"])) == [
        "hello<|im_end|>\n"
    ]


def trained_of(conversation: Conversation) -> list[str]:
    """What counts in the loss, as text."""
    return [conversation.text[start:stop] for start, stop in conversation.trained]


LOOPS = {
    "by number": "{% for n in range(messages | length) %}{% set m = messages[n] %}"
    "[{{ m.role }}:{{ m.content }}]{% endfor %}",
    "by number, with looks around": "{% for n in range(messages | length) %}{% set m = messages[n] %}"
    "{% set last = messages[-1] %}{% if not m.content %}{% continue %}{% endif %}[{{ m.role }}:{{ m.content }}]{% endfor %}",
    "over a slice": "{% set rest = messages[0:] %}{% for m in rest %}[{{ m.role }}:{{ m.content }}]{% endfor %}",
    "with a look back": "{% for m in messages %}{% set before = messages[loop.index0 - 1] %}"
    "[{{ m.role }}:{{ m.content }}]{% endfor %}",
    "that goes on early": "{% for m in messages %}{% if not m.content %}{% continue %}{% endif %}"
    "[{{ m.role }}:{{ m.content }}]{% endfor %}",
    "without the last": "{% for m in messages[:-1] %}[{{ m.role }}:{{ m.content }}]{% endfor %}"
    "[{{ messages[-1].role }}:{{ messages[-1].content }}]",
    "in a macro": "{% macro all(given) %}{% for m in given %}[{{ m.role }}:{{ m.content }}]{% endfor %}{% endmacro %}"
    "{{ all(messages) }}",
}


@pytest.mark.parametrize("how", LOOPS)
def test_turns_are_found_however_a_template_goes_over_messages(how: str) -> None:
    turns = messages([("user", "one"), ("assistant", " two "), ("user", "?"), ("assistant", "4")])
    conversation = Renderer(Template(LOOPS[how], {})).conversation(turns, None, ["assistant"])
    assert trained_of(conversation) == ["[assistant: two ]", "[assistant:4]"]


PROMPTS = {
    "after the loop": "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}",
    "in the last turn": "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>"
    "{% if loop.last and add_generation_prompt %}<assistant>{% endif %}{% endfor %}",
    "with a thought": "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"
    "{% if add_generation_prompt %}<assistant><think>{% endif %}",
    "with words": "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>Let me see: {% endif %}",
    "always": "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}<assistant><think>",
    "only with tools": "{{ tools[0].type }}{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}",
}


@pytest.mark.parametrize("how", PROMPTS)
def test_headers_are_not_trained_on_wherever_a_template_prompts(how: str) -> None:
    turns = messages([("user", "one"), ("assistant", "two"), ("user", "three"), ("assistant", "four")])
    conversation = Renderer(Template(PROMPTS[how], {})).conversation(turns, [{"type": "x"}], ["assistant"])
    assert trained_of(conversation) == ["two</>", "four</>"]


def test_what_closes_a_conversation_is_trained_on_and_what_stands_before_the_next_prompt_is_not() -> None:
    turns = messages([("user", "one"), ("assistant", "two")])
    loop = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"
    closed = loop + "{% if add_generation_prompt %}<assistant>{% else %}<end>{% endif %}"
    assert trained_of(Renderer(Template(closed, {})).conversation(turns, None, ["assistant"])) == [
        "two</><end>"
    ]
    ends = loop + "<end>"
    assert trained_of(Renderer(Template(ends, {})).conversation(turns, None, ["assistant"])) == [
        "<assistant>two</><end>"
    ]
    rules = loop + "<rules>{% if add_generation_prompt %}<assistant>{% endif %}"
    assert trained_of(Renderer(Template(rules, {})).conversation(turns, None, ["assistant"])) == ["two</>"]


UNCLEAR = {
    "all turns in one text": "{% set ns = namespace(all='') %}{% for m in messages %}{% set ns.all = ns.all + m.content %}"
    "{% endfor %}{{ ns.all }}",
    "new messages": "{% for m in messages %}{% set ns = namespace(m={'content': m.content}) %}{% endfor %}"
    "{% for c in messages | map(attribute='content') | list %}{{ c }}{% endfor %}",
    "a look at the text": "{% for m in messages %}{{ m.content }}{{ m.content | length }}{% endfor %}",
    "one turn inside another": "{% for m in messages %}{% if m.role == 'assistant' %}{{ messages[0].content }}{{ m.content }}"
    "{% endif %}{% endfor %}",
}


@pytest.mark.parametrize("how", UNCLEAR)
def test_a_conversation_whose_turns_cannot_be_told_is_one_that_nothing_can_be_made_of(how: str) -> None:
    """Goal: never a wrong mask. Method: templates that mix what is said."""
    turns = messages([("user", "one two"), ("assistant", "three four")])
    with pytest.raises(NothingToMeasure, match="generation"):
        Renderer(Template(UNCLEAR[how], {})).conversation(turns, None, ["assistant"])


def test_contents_that_a_template_leaves_out_are_said() -> None:
    parts = "{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}<end>{% endfor %}"
    renderer = Renderer(Template(parts, {}))
    with pytest.raises(NothingToMeasure, match="list of parts"):
        renderer.conversation(messages([("assistant", "hello")]), None, ["assistant"])
    said = [{"role": "assistant", "content": [{"type": "text", "text": "hello"}]}]
    assert trained_of(renderer.conversation(said, None, ["assistant"])) == ["hello<end>"]


def test_long_conversations_take_no_longer_per_turn() -> None:
    """Goal: no work that grows with the square of turns. Method: far more turns than could be rendered one by one."""
    turns = messages([("user", "question"), ("assistant", "answer")] * 5000)
    conversation = Renderer(Template(CHATML, {})).conversation(turns, None, ["assistant"])
    assert trained_of(conversation) == ["answer<|im_end|>\n"] * 5000


def test_marks_inside_macros_and_loops_are_where_the_text_is() -> None:
    template = (
        "{% macro say(m) %}[{% generation %}{{ m.content }}{% endgeneration %}]{% endmacro %}"
        "{% for m in messages %}{% if m.role == 'assistant' %}{{ say(m) }}{% else %}{{ m.content }}{% endif %}{% endfor %}"
    )
    conversation = Renderer(Template(template, {})).conversation(
        messages(
            [("user", "ab"), ("assistant", "cde"), ("user", "\0f"), ("assistant", "g"), ("assistant", "")]
        ),
        None,
        [],
    )
    assert conversation.text == "ab[cde]\0f[g][]"
    assert [conversation.text[start:stop] for start, stop in conversation.trained] == ["cde", "g"]
    nested = "{% generation %}a{% generation %}b{% endgeneration %}c{% endgeneration %}d"
    assert Renderer(Template(nested, {})).conversation(messages([("user", "")]), None, []).trained == (
        (0, 3),
    )


def test_marks_cannot_be_forged_or_filtered_away() -> None:
    renderer = Renderer(Template(CHATML_MARKED, {}))
    with pytest.raises(NothingToMeasure, match="kept out of text"):
        renderer.conversation(messages([("user", "\ufdd0x\ufdd1")]), None, [])
    trimmed = (
        "{% set x %}{% generation %} {{ messages[0].content }} {% endgeneration %}{% endset %}{{ x | trim }}"
    )
    with pytest.raises(NothingToMeasure, match="after they are closed"):
        Renderer(Template(trimmed, {})).conversation(messages([("user", "a")]), None, [])


def test_a_template_gets_no_time_of_day_but_the_declared_one() -> None:
    asks = "{{ strftime_now('%d %b %Y') }}{{ messages[0].content }}"
    with pytest.raises(errors.UsageError, match="what day it is") as raised:
        Renderer(Template(asks, {})).render(messages([("user", "x")]))
    assert "date=" in f"{raised.value.hint}"
    assert Renderer(Template(asks, {}), date="2024-07-26").render(messages([("user", "x")])) == "26 Jul 2024x"
    careful = "{% if strftime_now is defined %}{{ strftime_now('%Y') }}{% else %}1999{% endif %}"
    assert Renderer(Template(careful, {})).render(messages([("user", "x")])) == "1999"


HOSTILE = [
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ messages.append(1) }}",
    "{{ messages[0].update({'role': 'x'}) }}",
    "{{ cycler.__init__.__globals__ }}",
    "{% include 'passwd' %}",
    "{{ range(10000000) | list }}",
    "{{ undefined_thing() }}",
]


@pytest.mark.parametrize("template", HOSTILE)
def test_templates_reach_nothing_outside(template: str) -> None:
    turns = messages([("user", "x")])
    with pytest.raises(NothingToMeasure):
        Renderer(Template(template, {})).render(turns)
    assert turns == messages([("user", "x")])


def test_a_template_that_is_none_is_said_with_its_line() -> None:
    with pytest.raises(errors.UsageError, match="line 2"):
        Renderer(Template("{{ x }}\n{% for %}", {}))


def test_everything_that_changes_tokens_or_loss_is_part_of_the_identity(
    tokenizer: Path, tmp_path: Path
) -> None:
    from tokenizers import Tokenizer

    other = Tokenizer.from_file(str(tokenizer))
    other.add_tokens(["zzz"])
    other.save(str(tmp_path / "other.json"))
    plain = Telling(template=Template(CHATML, {}))
    identities = [
        ChatTokens(tokenizer, plain).identity(),
        ChatTokens(tmp_path / "other.json", plain).identity(),
        ChatTokens(tokenizer, Telling(template=Template(CHATML + " ", {}))).identity(),
        ChatTokens(tokenizer, Telling(template=Template(CHATML, {"bos_token": "<s>"}))).identity(),
        ChatTokens(tokenizer, Telling(template=Template(CHATML, {}), field="talk")).identity(),
        ChatTokens(tokenizer, Telling(template=Template(CHATML, {}), train_on=("user",))).identity(),
        ChatTokens(tokenizer, Telling(template=Template(CHATML, {}), tools="tools")).identity(),
        ChatTokens(tokenizer, Telling(template=Template(CHATML, {}), date="2024-07-26")).identity(),
        ChatTokens(tokenizer, Telling(template=Template(CHATML, {}), variables={"x": 1})).identity(),
    ]
    assert len({json.dumps(identity) for identity in identities}) == len(identities)
    assert all("jinja2 3" in identity["library"] for identity in identities)
