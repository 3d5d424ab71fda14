"""Headers and ends of turns in templates as people publish them: written by another turn, or with other spaces than in the prompt.

The templates are written after the conventions of public ones. What is expected stands beside each, piece by piece.
"""

import pytest

from penstock.registry.tokenize.rendering import Renderer
from penstock.registry.tokenize.template import Template

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
