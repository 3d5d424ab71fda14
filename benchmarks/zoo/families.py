"""Families of transformers, made from small configurations without a download, and models of torchao."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from benchmarks.zoo.case import Case, Program, ordinary, perceptron, rows, tokens

_SIZES = {
    "vocab_size": 32,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}
_TEXT: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("GPT2", {"vocab_size": 32, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32}),
    "llama": ("Llama", {**_SIZES, "num_key_value_heads": 1}),
    "mistral": ("Mistral", {**_SIZES, "num_key_value_heads": 1, "sliding_window": 8}),
    "qwen2": ("Qwen2", {**_SIZES, "num_key_value_heads": 1, "tie_word_embeddings": True}),
    "mixtral": ("Mixtral", {**_SIZES, "num_key_value_heads": 1, "num_local_experts": 4}),
    "gemma": ("Gemma", {**_SIZES, "num_key_value_heads": 1, "head_dim": 8}),
    "opt": ("OPT", {**_SIZES, "ffn_dim": 32, "word_embed_proj_dim": 16, "max_position_embeddings": 32}),
    "gpt_neox": ("GPTNeoX", {**_SIZES, "max_position_embeddings": 32}),
}


def warm() -> None:
    """Import what the families need, once, before processes are forked."""
    import transformers

    for kind, _ in _TEXT.values():
        _classes(kind)
    for name in ("BertForMaskedLM", "T5ForConditionalGeneration", "ViTModel"):
        getattr(transformers, name)


def _classes(kind: str) -> tuple[Any, Any]:
    import transformers

    model = getattr(transformers, f"{kind}LMHeadModel", None) or getattr(transformers, f"{kind}ForCausalLM")
    return getattr(transformers, f"{kind}Config"), model


def _text(kind: str, sizes: dict[str, Any]) -> Program:
    config, model_class = _classes(kind)
    model = model_class(config(**sizes, bos_token_id=1, eos_token_id=2, pad_token_id=0)).train()

    def loss(step: int) -> torch.Tensor:
        batch = tokens(step, 2, 8)
        result: torch.Tensor = model(input_ids=batch, labels=batch).loss
        return result

    return ordinary(model, loss)


def _masked() -> Program:
    import transformers

    model = transformers.BertForMaskedLM(
        transformers.BertConfig(**_SIZES, max_position_embeddings=32)
    ).train()
    return ordinary(model, lambda step: model(input_ids=tokens(step, 2, 8), labels=tokens(step, 2, 8)).loss)


def _translating() -> Program:
    import transformers

    sizes = {"vocab_size": 32, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2}
    config = transformers.T5Config(**sizes, decoder_start_token_id=0)
    model = transformers.T5ForConditionalGeneration(config).train()
    return ordinary(model, lambda step: model(input_ids=tokens(step, 2, 8), labels=tokens(step, 2, 8)).loss)


def _looking() -> Program:
    import transformers

    sizes = {key: value for key, value in _SIZES.items() if key != "vocab_size"}
    config = transformers.ViTConfig(**sizes, image_size=16, patch_size=8, hidden_dropout_prob=0.1)
    model = transformers.ViTModel(config).train()
    return ordinary(
        model, lambda step: model(pixel_values=rows(step, 2, 3, 16, 16)).last_hidden_state.square().mean()
    )


def _eight_bits(make: str) -> Program:
    from torchao import optim

    # In this process alone: it compiles its steps, and a real compiler takes minutes to no other end.
    torch.compile = partial(torch.compile, backend="eager")
    model = nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 64))
    optimizer = getattr(optim, make)(model.parameters(), lr=1e-2)
    return ordinary(model, lambda step: model(rows(step, 5, 64)).square().mean(), optimizer)


def _quantised() -> Program:
    from torchao.quantization import Int8WeightOnlyConfig, quantize_

    model = perceptron()
    quantize_(model[0], Int8WeightOnlyConfig())
    for parameter in model[0].parameters():
        parameter.requires_grad_(False)
    return ordinary(model, lambda step: model(rows(step, 5, 6)).square().mean())


def _trained_quantised() -> Program:
    from torchao.quantization.qat import FakeQuantizedLinear

    model = nn.Sequential(FakeQuantizedLinear(32, 32), nn.Tanh(), nn.Linear(32, 4))
    return ordinary(model, lambda step: model(rows(step, 5, 32)).square().mean())


def _family(name: str) -> Callable[[], Program]:
    return lambda: _text(*_TEXT[name])


CASES = [
    *(Case(name, _family(name), needs="transformers") for name in _TEXT),
    Case("bert", _masked, needs="transformers"),
    Case("t5", _translating, needs="transformers"),
    Case("vit", _looking, needs="transformers"),
    Case("torchao AdamW of eight bits", lambda: _eight_bits("AdamW8bit"), "refused", needs="torchao"),
    Case("torchao AdamW of four bits", lambda: _eight_bits("AdamW4bit"), "refused", needs="torchao"),
    Case("torchao weights of eight bits", _quantised, "refused", needs="torchao"),
    Case("torchao training for quantisation", _trained_quantised, needs="torchao"),
]
