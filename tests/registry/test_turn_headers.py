"""Headers and ends of turns in templates as people publish them: written by another turn, or with other spaces than in the prompt.

The templates are written after the conventions of public ones. What is expected stands beside each, piece by piece.
"""

from pathlib import Path

import pytest

from penstock.registry.columns.measure import NothingToMeasure
from penstock.registry.tokenize.rendering import Renderer
from penstock.registry.tokenize.template import Template, find_template

WORDS = {"bos_token": "<s>", "eos_token": "</s>"}
LOOP, END, PROMPT = "{% for m in messages %}", "{% endfor %}", "{% if add_generation_prompt %}"
CONVERSATION = [
    {"role": "user", "content": "What is two?"},
    {"role": "assistant", "content": "It is two."},
    {"role": "user", "content": "And three?"},
    {"role": "assistant", "content": "Three."},
]
#: Template, and what is trained of the two answers.
TEMPLATES = {
    # The prompt has the end of the last turn too, which turns have only when another one follows.
    "end in the prompt": (
        (
            f"{LOOP}{{{{ '<|im_start|>' + m.role + '\\n' + m.content }}}}"
            f"{{% if not loop.last %}}{{{{ '<|im_end|>\\n' }}}}{{% endif %}}{END}"
            f"{PROMPT}{{{{ '<|im_end|>\\n<|im_start|>assistant\\n' }}}}{{% endif %}}"
        ),
        ["It is two.<|im_end|>\n", "Three."],
    ),
    "gap before the prompt": (
        (
            f"{{{{ bos_token }}}}{LOOP}{{% if m.role == 'user' %}}{{{{ '### Instruction:\\n' + m.content }}}}{{% else %}}"
            f"{{{{ '### Response:\\n' + m.content + eos_token }}}}{{% endif %}}"
            f"{{% if not loop.last %}}{{{{ '\\n\\n' }}}}{{% endif %}}{END}"
            f"{PROMPT}{{{{ '\\n\\n### Response:\\n' }}}}{{% endif %}}"
        ),
        ["It is two.</s>\n\n", "Three.</s>"],
    ),
    "written with indentation": (
        (
            f"{{{{ bos_token }}}}\n{LOOP}\n\n    {{{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}}}\n"
            f"{END}\n\n{PROMPT}\n    {{{{ '<|im_start|>assistant\\n' }}}}\n{{% endif %}}"
        ),
        ["It is two.<|im_end|>\n\n", "Three.<|im_end|>\n\n"],
    ),
    # The end of a turn is written when the next begins, and after the last one.
    "end in the next turn": (
        (
            f"<|bom|><|system|>{LOOP}{{{{ '<|eom|><|bom|><|' + m.role + '|> ' + m.content }}}}{END}"
            f"<|eom|>{PROMPT}<|bom|><|assistant|>{{% endif %}}"
        ),
        [" It is two.<|eom|>", " Three.<|eom|>"],
    ),
    # It is written by the next turn alone.
    "end in the next question": (
        (
            f"{LOOP}{{% if m.role == 'user' %}}{{% if not loop.first %}}<|assistant_end|>{{% endif %}}"
            f"{{{{ '<|user_start|>' + m.content + '<|user_end|>' }}}}{{% else %}}"
            f"{{{{ '<|assistant_start|>' + m.content }}}}{{% endif %}}{END}"
            f"{PROMPT}<|assistant_start|>{{% endif %}}"
        ),
        ["It is two.<|assistant_end|>", "Three."],
    ),
    # What stands at the end of every conversation is a prompt, and nobody's turn.
    "a prompt that always stands": (
        (
            f"{LOOP}{{% if m.role == 'user' %}}{{{{ '<|turn|><|user|>' + m.content + '<|end|>' }}}}{{% else %}}"
            f"{{{{ '<|turn|><|bot|><|say|>' + m.content + '<|end|>' }}}}{{% endif %}}{END}"
            f"<|turn|><|bot|>{PROMPT}<|say|>{{% endif %}}"
        ),
        ["It is two.<|end|>", "Three.<|end|>"],
    ),
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_answers_count_without_headers_and_with_their_ends(name: str) -> None:
    """Goal: no header in the loss, and ends learned. Method: see the module."""
    template, expected = TEMPLATES[name]
    conversation = Renderer(Template(template, WORDS)).conversation(CONVERSATION, None, ["assistant"])
    assert [conversation.text[start:stop] for start, stop in conversation.trained] == expected


@pytest.mark.parametrize("name", TEMPLATES)
def test_columns_made_with_other_turns_are_not_taken_for_these(name: str) -> None:
    """Goal: masks that changed have another identity. Method: the masks that come of rendering prefixes, as was done before."""
    renderer = Renderer(Template(TEMPLATES[name][0], WORDS))
    text = renderer.render(CONVERSATION)
    before = []
    for answer in (1, 3):
        asked = renderer.render(CONVERSATION[:answer], add_generation_prompt=True)
        rendered = renderer.render(CONVERSATION[: answer + 1])
        before.append(
            (len(asked), len(rendered)) if text.startswith(rendered) and rendered.startswith(asked) else None
        )
    now = renderer.conversation(CONVERSATION, None, ["assistant"]).trained
    assert renderer.changed_since_prefixes(["assistant"]) or list(now) == before


CALL = {"type": "function", "id": "call00001", "function": {"name": "add", "arguments": {"a": 1}}}
WITH_TOOLS = [
    {"role": "user", "content": "Add one."},
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "name": "add", "tool_call_id": "call00001", "content": "the sum is 2"},
    {"role": "assistant", "content": "It is two."},
]
_CALLS = "{% if m.tool_calls %}{{ m.tool_calls[0].function | tojson }}{% endif %}"
_USER = "{% if m.role == 'user' %}{{ '<|user|>' + m.content }}"
_SAID = f"{{% else %}}{{% if not m.tool_calls %}}{{{{ m.content }}}}{{% endif %}}{_CALLS}<|end|>{{% endif %}}"
#: Template, and what is trained of the call and of the answer to the tool.
TOOL_TEMPLATES = {
    # Who speaks next closes what tools gave, or the end of the conversation does.
    "end of the tool in the answer": (
        (
            f"{LOOP}{_USER}{{% elif m.role == 'tool' %}}{{{{ '<|outputs|>' + m.content }}}}"
            "{% else %}{% if loop.previtem.role == 'tool' %}<|outputs_end|>{% else %}<|assistant|>{% endif %}"
            f"{_SAID.removeprefix('{% else %}')}{END}"
            "{% if messages[-1].role == 'tool' %}<|outputs_end|>"
            "{% elif add_generation_prompt %}<|assistant|>{% endif %}"
        ),
        ['{"name": "add", "arguments": {"a": 1}}<|end|>', "It is two.<|end|>"],
    ),
    # The header of a call has a line end where others have a space.
    "other spaces before a call": (
        (
            f"{LOOP}{_USER}{{% elif m.role == 'tool' %}}{{{{ '\\n<|tool|>' + m.content }}}}"
            "{% else %}{{ '\\nASSISTANT:\\n' if m.tool_calls else '\\nASSISTANT: ' }}"
            f"{_SAID.removeprefix('{% else %}')}{END}{PROMPT}{{{{ '\\nASSISTANT: ' }}}}{{% endif %}}"
        ),
        ['\n{"name": "add", "arguments": {"a": 1}}<|end|>', "It is two.<|end|>"],
    ),
}


@pytest.mark.parametrize("name", TOOL_TEMPLATES)
def test_what_is_given_around_tools_is_not_trained_on(name: str) -> None:
    """Goal: the model learns what it has to say. Method: templates after R1's and Granite's; identities change with the masks."""
    template, expected = TOOL_TEMPLATES[name]
    renderer = Renderer(Template(template, WORDS))
    conversation = renderer.conversation(WITH_TOOLS, [CALL], ["assistant"])
    assert [conversation.text[start:stop] for start, stop in conversation.trained] == expected
    assert renderer.has_leads(["assistant"])


def test_templates_without_such_leads_keep_their_identity() -> None:
    for template, _ in TEMPLATES.values():
        assert not Renderer(Template(template, WORDS)).has_leads(["assistant"])


def test_answers_behind_thoughts_are_in_a_turn_or_the_row_is_refused() -> None:
    """Goal: no conversation of which nothing is trained. Method: a template that collects its text and leaves thoughts out."""
    collects = (
        "{% set ns = namespace(out='') %}{% for n in range(messages | length) %}"
        "{% set ns.out = ns.out ~ messages[n].role ~ ': ' ~ messages[n].content.split('</think>')[-1] ~ '\\n' %}"
        f"{END}{{{{ ns.out }}}}"
    )
    said = [
        {"role": "user", "content": "What is two?"},
        {"role": "assistant", "content": "<think>\nCount.\n</think>\n\nIt is two."},
    ]
    with pytest.raises(NothingToMeasure, match="no turn of its own"):
        Renderer(Template(collects, WORDS)).conversation(said, None, ["assistant"])


def test_special_tokens_of_older_folders_are_known_to_templates(tmp_path: Path) -> None:
    """Goal: no beginning of text is left out in silence. Method: the names in `special_tokens_map.json` alone, as older tools wrote them."""
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "</end>"}')
    (tmp_path / "special_tokens_map.json").write_text(
        '{"bos_token": {"content": "<s>", "lstrip": false}, "eos_token": "</s>", "additional_special_tokens": []}'
    )
    template = find_template(
        tmp_path / "tokenizer.json", "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}"
    )
    assert template.words == {"bos_token": "<s>", "eos_token": "</end>"}
    assert Renderer(template).render([{"role": "user", "content": "a"}]) == "<s>a</end>"
