"""Chat templates that installed packages bring, against oracles that know nothing of marks.

``transformers`` renders the text and, where a template says itself what is generated, gives the mask. For other templates the
oracle looks for headers and ends of turns in the text, as they are written for each family; TRL's training variants, which say
what is generated, must agree wherever they render the same text. A template of a new release that fits no family fails here.
"""

import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.registry.columns.measure import NothingToMeasure
from penstock.registry.tokenize.chat import ChatTokens, Telling
from penstock.registry.tokenize.rendering import Renderer
from penstock.registry.tokenize.template import Template
from tests.registry.chats import write_bytes_tokenizer

trl = pytest.importorskip("trl")
transformers = pytest.importorskip("transformers")

WORDS = {"bos_token": "<s>", "eos_token": "</s>"}
DATE = "2024-07-26"
FOLDER = Path(trl.__file__).parent / "chat_templates"
#: Families whose turns go on after a tool has answered, without a header; there only words are looked for.
GOES_ON = ("<｜Assistant｜>", "<|turn>")
#: Header that comes before what the model says, and how its turns end, by what is found in a template, first match first.
FAMILIES: list[tuple[str, str, tuple[str, ...]]] = [
    (
        "<|START_RESPONSE|>",
        "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|><|START_RESPONSE|>",
        ("<|END_OF_TURN_TOKEN|>",),
    ),
    ("<|CHATBOT_TOKEN|>", "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>", ("<|END_OF_TURN_TOKEN|>",)),
    ("<｜Assistant｜>", "<｜Assistant｜>", ("<｜end▁of▁sentence｜>",)),
    ("<|turn>", "<|turn>model\n", ("<turn|>\n", "<tool_call|>")),
    ("<start_of_turn>", "<start_of_turn>model\n", ("<end_of_turn>\n",)),
    ("[gMASK]", "<|assistant|>", ()),
    ("<|channel|>", "<|start|>assistant", ("<|return|>", "<|call|>", "<|end|>")),
    ("<atem:", "<|start|>assistant", ("<|eot|>",)),
    ("<end_of_utterance>", "Assistant:", ("<end_of_utterance>\n",)),
    ("<|start_header_id|>", "<|start_header_id|>assistant<|end_header_id|>\n\n", ("<|eot_id|>",)),
    ("[INST]", "[/INST]", ("</s> ",)),
    ("<|assistant|>", "<|assistant|>\n", ("<|end|>\n",)),
    ("<|im_start|>", "<|im_start|>assistant\n", ("<|im_end|>\n",)),
]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Adds numbers",
            "parameters": {"type": "object", "properties": {"a": {"type": "integer", "description": "one"}}},
        },
    }
]
CALL = {"type": "function", "id": "call-1", "function": {"name": "add", "arguments": {"a": 1}}}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def said(text: str, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **more}


CONVERSATIONS: dict[str, list[dict[str, Any]]] = {
    "one turn": [user("What is two?"), said("It is two.")],
    "two turns": [user("What is two?"), said("It is two."), user(" And three? "), said(" Three.\n")],
    "three turns": [
        user("a one"),
        said("b two"),
        user("c three"),
        said("d four"),
        user("e five"),
        said("f six"),
    ],
    "four turns": [message for n in range(4) for message in (user(f"question {n}"), said(f"answer {n}"))],
    "a question at the end": [user("What is two?"), said("It is two."), user("And three?")],
    "system": [{"role": "system", "content": "Be kind."}, user("What is two?"), said("It is two.")],
    "reasoning": [
        user("What is two?"),
        said("It is two.", reasoning_content="Count once."),
        user("And three?"),
        said("Three.", reasoning_content="Count again."),
    ],
    "thoughts in the text": [
        user("What is two?"),
        said("<think>\nCount once.\n</think>\n\nIt is two."),
        user("And three?"),
        said("<think>\nCount again.\n</think>\n\nThree."),
    ],
    "tools": [
        user("Add one."),
        said("", tool_calls=[CALL]),
        {"role": "tool", "name": "add", "tool_call_id": "call-1", "content": "the sum is 2"},
        said("It is two."),
    ],
    "tools and more": [
        user("Add one."),
        said("I will.", tool_calls=[CALL]),
        {"role": "tool", "name": "add", "tool_call_id": "call-1", "content": "the sum is 2"},
        said("It is two."),
        user("Thanks, friend."),
        said("With pleasure."),
    ],
}
TRL = sorted(FOLDER.glob("*.jinja"))


def templates_of_transformers() -> Iterator[tuple[str, str]]:
    """Templates that processors of ``transformers`` have as their default."""
    import ast

    folder = Path(transformers.__file__).parent / "models"
    for path in sorted(folder.glob("*/processing_*.py")):
        text = path.read_text()
        if "for message in" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and "{% for message" in node.value
            ):
                yield path.stem, node.value


OTHERS = list(templates_of_transformers())


@pytest.fixture(scope="module")
def fast(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = write_bytes_tokenizer(tmp_path_factory.mktemp("tokenizer") / "tokenizer.json")
    return transformers.PreTrainedTokenizerFast(tokenizer_file=str(path), bos_token="<s>", eos_token="</s>")


@cache
def renderer_of(template: str) -> Renderer:
    return Renderer(Template(template, WORDS), date=DATE)


def formed(messages: list[dict[str, Any]], form: str) -> list[dict[str, Any]]:
    """Contents as text, as parts, or arguments of calls as text: what templates want differs."""
    if form == "parts":
        return [message | {"content": [{"type": "text", "text": message["content"]}]} for message in messages]
    if form == "text arguments":
        function = CALL["function"] | {"arguments": '{"a": 1}'}  # type: ignore[operator]
        calls = {"tool_calls": [CALL | {"function": function}]}
        return [message | (calls if "tool_calls" in message else {}) for message in messages]
    return messages


def rendered(
    text: str, messages: list[dict[str, Any]], tools: Any
) -> tuple[str, list[tuple[int, int]]] | None:
    """What ``transformers`` renders, and what it says is generated; None for a conversation that the template refuses."""
    from transformers.utils.chat_template_utils import render_jinja_template

    marks = "{% generation" in text or "{%- generation" in text
    try:
        texts, spans = render_jinja_template(
            conversations=[messages],
            tools=tools,
            chat_template=text,
            return_assistant_tokens_mask=marks,
            **WORDS,
        )
    except Exception:  # noqa: BLE001 - templates raise what they like
        return None
    return texts[0], spans[0] if marks else []


def trained_by_scan(text: str, template: str) -> list[tuple[int, int]]:
    """Turns of the model, from their headers to their ends, found in the text alone."""
    _, header, ends = next(family for family in FAMILIES if family[0] in template)
    spans = []
    at = text.find(header)
    while at >= 0:
        start = at + len(header)
        stops = [place + len(end) for end in ends if (place := text.find(end, start)) >= 0]
        if not ends:
            stops = [
                place
                for next_role in ("<|user|>", "<|observation|>")
                if (place := text.find(next_role, start)) >= 0
            ]
        stop = min(stops, default=len(text))
        while header.startswith("<|start|>") and text.startswith(header, stop):
            # A turn of several messages: the model writes the headers of all but the first.
            stop = min(place + len(end) for end in ends if (place := text.find(end, stop)) >= 0)
        # Some templates end a conversation with a token of their own.
        spans.append((start, len(text) if text[stop:] == WORDS["eos_token"] else stop))
        at = text.find(header, spans[-1][1])
    return spans


def words_of(text: str, spans: list[tuple[int, int]]) -> str:
    """What is trained on, without where it was cut."""
    return "".join(text[start:stop] for start, stop in spans)


@pytest.mark.parametrize("path", TRL, ids=lambda path: path.stem)
def test_the_text_and_the_mask_are_those_of_an_oracle(path: Path) -> None:
    """Goal: every template, every kind of conversation. Method: see the module."""
    template = path.read_text()
    check_template(template, oracle=trained_by_scan)


@pytest.mark.parametrize(("name", "template"), OTHERS, ids=[name for name, _ in OTHERS])
def test_templates_of_transformers_are_told_too(name: str, template: str) -> None:
    """Goal: what is trained begins with the model's words and has nobody else's. Method: as above, without a family."""

    def says(text: str, _: str) -> list[tuple[int, int]] | None:
        return None

    check_template(template, oracle=says)


def check_template(template: str, *, oracle: Callable[[str, str], list[tuple[int, int]] | None]) -> None:
    renderer = renderer_of(template)
    count = 0
    for name, conversation in CONVERSATIONS.items():
        tools = TOOLS if name.startswith("tools") else None
        for form in ("text", "parts", "text arguments"):
            messages = formed(conversation, form)
            expected = rendered(template, messages, tools)
            refusal = ""
            try:
                actual = renderer.conversation(messages, tools, ["assistant"])
            except NothingToMeasure as reason:
                refusal = str(reason)
            # Nothing but the template itself may refuse, and where it leaves out all that is said.
            assert bool(refusal) == (expected is None) or "list of parts" in refusal, (name, form, refusal)
            if refusal or expected is None:
                continue
            text, spans = expected
            if "strftime_now" not in template:
                assert actual.text == text
            scanned = not (tools and any(word in template for word in GOES_ON))
            wanted = spans if renderer.marks else oracle(actual.text, template) if scanned else None
            shown = words_of(actual.text, list(actual.trained))
            if wanted is not None:
                assert shown == words_of(actual.text, wanted), (name, form)
            check_words(name, conversation, actual.text, list(actual.trained))
            count += 1
            break
    assert count >= 5, "the template can tell hardly any conversation"


def check_words(
    name: str, conversation: list[dict[str, Any]], text: str, trained: list[tuple[int, int]]
) -> None:
    """The last thing that each says is trained on if and only if the model says it."""
    shown = words_of(text, trained)
    for message in conversation:
        words = message["content"].rpartition("</think>")[2].strip()
        if words and words in text and message["role"] != "system":
            assert (words in shown) == (message["role"] == "assistant"), (name, words, shown)


@pytest.mark.parametrize(
    "path", [path for path in TRL if path.stem.endswith("_training")], ids=lambda path: path.stem
)
def test_training_variants_agree_with_what_is_found_without_their_marks(path: Path) -> None:
    """Goal: independent authors agree. Method: a template and its variant that says what is generated, where the text is equal."""
    plain = path.with_name(f"{path.stem.removesuffix('_training')}.jinja")
    if not plain.is_file():
        pytest.skip("there is only the training variant")
    here, there = (renderer_of(variant.read_text()) for variant in (plain, path))
    equal = 0
    for name, conversation in CONVERSATIONS.items():
        tools = TOOLS if name.startswith("tools") else None
        for form in ("text", "parts", "text arguments"):
            messages = formed(conversation, form)
            try:
                mine, theirs = (
                    renderer.conversation(messages, tools, ["assistant"]) for renderer in (here, there)
                )
            except NothingToMeasure:
                continue
            if mine.text != theirs.text:
                continue
            equal += 1
            for side, other in ((mine, theirs), (theirs, mine)):
                # Some of them have headers among what is generated, some leave out a space or a newline.
                rest = without(side.text, list(side.trained), list(other.trained)).replace(here.header, "")
                # This one takes the next role for the end of a turn.
                rest = rest.replace("<|user|>", "") if "glm4moe" in path.stem else rest
                # This one has the end of what a tool said among what is generated.
                rest = rest.replace("<｜tool▁outputs▁end｜>", "") if "deepseek_r1" in path.stem else rest
                assert rest.strip() == "", (name, form, rest)
    if path.stem.startswith(("glm4moe", "qwen3", "deepseek_r1")) or "cohere" in path.stem:
        return
    assert equal >= 3


def without(text: str, spans: list[tuple[int, int]], others: list[tuple[int, int]]) -> str:
    """What lies in some spans and not in others."""
    kept = np.zeros(len(text), dtype=bool)
    for start, stop in spans:
        kept[start:stop] = True
    for start, stop in others:
        kept[start:stop] = False
    return "".join(character for character, keep in zip(text, kept, strict=True) if keep)


@pytest.mark.parametrize("stem", ["qwen3_training", "lfm2_2_5", "llama3_training", "qwen2_5"])
def test_tokens_and_mask_are_those_of_apply_chat_template(fast: Any, tmp_path: Path, stem: str) -> None:
    """Goal: the very tokens that training with transformers sees. Method: its tokenizer, template and mask."""
    template = (FOLDER / f"{stem}.jinja").read_text()
    fast.save_pretrained(str(tmp_path))
    telling = Telling(template=Template(template, WORDS), tools="tools", date=DATE)
    measure = ChatTokens(tmp_path / "tokenizer.json", telling)
    marks = "{% generation" in template or "{%- generation" in template
    for name, conversation in CONVERSATIONS.items():
        tools = TOOLS if name.startswith("tools") else None
        theirs = fast.apply_chat_template(
            conversation,
            tools=tools,
            chat_template=template,
            tokenize=True,
            return_dict=True,
            return_assistant_tokens_mask=marks,
        )
        _, payloads = measure.compute([measure.read({"messages": json.dumps(conversation), "tools": tools})])
        assert payloads["tokens"][0].tolist() == theirs["input_ids"], name
        if marks:
            assert payloads["loss"][0].tolist() == theirs["assistant_masks"], name


@pytest.mark.parametrize("path", TRL, ids=lambda path: path.stem)
def test_parts_are_told_as_text_or_not_at_all(path: Path) -> None:
    """Goal: nobody trains on brackets. Method: contents as parts, which templates that want text write as Python prints a list."""
    for name, conversation in CONVERSATIONS.items():
        if name.startswith("tools"):
            continue
        try:
            told = renderer_of(path.read_text()).conversation(
                formed(conversation, "parts"), None, ["assistant"]
            )
        except NothingToMeasure:
            continue
        assert not {"'type'", '"type"'} & set(told.text.replace(":", " ").replace("{", " ").split()), name
