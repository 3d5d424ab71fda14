"""Models of Hugging Face from their ``config.json``: on the meta device, without weights."""

import json
from pathlib import Path
from typing import Any

import torch

from penstock.errors import UsageError


def model_of(path: Path, *, dtype: torch.dtype | None) -> tuple[torch.nn.Module, Any]:
    """The model that a ``config.json`` describes, and its configuration. Nothing is downloaded and no code of others runs."""
    try:
        import transformers
    except ImportError as reason:
        raise UsageError(
            "a config.json needs the package transformers", hint="pip install transformers"
        ) from reason
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as reason:
        raise UsageError(f"{path} cannot be read as JSON: {reason}") from reason
    if not isinstance(fields, dict) or "model_type" not in fields:
        raise UsageError(
            f"{path} is not the configuration of a model: it has no model_type",
            hint="give the config.json of a model of Hugging Face",
        )
    kind = fields.pop("model_type")
    try:
        config = transformers.AutoConfig.for_model(kind, **fields)
    except (ValueError, TypeError, KeyError) as reason:
        raise UsageError(
            f"transformers {transformers.__version__} does not take {path}: {reason}"
        ) from reason
    names = fields.get("architectures") or []
    model_class = getattr(transformers, names[0], None) if names else None
    with torch.device("meta"):
        if model_class is not None:
            model = model_class(config)
        else:
            model = transformers.AutoModelForCausalLM.from_config(config)
    model.train()
    return model.to(dtype or _own_type(fields) or torch.float32), config


def _own_type(fields: dict[str, Any]) -> torch.dtype | None:
    name = fields.get("dtype") or fields.get("torch_dtype")
    dtype = getattr(torch, name, None) if isinstance(name, str) else None
    return dtype if isinstance(dtype, torch.dtype) else None


def batch_of(model: torch.nn.Module, config: Any, *, rows: int, length: int) -> dict[str, Any]:
    """A batch such as the model takes: tokens with labels, or images."""
    main = getattr(model, "main_input_name", "input_ids")
    if main == "pixel_values":
        vision = getattr(config, "vision_config", config)
        size = getattr(vision, "image_size", 224)
        high, wide = (size, size) if isinstance(size, int) else tuple(size)
        channels = getattr(vision, "num_channels", 3)
        dtype = next(model.parameters()).dtype
        return {"pixel_values": torch.empty(rows, channels, high, wide, dtype=dtype, device="meta")}
    tokens = torch.empty(rows, length, dtype=torch.long, device="meta")
    batch: dict[str, Any] = {"input_ids": tokens}
    if getattr(config, "is_encoder_decoder", False):
        batch["decoder_input_ids"] = tokens
    if type(model).__name__.endswith(("ForCausalLM", "LMHeadModel")):
        batch["labels"] = tokens
        batch["use_cache"] = False
    return batch
