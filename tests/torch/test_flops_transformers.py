"""Models of ``transformers``, built on the meta device from their configurations, against closed forms."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from penstock.cli.main import main
from penstock.observe.flops import CAUSAL, FULL, BatchLayout, Mask, Site
from penstock.torch import Flops, flops

ROWS, LENGTH, WIDTH, HIDDEN, HEADS, VOCABULARY = 2, 32, 64, 96, 4, 97
TOKENS = ROWS * LENGTH
TRIANGLE = ROWS * LENGTH * (LENGTH + 1) // 2
COMMON: dict[str, Any] = {
    "hidden_size": WIDTH,
    "intermediate_size": HIDDEN,
    "num_hidden_layers": 2,
    "num_attention_heads": HEADS,
    "num_key_value_heads": 2,
    "vocab_size": VOCABULARY,
    "head_dim": 16,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GPT2 = {
    "n_embd": WIDTH,
    "n_layer": 2,
    "n_head": HEADS,
    "vocab_size": VOCABULARY,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
#: Weights of a gated layer with grouped heads that every token meets.
GROUPED = WIDTH * (WIDTH + 2 * 32 + WIDTH)
GATED = GROUPED + 3 * WIDTH * HIDDEN


def closed_form(weights: int, pairs: int, *, head: bool = True, width: int = 16) -> int:
    products = 6 * TOKENS * (2 * weights + (WIDTH * VOCABULARY if head else 0))
    return products + 2 * 6 * HEADS * 2 * width * pairs


def window(size: int) -> int:
    return ROWS * sum(min(place + 1, size) for place in range(LENGTH))


CAUSAL_MODELS: list[tuple[str, Mapping[str, Any], int]] = [
    ("llama", COMMON, closed_form(GATED, TRIANGLE)),
    ("qwen2", COMMON, closed_form(GATED, TRIANGLE)),
    ("qwen3", COMMON, closed_form(GATED, TRIANGLE)),
    ("olmo2", COMMON, closed_form(GATED, TRIANGLE)),
    ("mistral", {**COMMON, "sliding_window": 8}, closed_form(GATED, window(8))),
    (
        "gemma3_text",
        {**COMMON, "sliding_window": 8, "layer_types": ["sliding_attention"] * 2},
        closed_form(GATED, window(8)),
    ),
    ("gpt2", GPT2, closed_form(12 * WIDTH**2, TRIANGLE)),
    (
        "mixtral",
        {**COMMON, "num_local_experts": 4, "num_experts_per_tok": 2},
        closed_form(GROUPED + WIDTH * 4 + 2 * 3 * WIDTH * HIDDEN, TRIANGLE),
    ),
    (
        "qwen3_moe",
        {**COMMON, "moe_intermediate_size": 16, "num_experts": 8, "num_experts_per_tok": 3},
        closed_form(GROUPED + WIDTH * 8 + 3 * 3 * WIDTH * 16, TRIANGLE),
    ),
]


def built(kind: str, fields: Mapping[str, Any], loader: str = "AutoModelForCausalLM") -> torch.nn.Module:
    import transformers

    with torch.device("meta"):
        config = transformers.AutoConfig.for_model(kind, **fields)
        model: torch.nn.Module = getattr(transformers, loader).from_config(config)
    return model.train()


def ids() -> torch.Tensor:
    return torch.empty(ROWS, LENGTH, dtype=torch.long, device="meta")


def total(counted: Flops) -> int | None:
    return counted.count(BatchLayout(counted.first.shape)).useful_total


@pytest.mark.parametrize(
    ("kind", "fields", "expected"), CAUSAL_MODELS, ids=[kind for kind, *_ in CAUSAL_MODELS]
)
def test_models_cost_their_closed_form(kind: str, fields: Mapping[str, Any], expected: int) -> None:
    model = built(kind, fields)

    counted = flops(model, {"input_ids": ids(), "labels": ids(), "use_cache": False})

    assert counted.unknown == ()
    assert total(counted) == expected


def test_latent_attention_has_two_widths() -> None:
    """Goal: MLA. Method: DeepSeek's layers, all dense, against its projections."""
    fields = {
        **COMMON,
        "num_key_value_heads": HEADS,
        "head_dim": 8,
        "first_k_dense_replace": 2,
        "q_lora_rank": 24,
        "kv_lora_rank": 20,
        "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 8,
        "v_head_dim": 12,
    }
    model = built("deepseek_v3", fields)

    counted = flops(model, {"input_ids": ids(), "use_cache": False})

    projections = (
        WIDTH * 24 + 24 * HEADS * 24 + WIDTH * (20 + 8) + 20 * HEADS * (16 + 12) + HEADS * 12 * WIDTH
    )
    products = 6 * TOKENS * (2 * (projections + 3 * WIDTH * HIDDEN) + WIDTH * VOCABULARY)
    assert total(counted) == products + 2 * 6 * HEADS * (24 + 12) * TRIANGLE


def test_encoders_see_everything() -> None:
    fields = {**COMMON, "num_key_value_heads": None}
    model = built("bert", fields, "AutoModel")

    pooler = 6 * ROWS * WIDTH * WIDTH
    layer = 4 * WIDTH * WIDTH + 2 * WIDTH * HIDDEN
    expected = closed_form(layer, ROWS * LENGTH**2, head=False) + pooler
    assert total(flops(model, {"input_ids": ids()})) == expected


def test_learned_biases_are_declared() -> None:
    """Method: T5 adds biases that it learns to its mask; nobody can tell what they hide until it is said."""
    fields = {
        "d_model": WIDTH,
        "d_ff": HIDDEN,
        "d_kv": 16,
        "num_layers": 1,
        "num_heads": HEADS,
        "vocab_size": VOCABULARY,
    }
    model = built("t5", fields, "AutoModel")
    batch = {"input_ids": ids(), "decoder_input_ids": ids(), "use_cache": False}
    masks: dict[str, Mask] = {"decoder.*.SelfAttention": CAUSAL, "*": FULL}

    assert total(flops(model, batch)) is None
    attention = 6 * HEADS * 32 * (2 * ROWS * LENGTH**2 + TRIANGLE)
    products = 6 * TOKENS * (3 * 4 * WIDTH * WIDTH + 2 * 2 * WIDTH * HIDDEN)
    assert total(flops(model, batch, masks=masks)) == products + attention


#: Architectures whose closed form nobody wrote down here. Gradients cost twice the forward in every one of them, but for the first layer.
ZOO: dict[str, Mapping[str, Any]] = {
    "cohere": COMMON,
    "falcon": {name: value for name, value in COMMON.items() if name != "head_dim"},
    "gpt_neox": COMMON,
    "granite": COMMON,
    "olmoe": COMMON,
    "opt": {**COMMON, "ffn_dim": HIDDEN, "word_embed_proj_dim": WIDTH},
    "persimmon": COMMON,
    "phi3": COMMON,
    "smollm3": COMMON,
    "stablelm": COMMON,
    "starcoder2": COMMON,
}


@pytest.mark.parametrize("kind", ZOO)
def test_gradients_of_strangers_cost_twice_their_forward(kind: str) -> None:
    counted = flops(built(kind, ZOO[kind]), {"input_ids": ids(), "labels": ids(), "use_cache": False})

    assert counted.unknown == ()
    phases = {"forward": 0, "backward": 0, "recompute": 0}
    for entry in counted.first.seen:
        phases[entry.phase] += entry.useful_per_pair if isinstance(entry, Site) else entry.flops
    assert phases["backward"] == 2 * phases["forward"] > 0
    assert phases["recompute"] == 0
    assert all(str(entry.mask) == "causal" for entry in counted.first.seen if isinstance(entry, Site))


def test_a_configuration_is_counted_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "config.json"
    place.write_text(json.dumps({"model_type": "llama", "architectures": ["LlamaForCausalLM"], **COMMON}))

    assert main(["flops", str(place), "--rows", str(ROWS), "--length", str(LENGTH), "--json"]) == 0

    document = json.loads(capsys.readouterr().out)
    assert document["useful"] == {"float32": closed_form(GATED, TRIANGLE)}
    attention = [row for row in document["modules"] if row["kind"] == "attention"]
    assert [(row["module"], row["modules"]) for row in attention] == [("model.layers.*.self_attn", 2)]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "cannot be read as JSON"),
        ("[]", "no model_type"),
        ('{"model_type": "nonesuch"}', "does not take"),
    ],
)
def test_what_is_no_configuration_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, complaint: str
) -> None:
    place = tmp_path / "config.json"
    place.write_text(text)

    assert main(["flops", str(place)]) == 2
    assert complaint in capsys.readouterr().err


def test_a_factory_is_counted_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mymodel.py").write_text(
        "import torch\n"
        "def build(): return torch.nn.Sequential(torch.nn.Embedding(8, 4), torch.nn.Linear(4, 8))\n"
        "def chosen():\n"
        "    class Chosen(torch.nn.Linear):\n"
        "        def forward(self, rows): return super().forward(rows[rows > 0].view(-1, 4))\n"
        "    return Chosen(4, 4), torch.empty(2, 4)\n"
        "number = 3\n"
    )
    monkeypatch.chdir(tmp_path)

    assert main(["flops", "mymodel:build", "--rows", "2", "--length", "10"]) == 0
    assert "step: 3840 useful FLOPs" in capsys.readouterr().out
    assert main(["flops", "mymodel:chosen", "--forward-only"]) == 1
    assert "unknown: " in capsys.readouterr().err
    assert main(["flops", "mymodel:gone"]) == 2
    assert main(["flops", "mymodel"]) == 2
    assert main(["flops", "mymodel:build", "--rows", "0"]) == 2
