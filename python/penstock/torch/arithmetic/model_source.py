"""The model that a command names: a configuration of Hugging Face, or a function that builds one."""

import importlib
import os
import sys
from pathlib import Path
from typing import Any

import torch

from penstock.errors import UsageError
from penstock.torch.arithmetic.hugging_face import batch_of, model_of


def model_and_batch(name: str, *, rows: int, length: int, dtype: str | None) -> tuple[torch.nn.Module, Any]:
    """A model on the meta device, and a batch for it."""
    number_type = _number_type(dtype)
    if name.endswith(".json"):
        module, config = model_of(Path(name), dtype=number_type)
        return module, batch_of(module, config, rows=rows, length=length)
    return _made_by_factory(name, rows, length, number_type)


def _number_type(name: str | None) -> torch.dtype | None:
    dtype = None if name is None else getattr(torch, name, None)
    if name is not None and not isinstance(dtype, torch.dtype):
        raise UsageError(
            f"unknown type {name!r}", hint="types are called as in torch: bfloat16, float32, float16"
        )
    return dtype


def _made_by_factory(
    name: str, rows: int, length: int, dtype: torch.dtype | None
) -> tuple[torch.nn.Module, Any]:
    place, _, attribute = name.partition(":")
    if not place or not attribute:
        raise UsageError(
            f"expected MODULE:FACTORY or a config.json, got {name!r}", hint="penstock flops train:build_model"
        )
    sys.path.insert(0, os.getcwd())
    try:
        factory = getattr(importlib.import_module(place), attribute)
    except (ImportError, AttributeError) as reason:
        raise UsageError(f"{name} cannot be imported: {reason}") from reason
    with torch.device("meta"):
        answer = factory()
    module, batch = answer if isinstance(answer, tuple) else (answer, None)
    if not isinstance(module, torch.nn.Module):
        raise UsageError(f"{name} must give a torch.nn.Module, got {type(module).__name__}")
    if batch is None:
        batch = torch.empty(rows, length, dtype=torch.long, device="meta")
    return (module if dtype is None else module.to(dtype)), batch
