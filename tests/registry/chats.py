"""Chat templates as models have them, what each must render, and a slow way to say which tokens are trained on.

The templates are written after the conventions of well-known models. ``told`` says in plain Python what each renders, piece by
piece, with whether the piece is trained on; nothing of it uses Jinja or offsets.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
CHATML_MARKED = """
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' }}
    {%- if message.role == 'assistant' %}
        {%- generation %}{{ message.content + '<|im_end|>' }}{% endgeneration %}
    {%- else %}
        {{- message.content + '<|im_end|>' }}
    {%- endif %}
    {{- '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
LLAMA3 = (
    "{% set loop_messages = messages %}{% for message in loop_messages %}"
    "{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' "
    "+ message['content'] | trim + '<|eot_id|>' %}"
    "{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"
)
MISTRAL = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}"
    "{% elif message['role'] == 'assistant' %}{{ ' ' + message['content'] + eos_token }}"
    "{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}"
)
GEMMA = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}"
    "{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for message in messages %}"
    "{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}"
    "{{ '<start_of_turn>' + role + '\\n' + message['content'] | trim + '<end_of_turn>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"
)
#: Leaves the thoughts of earlier turns out once more is said.
FORGETFUL = (
    "{% for m in messages %}{% if m.role == 'assistant' and not loop.last %}"
    "{{ '<|im_start|>assistant\\n' + m.content.split('</think>')[-1] + '<|im_end|>' }}"
    "{% else %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>' }}{% endif %}{% endfor %}"
)
WORDS = {"bos_token": "<s>", "eos_token": "</s>"}
SPECIAL = [
    "<s>",
    "</s>",
    "<|im_start|>",
    "<|im_end|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
    "<start_of_turn>",
    "<end_of_turn>",
]
Turns = list[tuple[str, str]]
Pieces = list[tuple[str, bool]]


def _chatml(turns: Turns, roles: set[str], *, newline: bool = True) -> Pieces:
    pieces: Pieces = []
    for role, said in turns:
        # Only the assistant's header is one that a generation prompt gives.
        pieces += [(f"<|im_start|>{role}\n", role in roles and role != "assistant")]
        pieces += [(f"{said}<|im_end|>", role in roles), ("\n", role in roles and newline)]
    return pieces


def _chatml_marked(turns: Turns, roles: set[str]) -> Pieces:
    return _chatml(turns, {"assistant"}, newline=False)


def _llama3(turns: Turns, roles: set[str]) -> Pieces:
    # The first turn itself writes what comes before it.
    pieces: Pieces = [("<s>", turns[0][0] in roles)]
    for role, said in turns:
        pieces += [(f"<|start_header_id|>{role}<|end_header_id|>\n\n", role in roles and role != "assistant")]
        pieces += [(f"{said.strip()}<|eot_id|>", role in roles)]
    return pieces


def _mistral(turns: Turns, roles: set[str]) -> Pieces:
    pieces: Pieces = [("<s>", False)]
    for role, said in turns:
        text = f"[INST] {said} [/INST]" if role == "user" else f" {said}</s>"
        pieces += [(text, role in roles)]
    return pieces


def _gemma(turns: Turns, roles: set[str]) -> Pieces:
    pieces: Pieces = [("<s>", False)]
    for role, said in turns:
        name = "model" if role == "assistant" else role
        pieces += [(f"<start_of_turn>{name}\n", role in roles and role != "assistant")]
        pieces += [(f"{said.strip()}<end_of_turn>\n", role in roles)]
    return pieces


TEMPLATES: dict[str, tuple[str, Callable[[Turns, set[str]], Pieces]]] = {
    "chatml": (CHATML, _chatml),
    "chatml with marks": (CHATML_MARKED, _chatml_marked),
    "llama 3": (LLAMA3, _llama3),
    "mistral": (MISTRAL, _mistral),
    "gemma": (GEMMA, _gemma),
}


def write_bytes_tokenizer(path: Path) -> Path:
    """A byte-level tokenizer with some merges, so that tokens end where turns do not and characters are cut."""
    from tokenizers import AddedToken, Tokenizer
    from tokenizers.decoders import ByteLevel as Decoder
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import ByteLevel
    from tokenizers.trainers import BpeTrainer

    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = Decoder()
    texts = ["assistant\nHello there\nuser\n", "[/INST] Hello there", "\n\nHello", "[/INST] Hello"] * 5
    trainer = BpeTrainer(vocab_size=400, initial_alphabet=ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in SPECIAL])
    tokenizer.save(str(path))
    return path


def slow_loss(tokenizer: Any, ids: list[int], pieces: Pieces) -> list[int]:
    """Whether each token has a byte that is trained on, from the bytes that each token stands for."""
    text = "".join(piece for piece, _ in pieces)
    trained = [flag for piece, flag in pieces for _ in piece.encode()]
    plain = {character: byte for byte, character in _byte_characters().items()}
    mask, at = [], 0
    for number in ids:
        token = tokenizer.id_to_token(number)
        size = len(token.encode()) if token in SPECIAL else len([plain[character] for character in token])
        # A character that is cut counts as a whole, in every token that has some of it.
        start, stop = _whole_characters(text.encode(), at, at + size)
        mask.append(int(any(trained[start:stop])))
        at += size
    assert at == len(trained)
    return mask


def _whole_characters(data: bytes, start: int, stop: int) -> tuple[int, int]:
    while start > 0 and data[start] & 0xC0 == 0x80:
        start -= 1
    while stop < len(data) and data[stop] & 0xC0 == 0x80:
        stop += 1
    return start, stop


def _byte_characters() -> dict[int, str]:
    """The characters that byte-level tokenizers write for bytes."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in kept]
    return {byte: chr(byte) for byte in kept} | {byte: chr(256 + n) for n, byte in enumerate(others)}
